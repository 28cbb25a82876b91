"""Events through Pub/Sub: published to topics of a project, and brought into the home's queues by a bridge."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from leanops.domain.errors import EmulationError, PermanentError, UsageError
from leanops.emulation import ledger
from leanops.emulation.fates import listed
from leanops.emulation.generator import Message
from leanops.runtimes.bridge import at_home, bridge_of, pubsub, subscriptions_of
from leanops.runtimes.embedded import Embedded

if TYPE_CHECKING:
    from leanops.adapters.gcp.publisher import PubSubPublisher

LABEL = ("leanops", "emulation")
"""Marks the topics an emulation may publish to."""
LOG = "bridge.log"
PATIENCE_S = 180.0
"""Some times longer than Pub/Sub waits before it delivers again."""
PAUSE_S = 0.5
STOP_S = 60.0


def project() -> str:
    """The project whose topics are used; raises where the environment names no endpoint."""
    found = os.environ.get("GOOGLE_CLOUD_PROJECT")
    if not found:
        raise UsageError(
            "no Pub/Sub endpoint; set GOOGLE_CLOUD_PROJECT to a Google project that is there for tests, or to any word "
            "and PUBSUB_EMULATOR_HOST to the address of the emulator"
        )
    try:
        import leanops.adapters.gcp.publisher  # noqa: F401 - to say now what is missing
    except ModuleNotFoundError as missing:
        raise PermanentError("Pub/Sub needs Google's client; install it with: pip install 'leanops[gcp]'") from missing
    return found


@lru_cache(maxsize=1)
def _publisher(of: str) -> "PubSubPublisher":
    """The publisher of this process."""
    from leanops.adapters.gcp.publisher import PubSubPublisher

    return PubSubPublisher(of)


def publish(topic: str, made: Sequence[Message]) -> list[str]:
    """Messages to the topic; the ids that Pub/Sub gave them."""
    return _publisher(project()).publish(topic, [one.text.encode() for one in made])


def prepare(topics: Iterable[str], subscription: str) -> None:
    """A topic and an empty subscription for each; what an earlier emulation left in one is gone."""
    from leanops.adapters.gcp.topics import PubSubTopics

    listing = PubSubTopics(project())
    try:
        there = {topic.name: topic.labels for topic in listing.topics()}
        held = listing.subscriptions()
        for topic in topics:
            name = subscription.replace("{topic}", topic)
            if topic in there and LABEL not in there[topic].items():
                raise UsageError(
                    f"topic {topic} of project {listing.project} is no emulation's; use a project of its own, or the "
                    "emulator"
                )
            if name in held and not held[name].is_ours:
                raise UsageError(
                    f"subscription {name} of project {listing.project} is no bridge's; use another project"
                )
            _publisher(listing.project).create(topic, LABEL)
            listing.unsubscribe(name)
            listing.subscribe(topic, name)
    finally:
        listing.close()


class Crossing:
    """A bridge in a process of its own, and the wait for what it has to bring."""

    def __init__(self, runtime: Embedded, land: Callable[[], None]) -> None:
        self._runtime, self._land, self._log = runtime, land, runtime.home / LOG
        self._bridge = get_context("spawn").Process(
            target=_run_bridge, args=(runtime.home, project()), name="bridge", daemon=True
        )
        self._bridge.start()

    def close(self) -> None:
        """Let the bridge hand on what it holds, and end."""
        self._bridge.terminate()
        self._bridge.join(STOP_S)
        self._bridge.kill()

    def wait(self, topics: Sequence[str], tell: Callable[[int], None], patience_s: float = PATIENCE_S) -> None:
        """Land what comes until every message of the ledger is in RAW or a dead letter; raises where none comes.

        `tell` is told how many have not.
        """
        left, deadline = missing(self._runtime, topics), time.monotonic() + patience_s
        while left:
            if not self._bridge.is_alive():
                raise EmulationError(f"the bridge has ended by itself; see why in {self._log}")
            if time.monotonic() > deadline:
                raise EmulationError(
                    f"of the events published, {left:,} did not come within {patience_s:.0f} s of the last one; see "
                    f"{self._log}, and have them named with: leanops emulate verify"
                )
            tell(left)
            time.sleep(PAUSE_S)
            self._land()
            before, left = left, missing(self._runtime, topics)
            deadline = time.monotonic() + patience_s if left < before else deadline


def missing(runtime: Embedded, topics: Iterable[str]) -> int:
    """How many messages of the ledger are neither in RAW nor among the dead letters."""
    databases = runtime.platform.rules.databases
    dead = _files(runtime, databases.dlq_errors)
    with duckdb.connect() as connection:
        found = 0
        for topic in topics:
            if not ledger.parts(runtime.home, topic):
                continue
            landed = [*_files(runtime, databases.raw_table(topic)), *dead]
            sent = f"SELECT message_id FROM read_parquet({listed(ledger.parts(runtime.home, topic))})"
            came = f" EXCEPT SELECT message_id FROM read_parquet({listed(landed)})" if landed else ""
            found += connection.execute(f"SELECT count(*) FROM ({sent}{came})").fetchall()[0][0]
    return found


def _files(runtime: Embedded, table: str) -> list[str]:
    """The files of a table; none of one that is not there yet."""
    if runtime.platform.catalog.load(table) is None:
        return []
    tasks = runtime.catalog.load_table(table).scan().plan_files()
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def _run_bridge(home: Path, of: str) -> None:
    """The bridge, until it is told to stop or the emulation is gone."""
    # A terminal sends Ctrl-C to every process; the emulation decides when the bridge ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    runtime = Embedded(home)
    try:
        asyncio.run(_bridged(runtime, of))
    finally:
        runtime.close()


async def _bridged(runtime: Embedded, of: str) -> None:
    loop, stopping, side = asyncio.get_running_loop(), asyncio.Event(), at_home(runtime)
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    threading.Thread(target=_outlive_nobody, args=(loop, stopping), daemon=True).start()
    source = pubsub()
    with (runtime.home / LOG).open("a", encoding="utf-8") as log:

        def tell(event: str, **facts: object) -> None:
            log.write(f"{event} {facts}\n")
            log.flush()

        try:
            await bridge_of(side, source, subscriptions_of(side, of, ()), tell).run(stopping)
        finally:
            await source.close()


def _outlive_nobody(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Stop where the emulation was killed."""
    emulation = parent_process()
    assert emulation is not None
    emulation.join()
    loop.call_soon_threadsafe(stopping.set)
