"""From the generator to RAW: what does not get there is reported, and no process that makes events is left behind."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.domain.errors import EmulationError, QueueStoppedError
from leanops.emulation.play import feed
from leanops.emulation.play.homes import fresh_home
from leanops.emulation.scenario import Scenario
from leanops.runtimes.background import breakers_of
from leanops.runtimes.embedded import Embedded
from leanops.usecases.topics.registry import add_topics
from tests.support.pubsub.living import living, until

SCENARIO = Scenario(topics=2, events={"day1": 200})


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Embedded]:
    """A home with two topics, and their events in the queues."""
    runtime = Embedded(fresh_home(tmp_path / "home", SCENARIO))
    add_topics(runtime.platform, dict.fromkeys(SCENARIO.names()))
    for topic in SCENARIO.names():
        feed.send(runtime, topic, SCENARIO.stream(topic, "day1").chunk(0))
    yield runtime
    runtime.close()


def rows(runtime: Embedded, topic: str) -> int:
    return int(runtime.catalog.load_table(f"iceberg_raw_db.{topic}_staging").scan().count())


def test_all_that_was_sent_lands(runtime: Embedded) -> None:
    feed.land(runtime)
    assert [rows(runtime, topic) for topic in SCENARIO.names()] == [100, 100]


def test_a_table_that_takes_nothing_is_told(runtime: Embedded) -> None:
    taken = runtime.home / "warehouse" / "iceberg_raw_db" / "orders_staging"
    shutil.rmtree(taken)
    taken.write_text("no folder")
    with pytest.raises(EmulationError, match="a table accepts none of its events: orders: "):
        feed.land(runtime)


def test_a_queue_that_is_not_read_is_told(runtime: Embedded) -> None:
    breakers_of(runtime).open("orders", "somebody said so")
    with pytest.raises(QueueStoppedError, match=r"orders: the circuit breaker is open \(somebody said so\)"):
        feed.land(runtime)


def test_what_is_hidden_is_waited_for(runtime: Embedded) -> None:
    hidden = runtime.queue.receive("orders", 10, 0.7)
    assert hidden
    feed.land(runtime)
    assert rows(runtime, "orders") == 100


def test_what_stays_hidden_is_counted(runtime: Embedded) -> None:
    hidden = len(runtime.queue.receive("orders", 10, 600))
    with pytest.raises(EmulationError, match=f"{hidden} messages? stayed in the queues"):
        feed.land(runtime, patience_s=0.3)


MAKING = """
import sys
from pathlib import Path
from leanops.emulation.play.feed import Feed
from leanops.emulation.scenario import Scenario
from leanops.runtimes.embedded import Embedded

if __name__ == "__main__":
    feed = Feed(Embedded(Path(sys.argv[1])))
    try:
        feed.run(Scenario(topics=1, events={"day1": 3_000_000}), "day1")
    finally:
        feed.close()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_maker_outlives_its_emulation_however_that_ends(runtime: Embedded, tmp_path: Path, number: int) -> None:
    program = tmp_path / "making.py"
    program.write_text(MAKING)
    environment = os.environ | {"LEANOPS_HOME": str(runtime.home)}
    with subprocess.Popen(
        [sys.executable, program, runtime.home], env=environment, stderr=subprocess.DEVNULL
    ) as emulation:
        try:
            until(lambda: (runtime.home / "ledger" / "orders").exists())
            assert len(living(runtime.home)) > 1
            emulation.send_signal(number)
            emulation.wait(60)
        finally:
            emulation.kill()  # a failure must not wait for the rest of the events
    until(lambda: not living(runtime.home))
