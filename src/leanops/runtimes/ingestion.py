"""The background parts of the embedded runtime: what `leanops serve` runs, and what `publish --wait` does alone."""

import threading
from collections.abc import Callable
from functools import partial

from leanops.domain.topics import queue_name
from leanops.ports.queue import DEAD
from leanops.runtimes.embedded import Embedded
from leanops.usecases.deliver import Limits, Stream, deliver
from leanops.usecases.ingest import Processor, work
from leanops.usecases.patience import Patience
from leanops.usecases.publish import Landing
from leanops.usecases.topics import list_topics
from leanops.usecases.workers import CYCLES, DELIVERY, PROCESSOR, Part

MESSAGES_PER_RECEIVE = 5_000


def processor_of(runtime: Embedded, patience: Patience) -> Processor:
    """The processor of this home."""
    platform = runtime.platform

    def topic_of(queue: str) -> str:
        return next((topic.name for topic in list_topics(platform) if queue_name(topic.name) == queue), queue)

    return Processor(
        delivery=runtime.buffer,
        files=runtime.files,
        state=platform.state,
        clock=platform.clock,
        topic_of=topic_of,
        idempotency_hours=runtime.settings.idempotency_hours,
        patience=patience,
        step=platform.step,
    )


def stream_of(runtime: Embedded) -> Stream:
    """The delivery stream of this home."""
    limits = Limits(runtime.settings.delivery_mb * 1_000_000, runtime.settings.delivery_s)
    return Stream(runtime.platform, runtime.buffer, runtime.files, limits)


def process(runtime: Embedded, processor: Processor) -> int:
    """One receive from every queue that has messages; how many events went on."""
    events = 0
    for name in runtime.queue.ready():
        if not name.endswith(DEAD):
            done = work(processor, runtime.queue, name, MESSAGES_PER_RECEIVE)
            events += len(done.done) + len(done.failed) if done else 0
    return events


def flush(stream: Stream, *, now: bool = False) -> int:
    """One flush if it is due; how many records it landed."""
    done = deliver(stream, now=now)
    return done.records + done.unroutable if done else 0


def parts_of(runtime: Embedded, stopping: threading.Event, cycle: Callable[[], int]) -> list[Part]:
    """Every background part."""
    processor = processor_of(runtime, Patience(stopping.is_set, stopping.wait))
    stream = stream_of(runtime)
    return [
        Part(PROCESSOR, partial(process, runtime, processor), pause_s=0.2),
        Part(DELIVERY, partial(flush, stream), pause_s=0.5),
        Part(CYCLES, cycle, pause_s=1.0),
    ]


def landing_of(runtime: Embedded) -> Landing:
    """How `publish --wait` brings its events to RAW."""
    processor, stream = processor_of(runtime, Patience()), stream_of(runtime)
    return Landing(
        platform=runtime.platform,
        queue=runtime.queue,
        buffer=runtime.buffer,
        process=partial(process, runtime, processor),
        flush=partial(flush, stream, now=True),
    )
