"""The bridge's hand, leases and turns: within bounds, counted on the safe side, and waiting for nothing in vain."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from leanops.ports.source import Pulled, PullLimits
from leanops.usecases.bridge.acks import keep_leased
from leanops.usecases.bridge.inflight import BridgeRules, Held, InFlight, Stream
from leanops.usecases.bridge.lanes import Turns
from tests.support.pubsub.inbox import Gate, Inbox, away, bridging, message, run, until


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


class Network(Inbox):
    """Messages that come when every reader has asked, before any has read."""

    def __init__(self, *subscriptions: str) -> None:
        super().__init__(*subscriptions)
        self._readers, self._all = 0, asyncio.Event()

    async def pull(
        self, subscription: str, limits: PullLimits, stopping: asyncio.Event
    ) -> AsyncIterator[Sequence[Pulled]]:
        self.limits = limits
        self._readers += 1
        if self._readers == len(self.waiting):
            self._all.set()
        await self._all.wait()
        async for batch in super().pull(subscription, limits, stopping):
            yield batch


def test_the_hand_stays_within_bounds_however_many_streams_bring_at_once(queue: Gate, tmp_path: Path) -> None:
    limit, blob = 640_000, b"x" * 90_000

    async def work() -> None:
        names, most = [f"topic{number}" for number in range(90)], 0
        inbox = Network(*names)
        queue.judge = away
        for number, name in enumerate(names):
            inbox.publish(name, message(number, blob))
        async with bridging(inbox, queue, tmp_path, mb=limit / 1_000_000) as bridge:
            await until(lambda: bridge.counts.received >= 90)
            most = bridge.in_flight.bytes
            queue.judge = lambda _messages: []
            await until(lambda: set(inbox.acked) == {f"m{number}" for number in range(90)})
        assert most <= 2 * limit + len(blob)

    run(work)


@pytest.mark.parametrize(("limit", "streams", "share"), [(640_000_000, 80, 10_000_000), (64_000_000, 2, 16 << 20)])
def test_a_stream_may_have_its_share_outstanding_and_one_large_message_in_any_case(
    queue: Gate, tmp_path: Path, limit: int, streams: int, share: int
) -> None:
    async def work() -> None:
        inbox = Network(*(f"topic{number}" for number in range(streams)))
        async with bridging(inbox, queue, tmp_path, mb=limit / 1_000_000):
            await until(lambda: sum(inbox.asked.values()) == streams)
        assert inbox.limits.bytes == share

    run(work)


def test_a_waiting_reader_is_let_in_alone_while_the_hand_is_more_than_half_full() -> None:
    async def work() -> None:
        in_flight, let_in = InFlight(BridgeRules(mb=10_000 / 1_000_000)), []
        stream = Stream("orders", "orders")
        [held] = in_flight.take(stream, [message(0, b"x" * 9_500)])

        async def read(name: str) -> None:
            await in_flight.room()
            let_in.append(name)
            in_flight.take(stream, [message(1, b"x" * 5_000)])

        readers = [asyncio.create_task(read(name)) for name in "abc"]
        await asyncio.sleep(0)
        in_flight.let_go([held])
        in_flight.take(stream, [message(2, b"x" * 4_700)])
        await until(lambda: let_in)
        await asyncio.sleep(0)
        assert let_in == ["a"]
        for reader in readers:
            reader.cancel()

    run(work)


def test_a_lease_is_counted_from_before_the_call_that_extends_it() -> None:
    now = 100.0

    class Late:
        async def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
            nonlocal now
            now += 5

    async def work() -> None:
        in_flight = InFlight(BridgeRules(lease_s=60), now=lambda: now)
        [held] = in_flight.take(Stream("orders", "orders"), [message(1)], leased=now - 30)
        leasing = asyncio.create_task(keep_leased(Late(), in_flight))  # type: ignore[arg-type]
        await until(lambda: in_flight.counts.extended)
        leasing.cancel()
        assert held.leased_until == 100 + 60

    run(work)


def test_what_was_on_its_way_while_a_reader_waited_is_extended_at_once() -> None:
    async def work() -> None:
        inbox, in_flight = Inbox("orders"), InFlight(BridgeRules(lease_s=600))
        inbox.publish("orders", message(1))
        leasing = asyncio.create_task(keep_leased(inbox, in_flight))
        in_flight.take(Stream("orders", "orders"), [message(1)], leased=in_flight.now() - 300)
        await until(lambda: inbox.extended == ["m1"], 3)
        leasing.cancel()

    run(work)


def test_many_keys_of_which_messages_went_back_cost_no_more_each() -> None:
    now = 0.0
    turns, stream = Turns(60, lambda: now), Stream("s", "t")
    helds = [Held(stream, message(number, key=f"k{number}"), 1, 0, 0) for number in range(40_000)]
    began = time.process_time()

    for held in helds:
        turns.break_off(held)

    assert time.process_time() - began < 2
    assert turns.is_early(Held(stream, message(-1, key="k7"), 1, 0, 0))
    now = 61.0
    assert not turns.is_early(Held(stream, message(-1, key="k7"), 1, 0, 0))


def test_an_old_copy_before_the_awaited_message_is_not_waited_for(queue: Gate, tmp_path: Path) -> None:
    def of(number: int, ack_id: str) -> Pulled:
        return message(number, key="a")._replace(ack_id=ack_id)

    async def work() -> None:
        inbox = Inbox("orders")
        inbox.redelivers = False
        queue.judge = away
        inbox.publish("orders", of(1, "1"), of(2, "2"))
        async with bridging(inbox, queue, tmp_path, hold_s=0.0):
            await until(lambda: inbox.returned == ["m1", "m2"])
            queue.judge = lambda _messages: []
            inbox.publish("orders", of(3, "3 old"), of(1, "1 new"), of(2, "2 new"), of(3, "3 new"))
            await until(lambda: inbox.acked == ["m1", "m2", "m3"])
            inbox.publish("orders", of(4, "4"))
            await until(lambda: "m4" in inbox.acked + inbox.returned)
        assert inbox.acked == ["m1", "m2", "m3", "m4"]

    run(work)
