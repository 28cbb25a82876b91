"""The background parts of ingestion: queues into the delivery stream, and the stream into RAW."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from leanops.domain.breaker import State
from leanops.ports.queue import DEAD, Queue
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.ingest.deliver import UNROUTABLE, Flushed, Stream, deliver, resume
from leanops.usecases.ingest.process import Processor, work
from leanops.usecases.ingest.room import Room
from leanops.usecases.retry import Patience
from leanops.usecases.workers import DELIVERY, PROCESSOR, Doing, Tell, quiet

MESSAGES_PER_RECEIVE = 5_000
QUEUE_PATIENCE_S = 60.0
"""How long an outage is waited out with a queue's messages received, while the other queues wait with it."""
TOLD_AFTER_S = 5.0
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
        """Receive once from every queue that has messages; how many there were."""
        return sum(self.receive(name, self.processor.patience, tell) for name in self.ready())

    def receive(self, name: str, patience: Patience, tell: Tell = quiet) -> int:
        """Receive once from a queue, unless its breaker is open; how many messages there were."""
        at_most = self.breakers.may_receive(name, MESSAGES_PER_RECEIVE)
        result = work(replace(self.processor, patience=patience), self.queue, name, at_most) if at_most else None
        if result is None:
            return 0
        after = self.breakers.report(name, result.events + result.repeats, len(result.failed) + result.archived)
        if after.state is State.OPEN:
            tell(PROCESSOR, f"{name}: stopped because {after.reason}; see it with: leanops breaker show")
        if result.archived:
            tell(PROCESSOR, f"{name}: {result.archived} events are dead letters; see them with: leanops dlq list")
        if result.forgotten:
            tell(PROCESSOR, f"{name}: {result.forgotten} delivered events were not noted; repeats of them will land")
        for reason in set(result.reasons):
            tell(PROCESSOR, f"{name}: a message will be tried again: {reason}")
        return len(result.done) + len(result.failed)


class ProcessorPart:
    """The processor as a part: an outage holds up its own queue, and the others once, for a minute at most."""

    def __init__(
        self,
        queues: Queues,
        room: Room,
        explain: Callable[[Exception], str],
        tell: Tell = quiet,
        doing: Doing | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queues, self._room, self._explain, self._tell, self._now_s = queues, room, explain, tell, now_s
        self._doing: Callable[[str | None], None] = doing or (lambda _text: None)
        self._waiting: dict[str, tuple[str, float]] = {}
        """Queue → why it waits, and when it is tried again."""
        self._told: set[str] = set()
        self._short: str | None = None

    def turn(self) -> int:
        """One receive from every queue that has messages and is not waiting; how many messages there were."""
        short = self._room.shortage()
        if short and not self._short:
            self._tell(PROCESSOR, f"nothing is received: {short}")
        self._short = short
        if short:
            return 0
        queues = self._queues.ready()
        # Another worker may have emptied one that waited here.
        self._waiting = {name: waits for name, waits in self._waiting.items() if name in queues}
        return sum(self._guarded(name) for name in queues)

    def problem(self) -> str | None:
        """Why nothing is received, or why a queue waits, until it has gone on."""
        waiting = [f"{name} waits: {why}" for name, (why, _) in self._waiting.items()]
        found = [f"nothing is received: {self._short}"] if self._short else waiting
        return f"{found[0]}{f' (and {len(found) - 1} more queues)' if found[1:] else ''}" if found else None

    def _guarded(self, name: str) -> int:
        why, next_s = self._waiting.get(name, (None, 0.0))
        if self._now_s() < next_s:
            return 0
        self._doing(f"reads {name}")
        # Who has waited a minute in vain is tried now and then, and the others do not wait with it again.
        patience = self._queues.processor.patience.within(0 if why else QUEUE_PATIENCE_S, self._now_s)
        began_s = self._now_s()
        patience = replace(patience, on_wait=lambda outage: self._note(name, outage, began_s))
        try:
            did = self._queues.receive(name, patience, self._tell)
        except Exception as outage:  # noqa: BLE001 - a queue that fails does not stop the others
            reason = self._explain(outage)
            if not why:
                self._tell(PROCESSOR, f"{name} still waits, its messages are back in the queue: {reason}")
            self._waiting[name] = (reason, self._now_s() + RETRY_QUEUE_S)
            return 0
        self._waiting.pop(name, None)
        if name in self._told:
            self._told.remove(name)
            self._tell(PROCESSOR, f"{name} goes on")
        return did

    def _note(self, name: str, outage: BaseException, began_s: float) -> None:
        self._doing(f"waiting for {name}: {outage}")
        if name not in self._told and self._now_s() - began_s >= TOLD_AFTER_S:
            self._told.add(name)
            self._tell(PROCESSOR, f"{name} waits: {outage}")


class DeliveryPart:
    """The delivery stream as a part: it remembers which tables fail."""

    def __init__(self, stream: Stream, tell: Tell = quiet, doing: Doing | None = None) -> None:
        self._stream, self._tell = stream, tell
        self._doing: Callable[[str | None], None] = doing or (lambda _text: None)
        self._failing: dict[str, str] = {}

    def turn(self, *, now: bool = False) -> int:
        """A flush if one is due (or `now`), and one that was left; how many records they dealt with."""
        done = 0
        self._doing("flushes")
        for flushed in (deliver(self._stream, now=now), resume(self._stream)):
            if flushed:
                self._note(flushed)
                done += flushed.records + flushed.unroutable
        return done

    def problem(self) -> str | None:
        """The tables that fail, until they have taken what waits for them."""
        found = [f"{topic}: {reason}" for topic, reason in self._failing.items()]
        return f"{found[0]}{f' (and {len(found) - 1} more tables)' if found[1:] else ''}" if found else None

    def _note(self, flushed: Flushed) -> None:
        taken = {*flushed.tables, *([UNROUTABLE] if flushed.unroutable else [])}
        self._failing = {topic: why for topic, why in self._failing.items() if topic not in taken}
        self._failing |= flushed.failures
        tables = f"{len(flushed.tables)} table{'s' if len(flushed.tables) != 1 else ''}"
        archived = f"; {flushed.unroutable} dead letters, see them with: leanops dlq list" if flushed.unroutable else ""
        self._tell(DELIVERY, f"{flushed.records:,} events into {tables}{archived}")
        for topic, reason in flushed.failures.items():
            self._tell(DELIVERY, f"{topic}: not taken, and will be tried again: {reason}")
