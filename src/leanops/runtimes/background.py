"""The background parts of a runtime: what `leanops serve` runs, and what brings events to RAW without it."""

import threading
from functools import partial

from leanops.runtimes.runtime import Runtime
from leanops.usecases.cycle.schedule import Schedule
from leanops.usecases.dlq.drain import turn as clear_dead_letters
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.ingest.deliver import Stream
from leanops.usecases.ingest.known_topics import Registered
from leanops.usecases.ingest.parts import DeliveryPart, ProcessorPart, Queues
from leanops.usecases.ingest.process import Processor
from leanops.usecases.ingest.publish import Landing
from leanops.usecases.retry import Patience
from leanops.usecases.schemas.watch import SchemaPart
from leanops.usecases.workers import CYCLES, DEAD_LETTERS, DELIVERY, PROCESSOR, SCHEMAS, Doing, Part, Tell, harmless


def queues_of(runtime: Runtime, patience: Patience) -> Queues:
    """The queues of a runtime, with a processor as patient as this."""
    platform = runtime.platform
    processor = Processor(
        delivery=runtime.buffer,
        files=runtime.files,
        state=platform.state,
        clock=platform.clock,
        topic_of=Registered(platform.state, platform.clock).topic_of,
        rules=runtime.settings.ingest,
        patience=patience,
        step=platform.step,
        explain=platform.explain,
    )
    return Queues(runtime.queue, processor, breakers_of(runtime))


def stream_of(runtime: Runtime) -> Stream:
    """The delivery stream of a runtime."""
    return Stream(runtime.platform, runtime.buffer, runtime.files, runtime.settings.delivery)


def breakers_of(runtime: Runtime) -> Breakers:
    """The circuit breakers of a runtime, as one worker sees them."""
    return Breakers(runtime.platform.state, runtime.platform.clock, runtime.settings.breaker)


def parts_of(runtime: Runtime, stopping: threading.Event, tell: Tell) -> list[Part]:
    """Every background part; none of them ends because a line cannot be written."""
    tell, platform = harmless(tell), runtime.platform
    doing = {name: Doing(platform.clock) for name in (PROCESSOR, DELIVERY, CYCLES)}
    queues = queues_of(runtime, Patience(stopping.is_set, stopping.wait))
    processor = ProcessorPart(queues, runtime.room, platform.explain, tell, doing[PROCESSOR])
    delivery, schemas = DeliveryPart(stream_of(runtime), tell, doing[DELIVERY]), SchemaPart(platform, tell)
    cycles = Schedule(platform, runtime.settings.pipeline.cycle_s, tell, doing[CYCLES])
    dead_letters = partial(clear_dead_letters, platform, runtime.queue, runtime.files, tell)
    return [
        Part(PROCESSOR, processor.turn, pause_s=0.2, problem=processor.problem, doing=doing[PROCESSOR]),
        Part(DELIVERY, delivery.turn, pause_s=0.5, problem=delivery.problem, doing=doing[DELIVERY]),
        Part(DEAD_LETTERS, dead_letters, pause_s=5.0),
        Part(SCHEMAS, schemas.turn, pause_s=2.0, problem=schemas.problem),
        Part(CYCLES, cycles.turn, pause_s=1.0, doing=doing[CYCLES]),
    ]


def landing_of(runtime: Runtime) -> Landing:
    """How a command brings events to RAW where no `serve` does."""
    processor = ProcessorPart(queues_of(runtime, Patience()), runtime.room, runtime.platform.explain)
    return Landing(runtime.platform, runtime.buffer, processor, DeliveryPart(stream_of(runtime)))
