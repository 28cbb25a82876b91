"""Events from the generator to RAW: a process of its own makes and sends them, this one processes and delivers."""

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from leanops.domain.envelope import Envelope
from leanops.emulation import ledger
from leanops.emulation.generator import Message
from leanops.emulation.scenario import PUBSUB, Scenario
from leanops.runtimes.dead_letters import bury_and_drain
from leanops.runtimes.embedded import Embedded
from leanops.runtimes.ingestion import DeliveryPart, breakers_of, process, processor_of, stream_of
from leanops.usecases.patience import Patience
from leanops.usecases.publish import EVENTS_PER_SEND
from leanops.usecases.send import messages, send_all

if TYPE_CHECKING:
    from leanops.emulation.crossing import Crossing

CHUNKS_PER_PART = 5
IDLE_S = 0.02
Progress = Callable[[int], None]


class Feed:
    """Publishes and lands; the process that makes the events is kept for the next phase."""

    def __init__(self, runtime: Embedded) -> None:
        self._runtime = runtime
        self._crossing: Crossing | None = None
        # A fork of a process with threads and a JVM may hang. Events are many and hold no cycles: collecting them is
        # a fifth of the work.
        self._makers = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=gc.disable)

    def close(self) -> None:
        self._makers.shutdown(cancel_futures=True)
        if self._crossing:
            self._crossing.close()

    def run(self, scenario: Scenario, phase: str, progress: Progress = lambda _done: None) -> int:
        """Publish the events of a phase and bring them all to RAW; how many there were."""
        home, crossing = self._runtime.home, self._bridged(scenario)
        made = [self._makers.submit(make_part, home, scenario, phase, *part) for part in _parts(scenario, phase)]
        land(self._runtime, made, progress)
        events = sum(one.result() for one in made)
        if crossing:
            crossing.wait(list(scenario.names()), lambda left: progress(events - left))
        return events

    def _bridged(self, scenario: Scenario) -> "Crossing | None":
        """The bridge, at work from the first phase on, where events have to cross one."""
        if scenario.through == PUBSUB and self._crossing is None:
            from leanops.emulation.crossing import Crossing
            from leanops.emulation.pubsub import prepare

            if len(scenario.events) == 1:
                prepare(scenario.names(), self._runtime.settings.bridge_subscription)
            self._crossing = Crossing(self._runtime, partial(land, self._runtime))
        return self._crossing


def _parts(scenario: Scenario, phase: str) -> list[tuple[str, int, int]]:
    """Topic and chunks of each piece of work; the topics take turns."""
    chunks = {topic: scenario.stream(topic, phase).chunks for topic in scenario.names()}
    longest = max(chunks.values())
    return [
        (topic, first, min(first + CHUNKS_PER_PART, count))
        for first in range(0, longest, CHUNKS_PER_PART)
        for topic, count in chunks.items()
        if first < count
    ]


def make_part(home: Path, scenario: Scenario, phase: str, topic: str, first: int, last: int) -> int:
    """Make some chunks, send them on their way and write them into the ledger; how many events they were."""
    runtime = _opened(home)
    stream = scenario.stream(topic, phase)
    made = [message for index in range(first, last) for message in stream.chunk(index)]
    ids = None
    if scenario.through == PUBSUB:
        from leanops.emulation.pubsub import publish

        ids = publish(topic, made)
    else:
        send(runtime, topic, made)
    ledger.write(home, topic, stream.profile, f"{phase}-{first:05d}", made, ids)
    return len(made)


def send(runtime: Embedded, topic: str, made: Sequence[Message]) -> None:
    """Messages into the topic's queue."""
    rest: Iterator[Envelope] = (
        Envelope(
            topic,
            one.message_id,
            one.publish_us,
            payload=one.text,
            idempotency_key=one.idempotency_key,
            attributes=json.loads(one.attributes) if one.attributes else None,
            ingestion_ts=one.ingestion_ms,
        )
        for one in made
    )
    while envelopes := list(islice(rest, EVENTS_PER_SEND)):
        packed = messages(runtime.queue, runtime.files, runtime.platform.clock, envelopes)
        send_all(runtime.queue, [message for message, _ in packed])


_homes: dict[Path, Embedded] = {}


def _opened(home: Path) -> Embedded:
    """The home as this process has it open."""
    if home not in _homes:
        _homes[home] = Embedded(home)
    return _homes[home]


def land(runtime: Embedded, made: Sequence["Future[int]"] = (), progress: Progress = lambda _done: None) -> None:
    """Process and deliver until every part is made and all that is in the queues is in RAW."""
    processor, breakers = processor_of(runtime, Patience()), breakers_of(runtime)
    delivery, landed, is_processed = DeliveryPart(stream_of(runtime)), 0, threading.Event()
    failure: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                is_made = all(one.done() for one in made)
                if process(runtime, processor, breakers):
                    continue
                if is_made:
                    return
                time.sleep(IDLE_S)
        except BaseException as wrong:  # noqa: BLE001 - raised again where somebody waits for it
            failure.append(wrong)
        finally:
            is_processed.set()

    worker = threading.Thread(target=work, name="processor")
    worker.start()
    while not is_processed.is_set():
        landed += delivery.turn()
        progress(landed)
        is_processed.wait(IDLE_S)
    worker.join()
    if failure:
        raise failure[0]
    while done := delivery.turn(now=True):
        landed += done
        progress(landed)
    bury_and_drain(runtime)
