"""The background parts of the embedded runtime: what `leanops serve` runs, and what `publish --wait` does alone."""

import threading
import time
from functools import partial

from leanops.domain.breaker import State
from leanops.domain.errors import DeliveryUnavailableError
from leanops.domain.planning import Outcome
from leanops.ports.queue import DEAD
from leanops.ports.state import IDEMPOTENCY_KEYS
from leanops.runtimes.dead_letters import turn as clear_dead_letters
from leanops.runtimes.embedded import Embedded
from leanops.runtimes.schemas import SchemaPart
from leanops.usecases.breaker import Breakers
from leanops.usecases.deliver import Flushed, Limits, Stream, deliver, resume
from leanops.usecases.ingest import Processor, work
from leanops.usecases.patience import Patience
from leanops.usecases.publish import Landing
from leanops.usecases.registered import Registered
from leanops.usecases.workers import CYCLES, DEAD_LETTERS, DELIVERY, PROCESSOR, SCHEMAS, Part, Tell

MESSAGES_PER_RECEIVE = 5_000


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
    messages = 0
    for name in runtime.queue.ready():
        if name.endswith(DEAD):
            continue
        at_most = breakers.may_receive(name, MESSAGES_PER_RECEIVE)
        result = work(processor, runtime.queue, name, at_most) if at_most else None
        if result is None:
            continue
        after = breakers.report(name, result.events + result.repeats, len(result.failed) + result.buried)
        if after.state is State.OPEN:
            tell(PROCESSOR, f"{name}: stopped because {after.reason}; see it with: leanops breaker show")
        messages += len(result.done) + len(result.failed)
        if result.buried:
            tell(PROCESSOR, f"{name}: {result.buried} events put aside; see them with: leanops dlq list")
        for reason in set(result.reasons):
            tell(PROCESSOR, f"{name}: a message will be tried again: {reason}")
    return messages


class DeliveryPart:
    """The delivery stream as a part: it remembers which tables fail."""

    def __init__(self, stream: Stream, tell: Tell = lambda _part, _text: None) -> None:
        self._stream, self._tell = stream, tell
        self._failing: dict[str, str] = {}

    def turn(self, *, now: bool = False) -> int:
        """A flush if one is due (or `now`), and one that was left; how many records they dealt with."""
        done = 0
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
        self._failing = {topic: why for topic, why in self._failing.items() if topic not in flushed.tables}
        self._failing |= flushed.failures
        tables = f"{len(flushed.tables)} table{'s' if len(flushed.tables) != 1 else ''}"
        aside = f"; {flushed.unroutable} put aside, see them with: leanops dlq list" if flushed.unroutable else ""
        self._tell(DELIVERY, f"{flushed.records:,} events into {tables}{aside}")
        for topic, reason in flushed.failures.items():
            self._tell(DELIVERY, f"{topic}: its table takes nothing, its events wait: {reason}")


class _Schedule:
    """A cycle every so many seconds, counted from start to start; the first at once."""

    def __init__(self, runtime: Embedded, tell: Tell) -> None:
        self._runtime, self._tell = runtime, tell
        self._next = time.monotonic()

    def turn(self) -> int:
        """Run a cycle if its time has come; how many topics had work."""
        if time.monotonic() < self._next:
            return 0
        self._next = time.monotonic() + self._runtime.settings.cycle_s
        from leanops.usecases.run_cycle import run_cycle

        platform = self._runtime.platform
        platform.state.purge(IDEMPOTENCY_KEYS, "expires_at", platform.now_ms())
        # Operations are finished by the part of schemas: one of hours delays no cycle.
        results = run_cycle(platform, finish=False)
        for result in results:
            if result.layers or result.failure or result.outcome is Outcome.LOCKED:
                self._tell(CYCLES, result.sentence())
        return sum(bool(result.layers) for result in results)


def parts_of(runtime: Embedded, stopping: threading.Event, tell: Tell) -> list[Part]:
    """Every background part, by what it is called."""
    processor = processor_of(runtime, Patience(stopping.is_set, stopping.wait))
    delivery, schemas = DeliveryPart(stream_of(runtime), tell), SchemaPart(runtime.platform, tell)
    return [
        Part(PROCESSOR, partial(process, runtime, processor, breakers_of(runtime), tell), pause_s=0.2),
        Part(DELIVERY, delivery.turn, pause_s=0.5, problem=delivery.problem),
        Part(DEAD_LETTERS, partial(clear_dead_letters, runtime, tell), pause_s=5.0),
        Part(SCHEMAS, schemas.turn, pause_s=2.0, problem=schemas.problem),
        Part(CYCLES, _Schedule(runtime, tell).turn, pause_s=1.0),
    ]


def landing_of(runtime: Embedded) -> Landing:
    """How `publish --wait` brings its events to RAW."""
    delivery = DeliveryPart(stream_of(runtime))

    def flush() -> int:
        done = delivery.turn(now=True)
        if delivery.problem():
            raise DeliveryUnavailableError(f"the events wait, because a table takes none: {delivery.problem()}")
        return done

    return Landing(
        platform=runtime.platform,
        queue=runtime.queue,
        buffer=runtime.buffer,
        process=partial(process, runtime, processor_of(runtime, Patience()), breakers_of(runtime)),
        flush=flush,
        stopped=breakers_of(runtime).why_stopped,
    )
