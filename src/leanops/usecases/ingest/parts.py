"""The background parts of ingestion: queues into the delivery stream, and the stream into RAW."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from leanops.domain.breaker import State
from leanops.domain.words import counted
from leanops.ports.queue import DEAD, Queue
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.ingest.deliver import UNROUTABLE, Flushed, Stream, deliver, resume
from leanops.usecases.ingest.process import Processor, work
from leanops.usecases.ingest.room import Room
from leanops.usecases.retry import Patience
from leanops.usecases.workers import DELIVERY, PROCESSOR, Tell, quiet

MESSAGES_PER_RECEIVE = 5_000
QUEUE_PATIENCE_S = 60.0
"""How long an outage is waited out while a queue's messages are in flight and the other queues wait."""
REPORTED_AFTER_S = 5.0
RETRY_QUEUE_S = 15.0


@dataclass(frozen=True)
class Queues:
    """The queues of a runtime with what reads them: a processor, and breakers that may stop one."""

    queue: Queue
    processor: Processor
    breakers: Breakers

    def ready(self) -> list[str]:
        """Queues with messages, dead letters aside."""
        return [name for name in self.queue.ready() if not name.endswith(DEAD)]

    def process(self, tell: Tell = quiet) -> int:
        """Receive once from every queue that has messages; returns the number of messages."""
        return sum(self.receive(name, self.processor.patience, tell) for name in self.ready())

    def receive(self, name: str, patience: Patience, tell: Tell = quiet) -> int:
        """Receive once from a queue, unless its breaker is open; returns the number of messages."""
        at_most = self.breakers.may_receive(name, MESSAGES_PER_RECEIVE)
        result = work(replace(self.processor, patience=patience), self.queue, name, at_most) if at_most else None
        if result is None:
            return 0
        after = self.breakers.report(name, result.events + result.repeats, len(result.failed) + result.archived)
        if after.state is State.OPEN:
            tell(PROCESSOR, f"{name}: stopped because {after.reason}; see it with: leanops breaker show")
        if result.archived:
            tell(PROCESSOR, f"{name}: {counted(result.archived, 'dead letter')} archived; see: leanops dlq list")
        if result.forgotten:
            unrecorded = counted(result.forgotten, "delivered event")
            tell(PROCESSOR, f"{name}: {unrecorded} could not be recorded, so repeats may land in RAW")
        for reason in set(result.reasons):
            tell(PROCESSOR, f"{name}: a message will be tried again: {reason}")
        return len(result.done) + len(result.failed)


@dataclass(eq=False)
class ProcessorPart:
    """The processor as a part: an outage holds up its own queue, and the others once, for a minute at most."""

    queues: Queues
    room: Room
    explain: Callable[[Exception], str]
    tell: Tell = quiet
    doing: Callable[[str | None], None] = lambda _text: None
    now_s: Callable[[], float] = time.monotonic
    _waiting: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Queue → why it waits, and when it is tried again."""
    _reported: set[str] = field(default_factory=set)
    _shortage: str | None = None

    def turn(self) -> int:
        """Receive once from every queue that has messages and does not wait; returns the number of messages."""
        before, self._shortage = self._shortage, self.room.shortage()
        if self._shortage:
            if not before:
                self.tell(PROCESSOR, f"intake is stopped: {self._shortage}")
            return 0
        queues = self.queues.ready()
        # Another worker may have emptied one that waited here.
        self._waiting = {name: waits for name, waits in self._waiting.items() if name in queues}
        return sum(self._guarded(name) for name in queues)

    def problem(self) -> str | None:
        """Why nothing is received, or why a queue waits, until it is read again."""
        if self._shortage:
            return f"intake is stopped: {self._shortage}"
        return _first([f"{name} waits: {why}" for name, (why, _) in self._waiting.items()], "more queue")

    def _guarded(self, name: str) -> int:
        why, next_s = self._waiting.get(name, (None, 0.0))
        if self.now_s() < next_s:
            return 0
        self.doing(f"reads {name}")
        # A queue that has waited a minute in vain is tried now and then, and the others do not wait with it again.
        patience = self.queues.processor.patience.within(0 if why else QUEUE_PATIENCE_S, self.now_s)
        began_s = self.now_s()
        patience = replace(patience, on_wait=lambda outage: self._note(name, outage, began_s))
        try:
            did = self.queues.receive(name, patience, self.tell)
        except Exception as outage:  # noqa: BLE001 - a queue that fails does not stop the others
            reason = self.explain(outage)
            if not why:
                self.tell(PROCESSOR, f"{name} still waits, its messages are back in the queue: {reason}")
            self._waiting[name] = (reason, self.now_s() + RETRY_QUEUE_S)
            return 0
        self._waiting.pop(name, None)
        if name in self._reported:
            self._reported.remove(name)
            self.tell(PROCESSOR, f"{name} resumes")
        return did

    def _note(self, name: str, outage: BaseException, began_s: float) -> None:
        self.doing(f"waiting for {name}: {outage}")
        if name not in self._reported and self.now_s() - began_s >= REPORTED_AFTER_S:
            self._reported.add(name)
            self.tell(PROCESSOR, f"{name} waits: {outage}")


@dataclass(eq=False)
class DeliveryPart:
    """The delivery stream as a part: it remembers which tables fail."""

    stream: Stream
    tell: Tell = quiet
    doing: Callable[[str | None], None] = lambda _text: None
    _failing: dict[str, str] = field(default_factory=dict)

    def turn(self, *, now: bool = False) -> int:
        """Flush if one is due (or `now`), and finish one that was abandoned; returns the number of records."""
        done = 0
        self.doing("flushes")
        for flushed in (deliver(self.stream, now=now), resume(self.stream)):
            if flushed:
                self._note(flushed)
                done += flushed.records + flushed.unroutable
        return done

    def problem(self) -> str | None:
        """The tables that fail, until their records have landed."""
        return _first([f"{topic}: {reason}" for topic, reason in self._failing.items()], "more table")

    def _note(self, flushed: Flushed) -> None:
        taken = {*flushed.tables, *([UNROUTABLE] if flushed.unroutable else [])}
        self._failing = {topic: why for topic, why in self._failing.items() if topic not in taken}
        self._failing |= flushed.failures
        dead_letters = counted(flushed.unroutable, "dead letter")
        archived = f"; {dead_letters} archived, see: leanops dlq list" if flushed.unroutable else ""
        events, tables = counted(flushed.records, "event"), counted(len(flushed.tables), "table")
        self.tell(DELIVERY, f"{events} into {tables}{archived}")
        for topic, reason in flushed.failures.items():
            self.tell(DELIVERY, f"{topic}: not landed, and will be tried again: {reason}")


def _first(problems: Sequence[str], noun: str) -> str | None:
    """The first of the problems, and how many more there are."""
    more = f" (and {counted(len(problems) - 1, noun)})" if problems[1:] else ""
    return f"{problems[0]}{more}" if problems else None
