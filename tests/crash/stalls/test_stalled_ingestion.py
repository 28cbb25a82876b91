"""Ingestion and drain that stall at every step while others go on: nothing lost, nothing landed twice."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from leanops.domain.errors import LeanOpsError
from leanops.ports.state import ERROR_TRACKER
from leanops.usecases.dlq.drain import drain
from leanops.usecases.topics.registry import add_topic
from tests.crash.kills.test_ingestion import STEPS, TOPICS, Story
from tests.support.hub import Hub, hub_in

ONCE = {"before claim", "after claim", "before forget", "after forget"}
DRAIN = ("before drain", "after drain", "before forget dead letters", "after forget dead letters")
POINTS = [*((step, nth) for step in STEPS for nth in (1, 2) if nth == 1 or step not in ONCE)]
POINTS += [(step, 1) for step in DRAIN]


class Stalls(Story):
    """A worker that stops at a point, lets another do everything that is left, and goes on."""

    def through(self, step: str, nth: int, other: Callable[[], None]) -> None:
        seen: Counter[str] = Counter()

        def stall(name: str) -> None:
            seen[name] += 1
            if (name, seen[name]) == (step, nth):
                other()

        with hub_in(self.folder, clock=self.clock, step=stall) as hub:
            self.count_puts(hub)
            try:
                self.everything(hub)
            except LeanOpsError:
                # Whoever wakes up late may be refused.
                assert seen[step] >= nth
        assert seen[step] >= nth

    def everything(self, hub: Hub) -> None:
        for topic in TOPICS:
            hub.process(topic)
        hub.flush()
        drain(hub.platform)

    def take_over(self, step: str) -> None:
        """Another worker finishes what there is, and more comes."""
        self.finish()
        # What comes meanwhile is left to the next; a dead letter that came again would hide a doubled one.
        if step not in DRAIN:
            self.send(1, random.Random(step))

    def expire(self) -> None:
        """Another tool expires every snapshot of the tables but the newest."""
        with hub_in(self.folder, clock=self.clock) as hub:
            for name in self.tables(hub):
                table = hub.platform.catalog.native.load_table(name)
                head = table.current_snapshot()
                old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot != head]
                if old:
                    table.maintenance.expire_snapshots().by_ids(old).commit()

    def tables(self, hub: Hub) -> list[str]:
        """RAW of each topic and the table of dead letters, as far as they are there."""
        databases = hub.platform.rules.databases
        names = [*map(databases.raw_table, TOPICS), databases.dlq_errors]
        return [name for name in names if hub.platform.catalog.native.table_exists(name)]

    def finish(self) -> None:
        """Another worker: the claims and receipts of the first have run out."""
        self.settle()
        with hub_in(self.folder, clock=self.clock) as hub:
            drain(hub.platform)

    def check_all(self) -> None:
        with hub_in(self.folder, clock=self.clock) as hub:
            landed = Counter(name for topic in TOPICS for name in hub.ids(topic))
            assert set(landed) == set(self.sent)
            assert landed.total() == self.taken["records"]
            assert list(hub.platform.state.rows(ERROR_TRACKER)) == []
            dead_letters = hub.platform.catalog.select(
                hub.platform.rules.databases.dlq_errors, ["topic_name", "status"]
            )
            assert sorted((row["topic_name"], row["status"]) for row in dead_letters) == [
                (name, "OPEN") for name in TOPICS
            ]


@pytest.fixture
def stalls(tmp_path: Path) -> Stalls:
    with hub_in(tmp_path) as hub:
        for topic in TOPICS:
            add_topic(hub.platform, topic)
    return Stalls(tmp_path)


@pytest.mark.parametrize(("step", "nth"), POINTS)
def test_ingestion_that_stalls_at_a_step_loses_and_doubles_nothing(stalls: Stalls, step: str, nth: int) -> None:
    stalls.send(0, random.Random(step))
    stalls.through(step, nth, lambda: stalls.take_over(step))
    stalls.finish()
    stalls.check_all()


@pytest.mark.parametrize(("step", "nth"), POINTS)
def test_ingestion_between_whose_steps_snapshots_expire_loses_and_doubles_nothing(
    stalls: Stalls, step: str, nth: int
) -> None:
    # What is in the tables before is expired on the way.
    stalls.send(1, random.Random(nth))
    stalls.settle()
    stalls.send(0, random.Random(step))
    stalls.through(step, nth, stalls.expire)
    stalls.finish()
    stalls.check_all()
