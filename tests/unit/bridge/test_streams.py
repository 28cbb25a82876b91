"""The bridge's streams: opened again when they end, apart from each other, drained at the end; and its endpoints."""

import asyncio
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leanops.domain.errors import StateUnavailableError, UsageError
from leanops.entrypoints.bridge.health import Health
from leanops.ports.queue import Outgoing
from leanops.runtimes.bridge import at_home, subscriptions_of
from leanops.runtimes.embedded import Embedded, create_home
from tests.support.pubsub.inbox import Gate, Inbox, away, bridging, message, run, until


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


def test_a_stream_that_ends_is_opened_again(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox, told = Inbox("orders"), []
        inbox.publish("orders", message(1))
        async with bridging(inbox, queue, tmp_path, told=told):
            await until(lambda: inbox.acked == ["m1"])
            inbox.cut()
            await until(lambda: inbox.asked["orders"] == 2)
            inbox.publish("orders", message(2))
            await until(lambda: inbox.acked == ["m1", "m2"])
        assert [what for what, _ in told] == ["drained"]

    run(work)


def test_a_subscription_that_does_not_exist_is_told_once_and_stops_no_other(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox, told = Inbox("orders"), []
        inbox.publish("orders", message(1))
        async with bridging(inbox, queue, tmp_path, "orders", "missing", told=told) as bridge:
            await until(lambda: inbox.acked == ["m1"] and inbox.asked["missing"] >= 3)
            assert bridge.problem is None
            assert [facts["subscription"] for _, facts in told] == ["missing"]
            inbox.publish("missing", message(2))
            await until(lambda: sorted(inbox.acked) == ["m1", "m2"])
        assert [what for what, _ in told] == ["subscription cannot be read", "subscription is read again", "drained"]

    run(work)


def test_a_quiet_subscription_counts_as_open_after_a_moment(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        async with bridging(Inbox("orders"), queue, tmp_path, steady_s=0.02) as bridge:
            assert bridge.problem == "no subscription is open yet"
            await until(lambda: bridge.problem is None)

    run(work)


def test_topics_that_come_and_go_are_read_and_left_without_a_restart(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox, told = Inbox("orders", "payments", "customers"), []
        wanted = {"orders": "orders", "payments": "payments"}
        inbox.publish("orders", message(1))
        async with bridging(
            inbox, queue, tmp_path, "orders", "payments", told=told, look=lambda: dict(wanted), look_s=0.01
        ) as bridge:
            await until(lambda: inbox.acked == ["m1"])
            wanted["customers"] = "customers"
            inbox.publish("customers", message(2))
            await until(lambda: inbox.acked == ["m1", "m2"])
            orders = bridge.streams[0]
            del wanted["orders"]
            await until(lambda: [stream.topic for stream in bridge.streams] == ["payments", "customers"])
            await until(lambda: not orders.is_asked)
            assert told[-1] == ("topic is read no longer", {"topic": "orders", "subscription": "orders"})
            inbox.publish("orders", message(3))
            inbox.publish("payments", message(4))
            await until(lambda: inbox.acked == ["m1", "m2", "m4"])
            wanted["orders"] = "orders"
            await until(lambda: inbox.acked == ["m1", "m2", "m4", "m3"])
            assert {name: inbox.asked[name] for name in ("payments", "customers")} == {"payments": 1, "customers": 1}

    run(work)


def test_what_is_in_flight_of_a_topic_that_goes_is_still_sent(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        may_go, inbox = threading.Event(), Inbox("orders", "payments")
        queue.judge = lambda messages: [] if may_go.wait(20) else away(messages)
        inbox.publish("orders", message(1))
        wanted = {"orders": "orders", "payments": "payments"}
        async with bridging(inbox, queue, tmp_path, look=lambda: dict(wanted), look_s=0.01) as bridge:
            await until(lambda: bridge.counts.received == 1)
            del wanted["orders"]
            await until(lambda: len(bridge.streams) == 1)
            may_go.set()
            await until(lambda: inbox.acked == ["m1"])

    run(work)


def test_while_topics_cannot_be_listed_those_known_are_read(queue: Gate, tmp_path: Path) -> None:
    def look() -> dict[str, str]:
        raise StateUnavailableError("the state store does not answer")

    async def work() -> None:
        inbox, told = Inbox("orders"), []
        async with bridging(inbox, queue, tmp_path, look=look, look_s=0.01, told=told):
            await until(lambda: len(told) > 2)
            inbox.publish("orders", message(1))
            await until(lambda: inbox.acked == ["m1"])
        assert told[0] == ("topics cannot be listed", {"reason": "the state store does not answer"})
        assert inbox.asked["orders"] == 1

    run(work)


def test_an_unforeseen_failure_of_a_stream_ends_the_bridge(
    queue: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        monkeypatch.setattr(inbox, "pull", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            async with bridging(inbox, queue, tmp_path) as bridge:
                await until(lambda: bridge.is_draining)

    run(work)


def test_acks_that_were_not_heard_are_told_again(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.is_deaf = True
        inbox.publish("orders", message(1))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: inbox.unheard >= 2)
            inbox.is_deaf = False
            await until(lambda: inbox.acked == ["m1"])

    run(work)


def test_a_drain_sends_and_acknowledges_what_is_in_flight(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        may_go, inbox = threading.Event(), Inbox("orders")
        queue.judge = lambda messages: [] if may_go.wait(20) else away(messages)
        inbox.publish("orders", message(1))
        async with bridging(inbox, queue, tmp_path) as bridge:
            await until(lambda: bridge.counts.received == 1)
            inbox.publish("orders", message(2))
            await until(lambda: bridge.counts.received == 2)
            asyncio.get_running_loop().call_later(0.05, may_go.set)
        assert inbox.acked == ["m1", "m2"]
        assert bridge.problem == "the bridge is stopping"

    run(work)


def test_a_drain_gives_back_what_the_queue_does_not_take_in_time(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.redelivers = False
        queue.judge = away
        inbox.publish("orders", message(1), message(2))
        async with bridging(inbox, queue, tmp_path, drain_s=0.05) as bridge:
            await until(lambda: bridge.counts.received == 2)
        assert (inbox.acked, inbox.returned) == ([], ["m1", "m2"])

    run(work)


def test_an_unforeseen_failure_ends_the_bridge_and_acknowledges_nothing(queue: Gate, tmp_path: Path) -> None:
    def fail(_messages: Sequence[Outgoing]) -> list[int]:
        raise ZeroDivisionError

    async def work() -> None:
        inbox = Inbox("orders")
        queue.judge = fail
        inbox.publish("orders", message(1))
        with pytest.raises(ZeroDivisionError):
            async with bridging(inbox, queue, tmp_path, drain_s=0.05):
                await until(lambda: inbox.returned == ["m1"])
        assert inbox.acked == []

    run(work)


def get(address: tuple[str, int], path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address[0]}:{address[1]}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_health_readiness_and_metrics_are_answered(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        async with bridging(inbox, queue, tmp_path) as bridge:
            server = await Health(bridge).listen("127.0.0.1", 0)
            address = server.sockets[0].getsockname()[:2]
            assert await asyncio.to_thread(get, address, "/healthz") == (200, "ok\n")
            assert await asyncio.to_thread(get, address, "/readyz") == (503, "no subscription is open yet\n")
            inbox.publish("orders", message(1, b"secret"))
            await until(lambda: inbox.acked)
            assert await asyncio.to_thread(get, address, "/readyz") == (200, "ok\n")
            status, metrics = await asyncio.to_thread(get, address, "/metrics?name=x")
            assert status == 200
            assert "leanops_bridge_forwarded_total 1.0" in metrics
            assert 'leanops_bridge_events_total{subscription="orders",topic="orders"} 1.0' in metrics
            assert "secret" not in metrics
            assert (await asyncio.to_thread(get, address, "/other"))[0] == 404
            server.close()

    run(work)


def test_renamed_metrics_are_exported_under_both_names_and_the_old_ones_say_so(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        async with bridging(Inbox("orders"), queue, tmp_path) as bridge:
            bridge.counts.archived = 3
            bridge.in_flight.take(bridge.streams[0], [message(1)])
            metrics = Health(bridge).answer("GET", "/metrics")[2].decode()
            size = float(bridge.in_flight.bytes)
        renamed = {
            "buried": ("dead_letters", "_total 3.0"),
            "in_hand": ("in_flight", " 1.0"),
            "in_hand_bytes": ("in_flight_bytes", f" {size}"),
        }
        for old, (new, sample) in renamed.items():
            assert f"\nleanops_bridge_{old}{sample}\n" in metrics
            assert f"\nleanops_bridge_{new}{sample}\n" in metrics
            assert f" Old name of leanops_bridge_{new}; the next version no longer exports it.\n" in metrics

    run(work)


def test_two_subscriptions_of_one_topic_are_two_samples(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        wanted = {"projects/p/subscriptions/one": "orders", "projects/p/subscriptions/two": "orders"}
        inbox = Inbox(*wanted)
        async with bridging(inbox, queue, tmp_path, look=lambda: wanted, look_s=0.01) as bridge:
            await until(lambda: [stream.topic for stream in bridge.streams] == ["orders", "orders"])
            metrics = Health(bridge).answer("GET", "/metrics")[2].decode()
        opened = [line.partition(" ")[0] for line in metrics.splitlines() if line.startswith("leanops_bridge_open{")]
        assert opened == [
            'leanops_bridge_open{subscription="one",topic="orders"}',
            'leanops_bridge_open{subscription="two",topic="orders"}',
        ]

    run(work)


def test_a_client_that_talks_nonsense_is_hung_up_on(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        async with bridging(Inbox("orders"), queue, tmp_path) as bridge:
            server = await Health(bridge).listen("127.0.0.1", 0)
            address = server.sockets[0].getsockname()[:2]
            for nonsense in (b"\r\n\r\n", b"x" * 20_000, b"GET /healthz\r\n\r\n", b"\xff\x00 / \r\n\r\n"):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(nonsense)
                writer.write_eof()
                answer = await asyncio.wait_for(reader.read(), 10)
                assert answer == b"" or b"405" in answer
                writer.close()
            assert await asyncio.to_thread(get, address, "/healthz") == (200, "ok\n")
            server.close()

    run(work)


def test_a_port_that_is_taken_is_told_in_one_line(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        async with bridging(Inbox("orders"), queue, tmp_path) as bridge:
            server = await Health(bridge).listen("127.0.0.1", 0)
            with pytest.raises(UsageError, match="choose another"):
                await Health(bridge).listen("127.0.0.1", server.sockets[0].getsockname()[1])
            server.close()

    run(work)


def test_a_wrong_name_of_a_subscription_is_told_as_such(tmp_path: Path) -> None:
    runtime = Embedded(create_home(tmp_path / "home"))
    with pytest.raises(UsageError, match="'or ders' is not a subscription id"):
        subscriptions_of(at_home(runtime), "shop", ["or ders=orders"])
    runtime.close()
