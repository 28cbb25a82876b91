"""Twenty thousand messages from Pub/Sub to Standardized while everything in between is killed again and again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.cloud import pubsub_v1

from leanops.ports.state import WORKERS
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.topics.registry import add_topics
from tests.support.engines import require
from tests.support.pubsub.emulator import PROJECT, pubsub
from tests.support.sparkling import SETTINGS

MESSAGES, TOPICS = 20_000, 50
KILLS = 4
"""Of each kind of process."""
PATIENCE_S = 300
PARTS = {
    "bridge": ["bridge", "--project", PROJECT, "--port", "0"],
    "processor": ["serve", "--only", "processor"],
    "delivery": ["serve", "--only", "delivery"],
}


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with require(pubsub) as address:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
        yield address


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Embedded]:
    home = create_home(tmp_path / "home")
    (home / "leanops.toml").write_text(
        f"pipeline.explore = true\ndelivery.flush_s = 1\nbridge.lease_s = 10\n{SETTINGS}"
    )
    runtime = Embedded(home)
    yield runtime
    runtime.close()


class Part:
    """A process of one kind, started again whenever it was killed."""

    def __init__(self, words: list[str], home: Path) -> None:
        self._command = [str(Path(sys.executable).parent / "leanops"), *words]
        self.process: Any = None
        self._environment = os.environ | {"LEANOPS_HOME": str(home)}
        self.kills = 0

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        assert self.process.poll() is None, "it ended before it was killed"
        self.process.kill()
        self.process.wait()
        self.kills += 1

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def subscribe(topics: list[str]) -> None:
    """Topics and subscriptions of the same ids; what is not acknowledged comes again after 10 s, the least there is."""
    with pubsub_v1.SubscriberClient() as subscriber:
        publisher = pubsub_v1.PublisherClient()
        for topic in topics:
            path = publisher.topic_path(PROJECT, topic)
            publisher.create_topic(name=path)
            name = subscriber.subscription_path(PROJECT, topic)
            subscriber.create_subscription(name=name, topic=path, ack_deadline_seconds=10)
        publisher.stop()


def publish(topics: list[str], start: int, end: int) -> dict[str, set[str]]:
    """Messages of these numbers to every topic; the ids they got."""
    publisher = pubsub_v1.PublisherClient()
    futures = [
        (topic, publisher.publish(publisher.topic_path(PROJECT, topic), json.dumps({"n": n, "topic": topic}).encode()))
        for topic in topics
        for n in range(start, end)
    ]
    sent: dict[str, set[str]] = {topic: set() for topic in topics}
    for topic, future in futures:
        sent[topic].add(future.result())
    publisher.stop()
    return sent


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true in {PATIENCE_S} s"
        time.sleep(1)


def is_at_work(runtime: Embedded, part: Part) -> bool:
    """Whether this very process was heard of."""
    return any(str(part.process.pid) in str(stored.row["worker"]).split("/") for stored in runtime.state.rows(WORKERS))


def landed(runtime: Embedded, topics: list[str]) -> dict[str, set[str]]:
    return {topic: set(ids) for topic, ids in raw_ids(runtime, topics).items()}


def is_empty(runtime: Embedded) -> bool:
    return not runtime.queue.depths() and not runtime.buffer.holds_before(2**62)


def raw_ids(runtime: Embedded, topics: list[str]) -> dict[str, Counter[str]]:
    found = {}
    for topic in topics:
        table = runtime.platform.rules.databases.raw_table(topic)
        found[topic] = Counter(row["message_id"] for row in runtime.platform.catalog.select(table, ["message_id"]))
    return found


def publish_and_kill(runtime: Embedded, parts: dict[str, Part], topics: list[str]) -> dict[str, set[str]]:
    """Everything published in as many waves as there are kills; each hits a process that is at work."""
    chance = random.Random(4)
    order = [name for name in parts for _ in range(KILLS)]
    chance.shuffle(order)
    each, sent = MESSAGES // len(topics), {topic: set[str]() for topic in topics}
    for number, name in enumerate(order):
        wait_for(lambda part=parts[name]: is_at_work(runtime, part), f"{name} at work")
        wave = publish(topics, each * number // len(order), each * (number + 1) // len(order))
        for topic, ids in wave.items():
            sent[topic] |= ids
        time.sleep(chance.uniform(0, 2))
        parts[name].kill()
        parts[name].start()
    return sent


@pytest.fixture
def parts(runtime: Embedded, emulator: str) -> Iterator[dict[str, Part]]:
    started = {name: Part(words, runtime.home) for name, words in PARTS.items()}
    yield started
    for part in [one for one in started.values() if one.process]:
        part.process.kill()
        part.process.wait()


@pytest.mark.slow
def test_twenty_thousand_messages_survive_kills_of_every_part(runtime: Embedded, parts: dict[str, Part]) -> None:
    topics = [f"topic-{number:02}" for number in range(TOPICS)]
    subscribe(topics)
    add_topics(runtime.platform, dict.fromkeys(topics))
    for part in parts.values():
        part.start()
    sent = publish_and_kill(runtime, parts, topics)
    assert sum(len(ids) for ids in sent.values()) == MESSAGES
    assert [part.kills for part in parts.values()] == [KILLS] * len(parts)
    wait_for(lambda: landed(runtime, topics) == sent, "every message in RAW")
    # A copy may still be on its way; what is acknowledged and delivered is all there will be.
    wait_for(lambda: is_empty(runtime), "nothing left before RAW")
    assert {name: part.stop() for name, part in parts.items()} == dict.fromkeys(parts, 0)
    check_standardized(runtime, topics, sent)


def check_standardized(runtime: Embedded, topics: list[str], sent: dict[str, set[str]]) -> None:
    """RAW's copies are the duplicates a cycle counts, and Standardized has every message once."""
    raw = raw_ids(runtime, topics)
    repeats = sum(ids.total() - len(ids) for ids in raw.values())
    results = run_cycle(runtime.platform)
    for result in results:
        if result.failure:
            raise result.failure
    assert {result.outcome.value for result in results} == {"standardized_only"}, [r.reason for r in results]
    counts = [result.layers["standardized"].counts for result in results]
    assert sum(count["duplicates"] for count in counts) == repeats
    assert sum(count["read"] for count in counts) == MESSAGES + repeats
    for topic in topics:
        table = runtime.platform.rules.databases.standardized_table(topic)
        rows = runtime.platform.catalog.select(table, ["message_id"])
        assert sorted(row["message_id"] for row in rows) == sorted(sent[topic])
