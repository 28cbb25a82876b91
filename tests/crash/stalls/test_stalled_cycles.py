"""Cycles that stall at every step, in every commit and around tasks while another worker goes on: nothing doubles."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from leanops.adapters.iceberg.options import TaskRules
from leanops.usecases.platform import Platform
from tests.crash.batches import SCHEMA, orders
from tests.crash.stalls.inside import telling_commits, telling_tasks
from tests.crash.stalls.stalls import Stall, assert_no_live_file_is_gone, stalled
from tests.oracle.rows import RawRow
from tests.support.verify import assert_settled, assert_tables, replayed
from tests.support.world import PII_KEY, World

STEPS, COMMITS, TASKS = 32, 10, 8
"""How many a cycle of both layers with errors, new columns and folding passes at most."""
FOLDS = 4
"""At least one of so many cycles folds a table."""


class Stalls:
    """Batch after batch of one topic; each cycle stalls somewhere while another worker takes the topic over."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.tasks = TaskRules(fold_files=2)
        self.rows: Iterator[RawRow] = iter(orders(random.Random(21), 4_000, keys=20))
        world.add("orders", json.dumps(SCHEMA))

    def arrive(self, size: int) -> None:
        rows = [next(self.rows) for _ in range(size)]
        # Every batch has something of everything: a broken payload, a bad value, a new column.
        odd = rows[-1]
        broken = replace(odd, message_id=f"{odd.message_id}-broken", json_payload="{")
        payload = {"order": {"amount": "x"}, "_metadata": {"idempotencyKeyResource": f"bad-{odd.message_id}"}}
        bad = replace(odd, message_id=f"{odd.message_id}-bad", json_payload=json.dumps({**payload, odd.message_id: 1}))
        self.world.publish("orders", [*rows, broken, bad])

    def take_over(self) -> None:
        """Another worker finishes the batch, and one more."""
        self.world.wait_for_leases()
        self.world.cycle()
        self.arrive(1)
        self.world.cycle()

    def through(self, where: int | str, platform: Callable[[Stall], Platform], *, most: int = STEPS) -> bool:
        """One cycle that stalls at a point, and all that must be true after it; whether it came so far."""
        self.arrive(4)
        stall = Stall(where, self.take_over)
        stalled(stall, lambda: self.world.cycle(platform(stall)))
        assert len(stall.passed) <= most, "there are stall points that no run tries"
        self.world.wait_for_leases()
        self.world.settle()
        self.check()
        return stall.at is not None

    def through_all(self, points: int, platform: Callable[[Stall], Platform]) -> None:
        """One cycle for each point; most of them must come so far."""
        reached = [self.through(number, platform, most=points) for number in range(1, points + 1)]
        assert sum(reached) >= points * 2 // 3

    def check(self) -> None:
        model = replayed(self.world, "orders", SCHEMA, pii_key=PII_KEY)
        assert model.totals["read"] == sum(len(rows) for _, rows in self.world.published["orders"])
        assert_tables(self.world, "orders", model)
        assert_settled(self.world, "orders")
        assert_no_live_file_is_gone(self.world)


def test_a_cycle_that_stalls_at_a_step_doubles_nothing(world: World) -> None:
    Stalls(world).through_all(STEPS, lambda stall: world.platform(step=stall))


def test_a_cycle_that_stalls_inside_a_commit_doubles_nothing(world: World) -> None:
    Stalls(world).through_all(COMMITS, lambda stall: telling_commits(world, stall))


def test_a_cycle_that_stalls_between_reading_and_committing_doubles_nothing(world: World) -> None:
    Stalls(world).through_all(TASKS, lambda stall: telling_tasks(world, stall))


@pytest.mark.parametrize("step", ["before fold", "after fold"])
def test_a_cycle_that_stalls_at_a_fold_doubles_nothing(world: World, step: str) -> None:
    stalls = Stalls(world)
    # Not every cycle folds something.
    assert any(stalls.through(step, lambda stall: world.platform(step=stall)) for _ in range(FOLDS))
