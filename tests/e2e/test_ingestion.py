"""Twenty thousand messages from Pub/Sub to Standardized while everything in between is killed again and again."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.cloud import pubsub_v1

from leanops.ports.state import WORKERS
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.run_cycle import run_cycle
from leanops.usecases.topics import add_topics
from tests.emulator import PROJECT, pubsub
from tests.engines import require
from tests.sparkling import SETTINGS

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
    (home / "leanops.toml").write_text(f"{SETTINGS}\nexplore = true\ndelivery_s = 1\n")
    runtime = Embedded(home)
    yield runtime
    runtime.close()


class Part:
    """A process of one kind, started again whenever it was killed."""

    def __init__(self, words: list[str], home: Path) -> None:
        self._command = [str(Path(sys.executable).parent / "leanops"), *words]
        self._environment = os.environ | {"LEANOPS_HOME": str(home)}
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        assert self.process.poll() is None, "it ended before it was killed"
        self.process.kill()
        self.process.wait()

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


def publish(topics: list[str], begun: Callable[[], None]) -> dict[str, set[str]]:
    """Every message published, by topic; some at a time, so that the kills find work going on."""
    publisher = pubsub_v1.PublisherClient()
    sent: dict[str, set[str]] = {topic: set() for topic in topics}
    each = MESSAGES // len(topics)
    for number in range(0, each, 20):
        waiting = [
            (
                topic,
                publisher.publish(publisher.topic_path(PROJECT, topic), json.dumps({"n": at, "topic": topic}).encode()),
            )
            for topic in topics
            for at in range(number, min(number + 20, each))
        ]
        for topic, future in waiting:
            sent[topic].add(future.result())
        begun()
    publisher.stop()
    return sent


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true in {PATIENCE_S} s"
        time.sleep(1)


def beats(runtime: Embedded) -> set[str]:
    """The parts that were heard of."""
    return {str(stored.row["part"]) for stored in runtime.state.rows(WORKERS)}


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


def kill_at_random(parts: dict[str, Part], chance: random.Random) -> Counter[str]:
    """Kill each kind so many times; it runs for some seconds in between."""
    killed: Counter[str] = Counter()
    order = [name for name in parts for _ in range(KILLS)]
    chance.shuffle(order)
    for name in order:
        time.sleep(chance.uniform(0.5, 2.5))
        parts[name].kill()
        killed[name] += 1
        parts[name].start()
    return killed


@pytest.fixture
def parts(runtime: Embedded, emulator: str) -> Iterator[dict[str, Part]]:
    started = {name: Part(words, runtime.home) for name, words in PARTS.items()}
    yield started
    for part in started.values():
        part.process.kill()
        part.process.wait()


def test_twenty_thousand_messages_survive_kills_of_every_part(runtime: Embedded, parts: dict[str, Part]) -> None:
    topics = [f"topic-{number:02}" for number in range(TOPICS)]
    subscribe(topics)
    add_topics(runtime.platform, dict.fromkeys(topics))
    wait_for(lambda: beats(runtime) >= parts.keys(), "every part at work")
    going = threading.Event()
    sent: dict[str, set[str]] = {}
    publishing = threading.Thread(target=lambda: sent.update(publish(topics, going.set)))
    publishing.start()
    assert going.wait(PATIENCE_S)
    killed = kill_at_random(parts, random.Random(4))
    publishing.join()
    assert killed == dict.fromkeys(parts, KILLS)
    assert sum(len(ids) for ids in sent.values()) == MESSAGES
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
    assert {result.outcome.value for result in results} == {"standardized_only"}, [r.reason for r in results]
    counts = [result.layers["standardized"].counts for result in results]
    assert sum(count["duplicates"] for count in counts) == repeats
    assert sum(count["read"] for count in counts) == MESSAGES + repeats
    for topic in topics:
        table = runtime.platform.rules.databases.standardized_table(topic)
        rows = runtime.platform.catalog.select(table, ["message_id"])
        assert sorted(row["message_id"] for row in rows) == sorted(sent[topic])
