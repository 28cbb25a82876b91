"""A writer that stalls and comes back late is stopped by the table; each guard taken away shows that it was needed."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.plan import Tables
from leanops.ports.engine import Target, Written
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline import curate, standardize
from tests.crash.batches import SCHEMA, orders
from tests.oracle.rows import RawRow
from tests.support.verify import assert_settled, assert_tables, replayed
from tests.support.world import PII_KEY, Abandoned, World

Sabotage = Callable[[pytest.MonkeyPatch], None]


def events(seed: int, size: int = 25) -> list[RawRow]:
    return orders(random.Random(seed), size)


def assert_exact(world: World) -> None:
    model = replayed(world, "orders", SCHEMA, pii_key=PII_KEY)
    assert model.totals["read"] == sum(len(rows) for _, rows in world.published["orders"])
    assert_tables(world, "orders", model)
    assert_settled(world, "orders")


def zombie_story(world: World) -> None:
    """A writer stalls before its commit; another takes over, commits, and even goes on; then the first continues."""
    world.add("orders", json.dumps(SCHEMA))
    rows = events(3, 40)
    world.publish("orders", rows[:20])
    stalled: list[str] = []

    def stall(step: str) -> None:
        if step == "before commit" and not stalled:
            stalled.append(step)
            world.wait_for_leases()
            world.cycle()
            world.publish("orders", rows[20:])
            world.cycle()

    world.cycle(world.platform(step=stall))
    assert stalled
    world.wait_for_leases()
    world.settle()


def abandoned_story(world: World) -> None:
    """Work abandoned after its error rows, then repeated."""
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", events(1, 60))
    steps: list[str] = []

    def after_errors(step: str) -> None:
        steps.append(step)
        if step == "after errors":
            raise Abandoned(step)

    with pytest.raises(Abandoned):
        world.cycle(world.platform(step=after_errors))
    world.wait_for_leases()
    world.settle()


def crash_before_commit_story(world: World) -> None:
    """Work abandoned just before its commit, then repeated."""
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", events(2))

    def before_commit(step: str) -> None:
        if step == "before commit":
            raise Abandoned(step)

    with pytest.raises(Abandoned):
        world.cycle(world.platform(step=before_commit))
    world.wait_for_leases()
    world.settle()


@pytest.mark.parametrize("story", [zombie_story, abandoned_story, crash_before_commit_story])
def test_the_story_ends_exactly(world: World, story: Callable[[World], None]) -> None:
    story(world)
    assert_exact(world)


def skip_the_watermark(patch: pytest.MonkeyPatch) -> None:
    commit = TaskEngine.commit

    def without_summary(self: TaskEngine, target: Target, written: Written, _summary: Any) -> None:
        commit(self, target, written, {})

    patch.setattr(TaskEngine, "commit", without_summary)


def checkpoint_before_data(patch: pytest.MonkeyPatch) -> None:
    """A batch that was begun counts as done."""
    begin, done = standardize.begin, {}

    def begin_and_advance(held: HeldTopic, batch: Any) -> None:
        begin(held, batch)
        done[batch.topic] = batch.source_to

    def next_batch(held: HeldTopic, *rest: Any) -> Any:
        return None if held.topic in done else original(held, *rest)

    original = standardize._next_batch
    patch.setattr(standardize, "begin", begin_and_advance)
    patch.setattr(standardize, "_next_batch", next_batch)


def new_batch_id_on_retry(patch: pytest.MonkeyPatch) -> None:
    for module in (standardize, curate):
        patch.setattr(module, "resumable_batch", lambda *_: None)
        patch.setattr(module, "begin_another", lambda *_: None)


def ignore_error_id(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks which error rows are there already."""
    patch.setattr(Tables, "_error_files", lambda *_: ())


def stale_zombie_commit(patch: pytest.MonkeyPatch) -> None:
    """A commit goes on top of whatever head it finds."""
    commit = TaskEngine.commit

    def on_any_head(self: TaskEngine, target: Target, written: Written, summary: Any) -> None:
        head = self._catalog.load_table(target.table).metadata.current_snapshot_id
        commit(self, replace(target, base=head), written, summary)

    patch.setattr(TaskEngine, "commit", on_any_head)


@pytest.mark.parametrize(
    ("sabotage", "story"),
    [
        (skip_the_watermark, crash_before_commit_story),
        (checkpoint_before_data, crash_before_commit_story),
        (new_batch_id_on_retry, abandoned_story),
        (ignore_error_id, abandoned_story),
        (stale_zombie_commit, zombie_story),
    ],
    ids=lambda value: value.__name__,
)
def test_each_sabotage_makes_its_story_fail(
    world: World, monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage, story: Callable[[World], None]
) -> None:
    def told() -> None:
        story(world)
        assert_exact(world)

    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        told()
