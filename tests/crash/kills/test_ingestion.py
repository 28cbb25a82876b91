"""Ingestion abandoned at every step between receive and RAW: nothing is lost, and only a repeated put is a copy."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import CommitUnknownError
from leanops.domain.event.envelope import Envelope, encoded
from leanops.domain.event.record import raw_record
from leanops.ports.queue import Outgoing
from leanops.ports.state import ERROR_TRACKER
from leanops.usecases.ingest.deliver import SNAPSHOTS_BEFORE_EXPIRY, deliver
from leanops.usecases.topics.registry import add_topic
from tests.crash.cycles.test_abandonment import SEEDS
from tests.support.builders import NOW_MS, Clock
from tests.support.hub import Hub, hub_in
from tests.support.world import Abandoned

TOPICS = ("orders", "payments", "users")
BAD = b'{"message_id":"bad"}'
STEPS = (
    *("after receive", "before archive", "after archive", "before put", "after put", "before delete", "after delete"),
    *("before claim", "after claim", "before land", "after land", "before forget", "after forget"),
)


class Story:
    """A hub that is abandoned and started anew, and a count of what the buffer has taken."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()
        self.taken: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()

    def send(self, number: int, chance: random.Random) -> None:
        with hub_in(self.folder, clock=self.clock) as hub:
            for topic in TOPICS:
                ids = [f"{topic}-{number}-{at}" for at in range(chance.randrange(1, 8))]
                bodies = [encoded(Envelope(topic, name, NOW_MS * 1000, payload="{}")) for name in ids]
                hub.queue.send([Outgoing(topic, body) for body in (*bodies, BAD)])
                self.sent.update(ids)

    def run(self, stop_at: tuple[str, int] | None = None) -> bool:
        """Process and flush once, or until the nth time of a step; whether it came to its end."""
        seen: Counter[str] = Counter()

        def step(name: str) -> None:
            seen[name] += 1
            if (name, seen[name]) == stop_at:
                raise Abandoned(name)

        with hub_in(self.folder, clock=self.clock, step=step) as hub:
            self.count_puts(hub)
            try:
                for topic in TOPICS:
                    hub.process(topic)
                hub.flush()
            except Abandoned:
                return False
        return True

    def count_puts(self, hub: Hub) -> None:
        """Count what the buffer takes from now on."""
        put = hub.buffer.put

        def counted(records: Sequence[bytes]) -> list[int]:
            left = put(records)
            self.taken["records"] += len(records) - len(left)
            return left

        hub.buffer.put = counted  # type: ignore[method-assign]

    def settle(self) -> None:
        """Wait for every lease of the dead to end, then bring everything to RAW."""
        self.clock.advance(400)
        with hub_in(self.folder, clock=self.clock) as hub:
            self.count_puts(hub)
            hub.settle(*TOPICS)

    def check(self) -> None:
        with hub_in(self.folder, clock=self.clock) as hub:
            landed = Counter(name for topic in TOPICS for name in hub.ids(topic))
            assert set(landed) == set(self.sent)
            # Exactly once from the buffer on: RAW has as many rows as the buffer took records.
            assert landed.total() == self.taken["records"]
            dead_letters = [stored.row["topic_name"] for stored in hub.platform.state.rows(ERROR_TRACKER)]
            assert sorted(map(str, dead_letters)) == sorted(TOPICS)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    with hub_in(tmp_path) as hub:
        for topic in TOPICS:
            add_topic(hub.platform, topic)
    return Story(tmp_path)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2])
def test_work_abandoned_at_a_step_is_finished_after_a_restart(story: Story, step: str, nth: int) -> None:
    chance = random.Random(step)
    story.send(0, chance)
    is_once = step in {"before claim", "after claim", "before forget", "after forget"}
    assert story.run((step, nth)) is (is_once and nth == 2)
    story.send(1, chance)
    story.settle()
    story.check()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_work_abandoned_again_and_again_loses_and_doubles_nothing(story: Story, seed: int) -> None:
    chance = random.Random(seed)
    ends = []
    for number in range(6):
        story.send(number, chance)
        nth = chance.randrange(1, 4) if number else 1
        ends.append(story.run((chance.choice(STEPS), nth) if chance.random() < 0.8 or not number else None))
        story.clock.advance(chance.choice([1, 70, 400]))
    assert not ends[0]
    story.settle()
    story.check()


def test_a_commit_whose_answer_is_lost_is_not_repeated(story: Story) -> None:
    story.send(0, random.Random(0))
    with hub_in(story.folder, clock=story.clock) as hub:
        story.count_puts(hub)
        for topic in TOPICS:
            hub.process(topic)
        land = hub.platform.catalog.land

        def lost(*arguments: Any) -> None:
            land(*arguments)
            raise CommitUnknownError("the reply was lost")

        hub.platform.catalog.land = lost  # type: ignore[method-assign]
        flushed = hub.flush()
        assert flushed is not None
        assert set(flushed.failures) == set(TOPICS)
    story.settle()
    story.check()


def test_a_zombie_that_lands_its_flush_late_only_makes_copies(story: Story) -> None:
    story.send(0, random.Random(0))
    stalls: list[str] = []

    def stall(name: str) -> None:
        # It has read the records of its claim; meanwhile another worker takes the claim over and lands them.
        if name == "before land" and not stalls:
            stalls.append(name)
            story.settle()
            story.check()

    with hub_in(story.folder, clock=story.clock, step=stall) as zombie:
        story.count_puts(zombie)
        for topic in TOPICS:
            zombie.process(topic)
        deliver(zombie.stream, now=True)
    assert stalls
    story.check()


def test_a_flush_left_between_land_and_forget_is_not_landed_again_however_many_flushes_come_between(
    story: Story,
) -> None:
    story.send(0, random.Random(0))
    assert not story.run(("before forget", 1))
    with hub_in(story.folder, clock=story.clock) as busy:
        story.count_puts(busy)
        for number in range(1, SNAPSHOTS_BEFORE_EXPIRY + 10):
            story.send(number, random.Random(number))
            for topic in TOPICS:
                busy.process(topic)
            assert deliver(busy.stream, now=True) is not None
    story.settle()
    story.check()
    with hub_in(story.folder, clock=story.clock) as hub:
        while hub.flush():
            pass
        # What the claim held back goes with the flushes that follow.
        hub.buffer.put([raw_record(Envelope("orders", "last", NOW_MS * 1000, payload="{}"), "{}", NOW_MS)])
        hub.flush()
        raw = hub.platform.catalog.load("iceberg_raw_db.orders_staging")
        assert raw is not None
        assert len(raw.snapshots) <= SNAPSHOTS_BEFORE_EXPIRY
