"""The processor as a background part: one queue's trouble is its own, a wait is seen, the disk stays free."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import DeliveryUnavailableError, QueueUnavailableError
from leanops.domain.event.envelope import Envelope, encoded
from leanops.ports.queue import Outgoing, dead_letter_queue
from leanops.ports.state import WORKERS
from leanops.runtimes.background import queues_of
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.ingest.parts import QUEUE_PATIENCE_S, RETRY_QUEUE_S, ProcessorPart
from leanops.usecases.ingest.room import IngestRules, Room
from leanops.usecases.retry import Patience
from leanops.usecases.topics.registry import add_topic
from leanops.usecases.workers import Doing, Part, Worker
from tests.support.builders import NOW_MS, Clock


class Time:
    """Seconds that pass when somebody sleeps, on the wall clock too."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.now_s = clock, 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.clock.advance(seconds)


class Lake:
    """A delivery stream that takes nothing of a topic while it is `away`."""

    def __init__(self, inner: Any, topic: str) -> None:
        self._inner, self._topic, self.away = inner, topic.encode(), True
        self.refused = 0

    def put(self, records: Sequence[bytes]) -> list[int]:
        if self.away and any(self._topic in record for record in records):
            self.refused += 1
            raise DeliveryUnavailableError("the stream is throttled")
        return list(self._inner.put(records))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def time() -> Time:
    return Time(Clock())


@pytest.fixture
def runtime(tmp_path: Path, time: Time) -> Iterator[Embedded]:
    runtime = Embedded(create_home(tmp_path / "home"), clock=time.clock)
    for topic in ("bills", "orders"):
        add_topic(runtime.platform, topic)
    yield runtime
    runtime.close()


def part_of(runtime: Embedded, sleep: Callable[[float], object], *told: Any, **named: Any) -> ProcessorPart:
    queues = queues_of(runtime, Patience(sleep=sleep))
    return ProcessorPart(queues, runtime.room, runtime.platform.explain, *told, **named)


def send(runtime: Embedded, topic: str, *ids: str) -> None:
    bodies = [encoded(Envelope(topic, name, NOW_MS * 1000, payload="{}")) for name in ids]
    runtime.queue.send([Outgoing(topic, body) for body in bodies])


def test_a_queue_whose_stream_is_away_holds_up_the_others_for_a_minute_once(runtime: Embedded, time: Time) -> None:
    lake: Any = Lake(runtime.buffer, "orders")
    runtime.buffer = lake
    said: list[str] = []
    part = part_of(runtime, time.sleep, lambda _, text: said.append(text), now_s=time)
    send(runtime, "orders", "o1", "o2")
    send(runtime, "bills", "b1")
    assert part.turn() == 1
    assert runtime.buffer.waiting().records == 1
    assert QUEUE_PATIENCE_S <= time.now_s < QUEUE_PATIENCE_S + 30
    assert part.problem() == "orders waits: the stream is throttled"
    assert said == [
        "orders waits: the stream is throttled",
        "orders still waits, its messages are back in the queue: the stream is throttled",
    ]
    refused = lake.refused
    assert [part.turn(), part.turn()] == [0, 0]
    assert lake.refused == refused, "a queue that waits is not read at every turn"
    for number in range(20):
        before = time.now_s
        send(runtime, "bills", f"more-{number}")
        assert part.turn() == 1
        assert time.now_s == before
        time.sleep(RETRY_QUEUE_S)
    assert runtime.queue.depth("orders").visible == 2
    assert runtime.queue.depth(dead_letter_queue("orders")).messages == 0
    lake.away = False
    assert part.turn() == 2
    assert (part.problem(), said[-1]) == (None, "orders resumes")


def test_a_queue_that_another_worker_emptied_waits_no_longer(runtime: Embedded, time: Time) -> None:
    lake: Any = Lake(runtime.buffer, "orders")
    runtime.buffer = lake
    part = part_of(runtime, time.sleep, now_s=time)
    send(runtime, "orders", "o1")
    part.turn()
    assert part.problem() is not None
    [message] = runtime.queue.receive("orders", 10, 60)
    runtime.queue.delete("orders", [message.receipt])
    part.turn()
    assert part.problem() is None


def test_a_wait_is_seen_while_it_lasts(runtime: Embedded, time: Time) -> None:
    lake: Any = Lake(runtime.buffer, "orders")
    runtime.buffer = lake
    doing, seen = Doing(time.clock), []
    platform = runtime.platform

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        worker.beat()
        [stored] = platform.state.rows(WORKERS)
        seen.append((stored.row["doing"], stored.row["doing_since"]))
        lake.away = len(seen) < 3

    part = part_of(runtime, sleep, doing=doing, now_s=time)
    worker = Worker(Part("processor", part.turn, 0.0, doing=doing), platform.state, time.clock, "me", Any)
    send(runtime, "orders", "o1")
    assert part.turn() == 1
    assert set(seen) == {("waiting for orders: the stream is throttled", NOW_MS)}
    background = runtime.background()
    assert background.workers[0].doing == "waiting for orders: the stream is throttled"


def test_a_dead_letter_whose_own_file_cannot_be_written_fails_alone(runtime: Embedded, time: Time) -> None:
    blocked = runtime.home / "files" / "dlq"
    blocked.mkdir(parents=True)
    (blocked / "orders").write_text("a file where a folder belongs")
    part = part_of(runtime, time.sleep, now_s=time)
    runtime.queue.send([Outgoing("orders", b"no envelope")])
    send(runtime, "orders", "o1", "o2")
    send(runtime, "bills", "b1")
    for _ in range(8):
        part.turn()
        time.sleep(301)
    assert runtime.buffer.waiting().records == 3
    assert runtime.queue.depth("orders").messages == 0
    assert runtime.queue.depth(dead_letter_queue("orders")).messages == 1
    assert part.problem() is None


def test_a_claim_that_cannot_be_read_fails_its_message_alone(runtime: Embedded, time: Time) -> None:
    (runtime.home / "files" / "claims").mkdir(parents=True)
    (runtime.home / "files" / "claims" / "link").symlink_to("/etc/hostname")
    said: list[str] = []
    part = part_of(runtime, time.sleep, lambda _, text: said.append(text), now_s=time)
    runtime.queue.send([Outgoing("orders", encoded(Envelope("orders", "o0", NOW_MS * 1000, claim="claims/link")))])
    send(runtime, "orders", "o1")
    assert part.turn() == 2
    assert runtime.buffer.waiting().records == 1
    assert time.now_s == 0


def test_nothing_is_taken_in_while_the_disk_is_nearly_full_and_it_goes_on_by_itself(
    runtime: Embedded, time: Time
) -> None:
    free = 2_000_000_000
    runtime.room = Room(lambda: free, IngestRules(min_free_mb=1_000))
    said: list[str] = []
    part = part_of(runtime, time.sleep, lambda _, text: said.append(text), now_s=time)
    send(runtime, "orders", "o1")
    free = 400_000_000
    reason = "the disk has 400 MB free and min_free_mb is 1,000; it resumes once there is more space"
    assert [part.turn(), part.turn()] == [0, 0]
    assert (part.problem(), said) == (f"intake is stopped: {reason}", [f"intake is stopped: {reason}"])
    with pytest.raises(QueueUnavailableError, match="400 MB free"):
        send(runtime, "orders", "o2")
    free = 1_000_000_000
    send(runtime, "orders", "o2")
    assert part.turn() == 2
    assert part.problem() is None


def test_a_home_that_keeps_no_room_free_asks_no_disk() -> None:
    asked: list[bool] = []

    def free_bytes() -> int:
        asked.append(True)
        return 0

    assert Room(free_bytes, IngestRules(min_free_mb=0)).shortage() is None
    assert asked == []
