"""The bridge on a source in memory and an embedded queue: what is acknowledged, when, and in which order."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import FilesUnavailableError
from leanops.domain.event.envelope import Envelope
from tests.support.pubsub.inbox import Gate, Inbox, away, bridging, message, until


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the coroutine of a test."""
    asyncio.run(work())


def test_a_message_becomes_an_envelope_and_is_acknowledged(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.publish("orders", message(1, '{"name": "ä\x00"}'.encode(), idempotency_key="k1", source="shop"))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: inbox.acked == ["m1"])

    run(work)

    attributes = {"idempotency_key": "k1", "source": "shop"}
    sent = Envelope("orders", "m1", 1_794_729_600_000_001, '{"name": "ä\x00"}', None, None, "k1", attributes)
    assert queue.envelopes("orders") == [sent]


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"\xed\xa0\x80"])
def test_bytes_that_are_not_utf_8_travel_as_bytes(queue: Gate, tmp_path: Path, data: bytes) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.publish("orders", message(1, data))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: inbox.acked)

    run(work)

    [envelope] = queue.envelopes("orders")
    assert (envelope.payload, envelope.data) == (None, data)


def test_an_empty_message_is_an_event(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.publish("orders", message(1, b""))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: inbox.acked)

    run(work)

    assert [(one.payload, one.attributes) for one in queue.envelopes("orders")] == [("", None)]


def test_nothing_is_acknowledged_before_the_queue_has_it(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        may_go, inbox = threading.Event(), Inbox("orders")
        queue.judge = lambda _messages: [] if may_go.wait(20) else [0]
        inbox.publish("orders", message(1))
        async with bridging(inbox, queue, tmp_path) as bridge:
            await until(lambda: bridge.counts.received == 1)
            await asyncio.sleep(0)
            assert (inbox.acked, inbox.returned) == ([], [])
            may_go.set()
            await until(lambda: inbox.acked == ["m1"])

    run(work)


def test_what_gathers_during_a_send_goes_with_the_next_one_whatever_its_subscription(
    queue: Gate, tmp_path: Path
) -> None:
    async def work() -> None:
        names = ["orders", "payments", "customers"]
        may_go, inbox = threading.Event(), Inbox(*names)
        queue.judge = lambda messages: [] if may_go.wait(20) else away(messages)
        inbox.publish("orders", message(0))
        async with bridging(inbox, queue, tmp_path) as bridge:
            await until(lambda: bridge.counts.received == 1)
            await until(lambda: not bridge.waiting)
            for number, name in enumerate(names, start=1):
                inbox.publish(name, message(number))
            await until(lambda: bridge.counts.received == 4)
            may_go.set()
            await until(lambda: len(inbox.acked) == 4)

    run(work)

    assert queue.sends == [1, 3]


@pytest.mark.parametrize(("messages", "size"), [(10, 1 << 20), (1_000, 10 * (512 + 100))])
def test_a_full_hand_stops_reading_and_an_emptied_one_goes_on(
    queue: Gate, tmp_path: Path, messages: int, size: int
) -> None:
    async def work() -> None:
        may_go, inbox = threading.Event(), Inbox("orders", "payments")
        queue.judge = lambda messages: [] if may_go.wait(20) else away(messages)
        for number in range(0, 40, 2):
            name = "orders" if number % 4 else "payments"
            inbox.publish(name, message(number, b"x" * 100), message(number + 1, b"x" * 100))
        async with bridging(inbox, queue, tmp_path, messages=messages, mb=size / 1_000_000) as bridge:
            await until(lambda: bridge.counts.received >= 10)
            for _ in range(100):
                await asyncio.sleep(0)
            # Each of the two streams may have read one batch more.
            assert len(inbox.delivered) <= 12
            may_go.set()
            await until(lambda: len(inbox.acked) == 40)
            assert (bridge.in_flight.bytes, len(bridge.in_flight.held)) == (0, 0)

    run(work)


def test_a_message_larger_than_all_that_may_be_in_flight_passes(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.publish("orders", message(1, b"x" * 5_000))
        inbox.publish("orders", message(2))
        async with bridging(inbox, queue, tmp_path, mb=1_000 / 1_000_000):
            await until(lambda: sorted(inbox.acked) == ["m1", "m2"])

    run(work)


def test_leases_are_extended_while_the_queue_is_away(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox, told = Inbox("orders"), []
        queue.judge = away
        inbox.publish("orders", message(1))
        async with bridging(inbox, queue, tmp_path, lease_s=1, told=told) as bridge:
            await until(lambda: inbox.extended.count("m1") >= 2)
            assert bridge.problem == "the queue does not answer"
            assert (inbox.acked, inbox.returned) == ([], [])
            queue.judge = lambda _messages: []
            await until(lambda: inbox.acked == ["m1"])
            await until(lambda: bridge.problem is None)
        assert [what for what, _ in told[:2]] == ["messages wait for the queue", "the queue takes messages again"]

    run(work)


def test_what_waits_too_long_for_the_queue_is_given_back_and_comes_again(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        queue.judge = away
        inbox.publish("orders", message(1), message(2))
        async with bridging(inbox, queue, tmp_path, hold_s=0.05):
            await until(lambda: {"m1", "m2"} <= set(inbox.returned))
            assert inbox.acked == []
            queue.judge = lambda _messages: []
            await until(lambda: sorted(inbox.acked) == ["m1", "m2"])

    run(work)


def test_of_a_send_taken_in_part_only_the_rest_is_sent_again(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        answers = [[1, 3], [0]]
        queue.judge = lambda _messages: answers.pop(0) if answers else []
        inbox.publish("orders", *(message(number) for number in range(5)))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: len(inbox.acked) == 5)

    run(work)

    assert queue.taken == ["m0", "m2", "m4", "m3", "m1"]
    assert queue.sends == [5, 2, 1]


def test_of_one_ordering_key_whatever_follows_a_failed_one_is_sent_after_it(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        answers = [[1]]
        queue.judge = lambda _messages: answers.pop(0) if answers else []
        inbox.publish("orders", *(message(number, key="a" if number < 4 else "b") for number in range(6)))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: len(inbox.acked) == 6)
        assert [name for name in inbox.acked if name in ("m0", "m1", "m2", "m3")] == ["m0", "m1", "m2", "m3"]

    run(work)

    assert queue.taken == ["m0", "m2", "m3", "m4", "m5", "m1", "m2", "m3"]


def test_of_one_ordering_key_nothing_overtakes_a_message_given_back(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.redelivers = False
        refused = {b"m1"}
        queue.judge = lambda messages: [
            at for at, one in enumerate(messages) if any(b'"%s"' % name in one.body for name in refused)
        ]
        first = [message(number, key="a") for number in range(3)]
        inbox.publish("orders", *first, message(9, key="b"))
        async with bridging(inbox, queue, tmp_path, hold_s=0.0):
            await until(lambda: inbox.returned == ["m1", "m2"])
            await until(lambda: sorted(inbox.acked) == ["m0", "m9"])
            refused.clear()
            inbox.publish("orders", message(3, key="a"))
            await until(lambda: inbox.returned == ["m1", "m2", "m3"])
            inbox.publish("orders", *first[1:], message(3, key="a"))
            await until(lambda: inbox.acked[2:] == ["m1", "m2", "m3"])

    run(work)

    assert queue.taken[-3:] == ["m1", "m2", "m3"]


@pytest.mark.parametrize("hold_s", [0.0, 60.0])
def test_what_waits_behind_a_send_that_fails_stays_behind_it(queue: Gate, tmp_path: Path, hold_s: float) -> None:
    async def work() -> None:
        may_fail, inbox = threading.Event(), Inbox("orders")
        inbox.redelivers = False
        answers = [lambda messages: away(messages) if may_fail.wait(20) else []]
        queue.judge = lambda messages: answers.pop()(messages) if answers else []
        inbox.publish("orders", message(1, key="a"))
        async with bridging(inbox, queue, tmp_path, hold_s=hold_s) as bridge:
            await until(lambda: not answers)
            inbox.publish("orders", message(2, key="a"), message(3, key="b"))
            await until(lambda: bridge.waiting == 2)
            may_fail.set()
            await until(lambda: len(inbox.acked) + len(inbox.returned) == 3)
        if hold_s:
            assert (inbox.acked, inbox.returned) == (["m1", "m2", "m3"], [])
        else:
            assert inbox.returned[:2] == ["m1", "m2"]

    run(work)

    assert queue.taken[:1] != ["m2"]


def test_a_message_over_the_queues_limit_leaves_its_bytes_in_a_file(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.publish("orders", message(1, b"x" * 5_000_000), message(2))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: len(inbox.acked) == 2)

    run(work)

    large, small = queue.envelopes("orders")
    assert (tmp_path / "files" / str(large.claim)).read_bytes() == b"x" * 5_000_000
    assert (large.payload, small.payload) == (None, "{}")


def test_a_file_store_that_is_away_holds_up_no_other_topic(
    queue: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise FilesUnavailableError("no space")

    async def work() -> None:
        inbox = Inbox("orders", "payments")
        inbox.publish("orders", message(1, b"x" * 2_000_000))
        inbox.publish("payments", message(2))
        with monkeypatch.context() as broken:
            broken.setattr("leanops.adapters.files.folder.Folder.put", refuse)
            async with bridging(inbox, queue, tmp_path, drain_s=0.05):
                await until(lambda: inbox.acked == ["m2"])
        assert inbox.returned == ["m1"]

    run(work)


def test_several_events_of_a_topic_may_share_a_queue_message(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders", "payments")
        inbox.publish("orders", *(message(number) for number in range(10)))
        inbox.publish("payments", message(11))
        async with bridging(inbox, queue, tmp_path, events_per_message=4):
            await until(lambda: len(inbox.acked) == 11)

    run(work)

    assert sum(queue.sends) == 4
    assert [one.message_id for one in queue.envelopes("orders")] == [f"m{number}" for number in range(10)]


def test_acks_name_at_most_a_thousand_messages_each(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.publish("orders", *(message(number) for number in range(2_500)))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: len(inbox.acked) == 2_500)
        assert max(inbox.calls) == 1_000

    run(work)
