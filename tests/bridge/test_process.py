"""`leanops bridge` as a process: it drains on SIGTERM, loses nothing on SIGKILL, and says what is wrong in one line."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leanops.domain.event.envelope import Envelope, envelopes_in
from leanops.domain.event.names import queue_name
from leanops.ports.state import WORKERS
from leanops.runtimes.embedded import Embedded
from leanops.usecases.topics.registry import add_topic
from tests.support.engines import free_port
from tests.support.pubsub.cloud import Cloud
from tests.support.pubsub.processes import bridge, until


@contextmanager
def opened(home: Path) -> Iterator[Embedded]:
    runtime = Embedded(home)
    try:
        yield runtime
    finally:
        runtime.close()


def register(home: Path, *topics: str) -> None:
    with opened(home) as runtime:
        for topic in topics:
            add_topic(runtime.platform, topic)


def consumed(home: Path, topic: str) -> set[str]:
    """The ids of the messages in a topic's queue, taken out of it as a processor would."""
    name, found = queue_name(topic), set()
    with opened(home) as runtime:
        while received := runtime.queue.receive(name, 10_000, 60):
            envelopes = [one for message in received for one in envelopes_in(message.body)]
            found |= {one.message_id for one in envelopes if isinstance(one, Envelope)}
            runtime.queue.delete(name, [message.receipt for message in received])
    return found


def test_sigterm_drains_and_ends_well(cloud: Cloud, home: Path) -> None:
    orders, payments = cloud.subscription("orders"), cloud.subscription("payments")
    register(home, orders, payments)
    published = set(cloud.publish(orders, [b"%d" % number for number in range(3_000)]))

    with bridge(cloud, home) as running:
        until(lambda: running.count("received") > 0)
        assert running.end(signal.SIGTERM) == 0
        drained = running.log.read_text().splitlines()[-1]

    assert "event=drained" in drained
    assert "given_back=0" in drained
    found = consumed(home, orders)
    with bridge(cloud, home) as running:
        until(lambda: found.update(consumed(home, orders)) or found == published)
        assert running.end(signal.SIGINT) == 0


@pytest.mark.slow
def test_sigkill_in_the_middle_loses_nothing(cloud: Cloud, home: Path) -> None:
    names = [cloud.subscription(f"topic-{number}") for number in range(2)]
    register(home, *names)
    published = {name: set(cloud.publish(name, [b"x" * 600] * 1_500)) for name in names}

    with bridge(cloud, home) as running:
        until(lambda: running.count("forwarded") > 0)
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
    found = {name: consumed(home, name) for name in names}
    assert found != published
    with bridge(cloud, home) as running:
        for name in names:
            # The emulator goes on handing messages to the dead stream for some of their leases.
            until(lambda name=name: found[name].update(consumed(home, name)) or found[name] == published[name], 180)
        assert running.end(signal.SIGTERM) == 0


def test_a_missing_subscription_is_named_in_one_line_and_stops_no_other(cloud: Cloud, home: Path) -> None:
    orders, missing = cloud.subscription("orders"), f"{cloud.word}-missing"
    register(home, orders, missing)
    cloud.publish(orders, [b"1"])

    with bridge(cloud, home) as running:
        until(lambda: running.count("acked") == 1 and running.count("reconnects") >= 3)
        assert running.get("/readyz") == "ok\n"
        cloud.subscription("missing")
        until(lambda: "subscription is read again" in running.log.read_text())
        cloud.publish(missing, [b"2"])
        until(lambda: running.count("acked") == 2)
        assert running.end(signal.SIGTERM) == 0
        told = [line for line in running.log.read_text().splitlines() if "does not exist" in line]

    assert len(told) == 1
    assert f"subscriptions/{missing}" in told[0]


def test_subscriptions_can_be_named_with_their_topics(cloud: Cloud, home: Path) -> None:
    subscription = cloud.subscription("orders-for-us")
    register(home, "orders")
    published = cloud.publish(subscription, [b"{}"])

    with bridge(cloud, home, "--subscription", f"{subscription}=orders") as running:
        until(lambda: running.count("acked") == 1)
        assert running.end(signal.SIGTERM) == 0

    assert consumed(home, "orders") == set(published)


def test_a_running_bridge_is_seen_in_the_state_store_and_gone_when_it_ends(cloud: Cloud, home: Path) -> None:
    orders = cloud.subscription("orders")
    register(home, orders)

    def seen() -> list[object]:
        with opened(home) as runtime:
            return [stored.row["part"] for stored in runtime.state.rows(WORKERS)]

    with bridge(cloud, home) as running:
        until(lambda: seen() == ["bridge"])
        assert running.end(signal.SIGTERM) == 0
    assert seen() == []


def test_an_emulator_that_is_away_is_waited_for(cloud: Cloud, home: Path) -> None:
    register(home, "orders")
    nowhere = Cloud(f"127.0.0.1:{free_port()}")

    with nowhere, bridge(nowhere, home) as running:
        until(lambda: "Pub/Sub does not answer" in running.log.read_text())
        assert running.get("/healthz") == "ok\n"
        assert running.get("/readyz") == ""
        assert running.end(signal.SIGTERM) == 0
