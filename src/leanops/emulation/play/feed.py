"""Events from the generator to RAW: a separate process makes and sends them, this one processes and delivers them."""

import gc
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from functools import cache, partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING

from leanops.domain.errors import EmulationError, QueueStoppedError
from leanops.domain.event.envelope import Envelope
from leanops.domain.words import counted
from leanops.emulation import ledger
from leanops.emulation.events.generator import Message
from leanops.emulation.play.crew import end_with_parent
from leanops.emulation.scenario import PUBSUB, Scenario
from leanops.ports.queue import DEAD
from leanops.runtimes.background import queues_of, stream_of
from leanops.runtimes.embedded import Embedded
from leanops.usecases.dlq.drain import archive_and_drain
from leanops.usecases.ingest.pack import send_events
from leanops.usecases.ingest.parts import DeliveryPart, Queues
from leanops.usecases.retry import Patience

if TYPE_CHECKING:
    from leanops.emulation.play.crossing import Crossing

CHUNKS_PER_PART = 5
IDLE_S, PATIENCE_S = 0.02, 180.0
"""A message that failed is hidden for about a minute."""
Progress = Callable[[int], None]


class Feed:
    """Publishes events and lands them; the process that makes the events is kept for the next phase."""

    def __init__(self, runtime: Embedded) -> None:
        self._runtime = runtime
        self._crossing: Crossing | None = None
        # A fork of a process with threads and a JVM may hang.
        self._makers = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin_making)

    def close(self) -> None:
        self._makers.shutdown(cancel_futures=True)
        if self._crossing:
            self._crossing.close()

    def run(self, scenario: Scenario, phase: str, progress: Progress = lambda _done: None) -> int:
        """Publish the events of a phase and land them all in RAW; returns their number."""
        home, crossing = self._runtime.home, self._bridged(scenario)
        made = [
            self._makers.submit(make_part, home, scenario, phase, stream.topic, first)
            for stream, first in scenario.turns(phase, CHUNKS_PER_PART)
        ]
        land(self._runtime, made, progress)
        events = sum(part.result() for part in made)
        if crossing:
            crossing.wait(list(scenario.names()), lambda left: progress(events - left))
        return events

    def _bridged(self, scenario: Scenario) -> "Crossing | None":
        """The bridge, which runs from the first phase on, if events have to cross one."""
        if scenario.through == PUBSUB and self._crossing is None:
            from leanops.emulation.play.crossing import Crossing
            from leanops.emulation.play.pubsub import prepare

            if len(scenario.events) == 1:
                prepare(scenario.names(), self._runtime.settings.bridge.subscription)
            self._crossing = Crossing(self._runtime, partial(land, self._runtime))
        return self._crossing


def _begin_making() -> None:
    """Prepare a process that makes events."""
    parent = parent_process()
    assert parent is not None
    end_with_parent(parent.sentinel)
    # Events are many and hold no cycles: collecting them is a fifth of the work.
    gc.disable()


def make_part(home: Path, scenario: Scenario, phase: str, topic: str, first: int) -> int:
    """Make the chunks from the first on, send them and write them into the ledger; returns the number of events."""
    runtime = _opened(home)
    stream = scenario.stream(topic, phase)
    chunks = range(first, min(first + CHUNKS_PER_PART, stream.chunks))
    made = [message for index in chunks for message in stream.chunk(index)]
    ids = None
    if scenario.through == PUBSUB:
        from leanops.emulation.play.pubsub import publish

        made, ids = publish(topic, made)
    else:
        send(runtime, topic, made)
    ledger.write(home, topic, stream.profile, f"{phase}-{first:05d}", made, ids)
    return len(made)


def send(runtime: Embedded, topic: str, made: Sequence[Message]) -> None:
    """Send messages to the queue of a topic."""
    envelopes = (
        Envelope(
            topic,
            message.message_id,
            message.publish_us,
            payload=message.text,
            idempotency_key=message.idempotency_key,
            attributes=json.loads(message.attributes) if message.attributes else None,
            ingestion_ts=message.ingestion_ms,
        )
        for message in made
    )
    send_events(runtime.queue, runtime.files, runtime.platform.clock, envelopes)


@cache
def _opened(home: Path) -> Embedded:
    """The home, which a process opens once."""
    return Embedded(home)


def land(
    runtime: Embedded,
    made: Sequence["Future[int]"] = (),
    progress: Progress = lambda _done: None,
    patience_s: float = PATIENCE_S,
) -> None:
    """Process and deliver until every part is made and everything in the queues is in RAW; raise if it stays there."""
    delivery, landed, stopping = DeliveryPart(stream_of(runtime)), 0, threading.Event()
    with ThreadPoolExecutor(1, "processor") as pool:
        processing = pool.submit(_process, runtime, made, stopping, patience_s)
        try:
            while not processing.done():
                landed += delivery.turn()
                progress(landed)
                wait([processing], IDLE_S)
        finally:
            stopping.set()
    processing.result()
    while done := delivery.turn(now=True):
        landed += done
        progress(landed)
    if problem := delivery.problem():
        raise EmulationError(f"a table accepts none of its events: {problem}")
    if left := runtime.background().delivery.claimed:
        raise EmulationError(f"a worker has claimed {counted(left, 'record')} of the delivery buffer and lands none")
    archive_and_drain(runtime.platform, runtime.queue, runtime.files)


def _process(runtime: Embedded, made: Sequence["Future[int]"], stopping: threading.Event, patience_s: float) -> None:
    """Process until every part is made and the queues are empty; raise if their messages stay in them."""
    queues = queues_of(runtime, Patience())
    moved = time.monotonic()
    while not stopping.is_set():
        is_made = all(part.done() for part in made)
        if queues.process():
            moved = time.monotonic()
            continue
        left = _queued(queues) if is_made else 0
        if is_made and not left:
            return
        if is_made and time.monotonic() > moved + patience_s:
            raise EmulationError(f"{counted(left, 'message')} stayed in the queues for {patience_s:.0f} s")
        time.sleep(IDLE_S)


def _queued(queues: Queues) -> int:
    """The number of messages that wait, hidden ones included; raises QueueStoppedError if a queue is not read."""
    depths = {name: depth.messages for name, depth in queues.queue.depths().items() if not name.endswith(DEAD)}
    for name, waiting in depths.items():
        if waiting and (reason := queues.breakers.why_stopped(name)):
            raise QueueStoppedError(name, reason)
    return sum(depths.values())
