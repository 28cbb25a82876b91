"""The bridge on the emulator: every byte arrives, nothing is acknowledged before it is safe, keys stay in order."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.files.folder import Folder
from leanops.adapters.gcp.subscriber import PubSub
from leanops.adapters.sql.state import SqlState
from leanops.domain.errors import QueueUnavailableError
from leanops.domain.event.envelope import micros
from leanops.domain.event.shards import Shard
from leanops.ports.queue import Outgoing
from leanops.usecases.bridge.bridge import Bridge
from leanops.usecases.bridge.target import Target
from tests.support.pubsub.cloud import Cloud, full_name
from tests.support.pubsub.inbox import RULES, Gate, until


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


@asynccontextmanager
async def bridging(
    cloud: Cloud, queue: Gate, folder: Path, identities: Sequence[str], **rules: Any
) -> AsyncIterator[Bridge]:
    """A bridge on the emulator, drained in the end."""
    source = PubSub(cloud.address)
    state = SqlState(f"sqlite:///{folder}/state.db")
    target = Target(queue, Folder(folder / "files"), state, lambda: datetime.now(UTC), RULES.events_per_message)
    topics = {full_name(identity): identity for identity in identities}
    bridge = Bridge(source, target, topics, replace(RULES, lease_s=10, **rules), lambda *_, **__: None)
    stopping = asyncio.Event()
    running = asyncio.create_task(bridge.run(stopping))
    try:
        yield bridge
    finally:
        stopping.set()
        await running
        await source.close()
        state.close()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_events_arrive_byte_for_byte(cloud: Cloud, queue: Gate, tmp_path: Path) -> None:
    orders = cloud.subscription("orders")
    payloads = [b'{"a": "\xc3\xa4\xf0\x9f\x92\xb6"}', b"\xff\xfe\x80", b"nul \x00 inside", b"\x00", b"x" * 5_000_000]
    published = cloud.publish(orders, payloads, idempotency_key="k", note="ä\n\"'")
    [empty] = cloud.publish(orders, [b""], only="attributes")

    async def work() -> None:
        async with bridging(cloud, queue, tmp_path, [orders]) as bridge:
            await until(lambda: bridge.counts.acked == 6)

    run(work)

    found = {envelope.message_id: envelope for envelope in queue.envelopes(orders)}
    assert set(found) == {*published, empty}
    texts = [found[name].payload for name in published]
    assert texts == [payloads[0].decode(), None, "nul \x00 inside", "\x00", None]
    assert found[published[1]].data == payloads[1]
    claim = found[published[4]].claim
    assert claim is not None
    assert (tmp_path / "files" / claim).read_bytes() == payloads[4]
    assert (found[empty].payload, found[empty].attributes) == ("", {"only": "attributes"})
    assert all(found[name].idempotency_key == "k" for name in published)
    assert all(found[name].attributes == {"idempotency_key": "k", "note": "ä\n\"'"} for name in published)
    assert all(abs(one.publish_time - micros(datetime.now(UTC))) < 600_000_000 for one in found.values())
    assert cloud.left(orders) == []


def test_while_the_queue_refuses_nothing_is_acknowledged_and_all_of_it_comes_again(
    cloud: Cloud, queue: Gate, tmp_path: Path
) -> None:
    def away(_messages: Sequence[Outgoing]) -> list[int]:
        raise QueueUnavailableError("the queue does not answer")

    orders = cloud.subscription("orders")
    published = cloud.publish(orders, [b"%d" % number for number in range(250)])
    queue.judge = away

    async def refused() -> None:
        async with bridging(cloud, queue, tmp_path, [orders], drain_s=0.1) as bridge:
            await until(lambda: bridge.counts.received == 250)
            await until(lambda: queue.sends == [] and bridge.problem)
        assert (bridge.counts.acked, bridge.counts.returned) == (0, 250)

    async def taken() -> None:
        async with bridging(cloud, queue, tmp_path, [orders]) as bridge:
            await until(lambda: bridge.counts.acked >= 250)

    run(refused)
    queue.judge = lambda _messages: []
    run(taken)

    assert {one.message_id for one in queue.envelopes(orders)} == set(published)
    assert cloud.left(orders) == []


def test_messages_are_held_beyond_their_deadline_without_coming_twice(
    cloud: Cloud, queue: Gate, tmp_path: Path
) -> None:
    """The one test that has to outlast a lease: Pub/Sub knows none shorter than ten seconds."""

    def away(_messages: Sequence[Outgoing]) -> list[int]:
        raise QueueUnavailableError("the queue does not answer")

    orders = cloud.subscription("orders")
    cloud.publish(orders, [b"1", b"2"])
    queue.judge = away

    async def work() -> None:
        async with bridging(cloud, queue, tmp_path, [orders]) as bridge:
            await until(lambda: bridge.in_flight.oldest_s > 14, seconds=40)
            queue.judge = lambda _messages: []
            await until(lambda: bridge.counts.acked == 2)
            assert (bridge.counts.received, bridge.counts.extended >= 4) == (2, True)

    run(work)


def test_ordering_keys_stay_in_order(cloud: Cloud, queue: Gate, tmp_path: Path) -> None:
    orders = cloud.subscription("orders", ordered=True)
    published = {key: cloud.publish(orders, [b"%d" % one for one in range(300)], key=key) for key in ("a", "b")}

    async def work() -> None:
        async with bridging(cloud, queue, tmp_path, [orders]) as bridge:
            await until(lambda: bridge.counts.acked >= 600)

    run(work)

    found = [one.message_id for one in queue.envelopes(orders)]
    for names in published.values():
        assert [name for name in found if name in set(names)] == names


def test_ordering_keys_end_in_order_after_the_queue_refused_one(cloud: Cloud, queue: Gate, tmp_path: Path) -> None:
    orders = cloud.subscription("orders", ordered=True)
    names = cloud.publish(orders, [b"%d" % number for number in range(50)], key="a")
    refusals = [3, 7]

    def refuse_some(messages: Sequence[Outgoing]) -> list[int]:
        return [refusals.pop()] if refusals and len(messages) > 8 else []

    queue.judge = refuse_some

    async def work() -> None:
        async with bridging(cloud, queue, tmp_path, [orders]) as bridge:
            await until(lambda: bridge.counts.acked >= 50)

    run(work)

    last = {name: at for at, name in enumerate(queue.taken)}
    assert sorted(last, key=lambda name: last[name]) == names
    assert len(queue.taken) > 50


def test_shards_cover_every_subscription_exactly_once(cloud: Cloud, queue: Gate, tmp_path: Path) -> None:
    names = [cloud.subscription(f"topic-{number}") for number in range(9)]
    published = {name: cloud.publish(name, [b"1", b"2"]) for name in names}
    shares = [Shard(index, 3).of(names) for index in range(3)]

    async def work() -> None:
        async with (
            bridging(cloud, queue, tmp_path, shares[0]) as one,
            bridging(cloud, queue, tmp_path, shares[1]) as two,
            bridging(cloud, queue, tmp_path, shares[2]) as three,
        ):
            await until(lambda: one.counts.acked + two.counts.acked + three.counts.acked == 18)
            assert [bridge.counts.received for bridge in (one, two, three)] == [2 * len(share) for share in shares]

    run(work)

    for name in names:
        assert sorted(one.message_id for one in queue.envelopes(name)) == sorted(published[name])


def test_more_subscriptions_than_one_connection_carries_are_all_read(cloud: Cloud, queue: Gate, tmp_path: Path) -> None:
    names = [cloud.subscription(f"topic-{number}") for number in range(200)]

    async def work() -> None:
        async with bridging(cloud, queue, tmp_path, names) as bridge:
            await until(lambda: all(stream.is_open for stream in bridge.streams))
            for name in names:
                cloud.publish(name, [b"{}"])
            await until(lambda: bridge.counts.acked == 200)

    run(work)
