"""The background parts of the embedded runtime: what `leanops serve` runs, and what `publish --wait` does alone."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from leanops.domain.breaker import State
from leanops.domain.errors import DeliveryUnavailableError
from leanops.domain.table.outcome import Outcome
from leanops.ports.queue import DEAD
from leanops.ports.state import IDEMPOTENCY_KEYS
from leanops.runtimes.dead_letters import turn as clear_dead_letters
from leanops.runtimes.embedded import Embedded
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.ingest.deliver import UNROUTABLE, Flushed, Limits, Stream, deliver, resume
from leanops.usecases.ingest.known_topics import Registered
from leanops.usecases.ingest.process import Processor, work
from leanops.usecases.ingest.publish import Landing
from leanops.usecases.retry import Patience
from leanops.usecases.schemas.watch import SchemaPart
from leanops.usecases.workers import CYCLES, DEAD_LETTERS, DELIVERY, PROCESSOR, SCHEMAS, Doing, Part, Tell, harmless

MESSAGES_PER_RECEIVE = 5_000
QUEUE_PATIENCE_S = 60.0
"""How long an outage is waited out with a queue's messages received, while the other queues wait with it."""
TOLD_AFTER_S = 5.0
RETRY_QUEUE_S = 15.0


def processor_of(runtime: Embedded, patience: Patience) -> Processor:
    """The processor of this home."""
    platform = runtime.platform
    return Processor(
        delivery=runtime.buffer,
        files=runtime.files,
        state=platform.state,
        clock=platform.clock,
        topic_of=Registered(platform.state, platform.clock).topic_of,
        idempotency_hours=runtime.settings.idempotency_hours,
        patience=patience,
        step=platform.step,
        explain=platform.explain,
    )


def stream_of(runtime: Embedded) -> Stream:
    """The delivery stream of this home."""
    limits = Limits(runtime.settings.delivery_mb * 1_000_000, runtime.settings.delivery_s)
    return Stream(runtime.platform, runtime.buffer, runtime.files, limits)


def breakers_of(runtime: Embedded) -> Breakers:
    """The circuit breakers of this home, as one worker sees them."""
    return Breakers(runtime.platform.state, runtime.platform.clock, runtime.settings.breaker_rules())


def process(runtime: Embedded, processor: Processor, breakers: Breakers, tell: Tell = lambda _part, _text: None) -> int:
    """One receive from every queue that has messages; how many there were."""
    return sum(_receive(runtime, processor, breakers, name, tell) for name in _queues(runtime))


def _queues(runtime: Embedded) -> list[str]:
    return [name for name in runtime.queue.ready() if not name.endswith(DEAD)]


def _receive(runtime: Embedded, processor: Processor, breakers: Breakers, name: str, tell: Tell) -> int:
    """One receive from a queue, unless its breaker is open; how many messages there were."""
    at_most = breakers.may_receive(name, MESSAGES_PER_RECEIVE)
    result = work(processor, runtime.queue, name, at_most) if at_most else None
    if result is None:
        return 0
    after = breakers.report(name, result.events + result.repeats, len(result.failed) + result.archived)
    if after.state is State.OPEN:
        tell(PROCESSOR, f"{name}: stopped because {after.reason}; see it with: leanops breaker show")
    if result.archived:
        tell(PROCESSOR, f"{name}: {result.archived} events put aside; see them with: leanops dlq list")
    if result.forgotten:
        tell(PROCESSOR, f"{name}: {result.forgotten} delivered events were not remembered; repeats of them will land")
    for reason in set(result.reasons):
        tell(PROCESSOR, f"{name}: a message will be tried again: {reason}")
    return len(result.done) + len(result.failed)


class ProcessorPart:
    """The processor as a part: an outage holds up its own queue, and the others once, for a minute at most."""

    def __init__(
        self,
        runtime: Embedded,
        patience: Patience,
        tell: Tell = lambda _part, _text: None,
        doing: Doing | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtime, self._tell, self._now_s = runtime, tell, now_s
        self._doing: Callable[[str | None], None] = doing or (lambda _text: None)
        self._patience, self._breakers = patience, breakers_of(runtime)
        self._processor = processor_of(runtime, patience)
        self._waiting: dict[str, tuple[str, float]] = {}
        """Queue → why it waits, and when it is tried again."""
        self._told: set[str] = set()
        self._short: str | None = None

    def turn(self) -> int:
        """One receive from every queue that has messages and is not waiting; how many messages there were."""
        short = self._runtime.room.shortage()
        if short and not self._short:
            self._tell(PROCESSOR, f"nothing is received: {short}")
        self._short = short
        if short:
            return 0
        queues = _queues(self._runtime)
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
        patience = self._patience.within(0 if why else QUEUE_PATIENCE_S, self._now_s)
        began_s = self._now_s()
        patience = replace(patience, on_wait=lambda outage: self._note(name, outage, began_s))
        try:
            did = _receive(self._runtime, replace(self._processor, patience=patience), self._breakers, name, self._tell)
        except Exception as outage:  # noqa: BLE001 - a queue that fails does not stop the others
            reason = self._runtime.platform.explain(outage)
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

    def __init__(self, stream: Stream, tell: Tell = lambda _part, _text: None, doing: Doing | None = None) -> None:
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
        aside = f"; {flushed.unroutable} put aside, see them with: leanops dlq list" if flushed.unroutable else ""
        self._tell(DELIVERY, f"{flushed.records:,} events into {tables}{aside}")
        for topic, reason in flushed.failures.items():
            self._tell(DELIVERY, f"{topic}: not taken, and will be tried again: {reason}")


class _Schedule:
    """A cycle every so many seconds, counted from start to start; the first at once."""

    def __init__(self, runtime: Embedded, tell: Tell, doing: Doing) -> None:
        self._runtime, self._tell, self._doing = runtime, tell, doing
        self._next = time.monotonic()

    def turn(self) -> int:
        """Run a cycle if its time has come; how many topics had work."""
        if time.monotonic() < self._next:
            return 0
        self._next = time.monotonic() + self._runtime.settings.cycle_s
        self._doing("runs a cycle")
        from leanops.usecases.cycle.run import run_cycle

        platform = self._runtime.platform
        platform.state.purge(IDEMPOTENCY_KEYS, "expires_at", platform.now_ms())
        # Operations are finished by the part of schemas: one of hours delays no cycle.
        results = run_cycle(platform, finish=False)
        for result in results:
            if result.layers or result.failure or result.outcome is Outcome.LOCKED:
                self._tell(CYCLES, result.sentence())
        return sum(bool(result.layers) for result in results)


def parts_of(runtime: Embedded, stopping: threading.Event, tell: Tell) -> list[Part]:
    """Every background part, by what it is called; none of them ends because a line cannot be written."""
    tell = harmless(tell)
    doing = {name: Doing(runtime.platform.clock) for name in (PROCESSOR, DELIVERY, CYCLES)}
    processor = ProcessorPart(runtime, Patience(stopping.is_set, stopping.wait), tell, doing[PROCESSOR])
    delivery, schemas = DeliveryPart(stream_of(runtime), tell, doing[DELIVERY]), SchemaPart(runtime.platform, tell)
    return [
        Part(PROCESSOR, processor.turn, pause_s=0.2, problem=processor.problem, doing=doing[PROCESSOR]),
        Part(DELIVERY, delivery.turn, pause_s=0.5, problem=delivery.problem, doing=doing[DELIVERY]),
        Part(DEAD_LETTERS, partial(clear_dead_letters, runtime, tell), pause_s=5.0),
        Part(SCHEMAS, schemas.turn, pause_s=2.0, problem=schemas.problem),
        Part(CYCLES, _Schedule(runtime, tell, doing[CYCLES]).turn, pause_s=1.0, doing=doing[CYCLES]),
    ]


def landing_of(runtime: Embedded) -> Landing:
    """How `publish --wait` brings its events to RAW."""
    delivery, processor = DeliveryPart(stream_of(runtime)), ProcessorPart(runtime, Patience())

    def process() -> int:
        done = processor.turn()
        if processor.problem():
            raise DeliveryUnavailableError(f"the events wait in the queue: {processor.problem()}")
        return done

    def flush() -> int:
        done = delivery.turn(now=True)
        if delivery.problem():
            raise DeliveryUnavailableError(f"the events wait, because a table takes none: {delivery.problem()}")
        return done

    return Landing(
        platform=runtime.platform,
        queue=runtime.queue,
        buffer=runtime.buffer,
        process=process,
        flush=flush,
        stopped=breakers_of(runtime).why_stopped,
    )
