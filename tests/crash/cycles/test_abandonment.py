"""Work abandoned at any step, as a killed process abandons it: after the restart nothing is lost or doubled."""

import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.errors import CommitUnknownError
from leanops.ports.state import BATCHES
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from tests.crash.batches import BY_ORDER, SCHEMA, orders
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.support.verify import assert_settled, assert_tables, replayed
from tests.support.world import PII_KEY, Abandoned, World, Wrapped

SEEDS = int(os.environ.get("CRASH_SEEDS", "20"))
FEWEST_STEPS = 12
"""Even a cycle whose events are all broken passes this many, so the first one of a seed is surely abandoned."""
STEPS = 36
"""A cycle of both layers with errors, drift and folding passes this many steps at most."""


def stop_at(number: int) -> Callable[[str], None]:
    """A step function that abandons the work at its nth call."""
    calls = iter(range(1, 10_000))

    def step(name: str) -> None:
        if next(calls) == number:
            raise Abandoned(name)

    return step


class LosesReplies(Wrapped):
    """An engine whose commits arrive but whose answers do not."""

    def commit(self, *args: Any) -> None:
        self.engine.commit(*args)
        raise CommitUnknownError("the reply was lost")


def run_with_crashes(
    world: World, chance: random.Random, batches: list[list[RawRow]], platform: Callable[..., Platform]
) -> int:
    """Publish the batches; most cycles are abandoned somewhere, some lose the answer of their commit. How many were."""
    world.add("orders", json.dumps(SCHEMA))
    abandoned, last = 0, FEWEST_STEPS
    for batch in batches:
        world.publish("orders", batch)
        for _ in range(chance.choice([1, 1, 2])):
            lossy = chance.random() < 0.2
            engine = (lambda: LosesReplies(world.engine())) if lossy else None
            try:
                world.cycle(platform(step=stop_at(chance.randrange(1, last)), engine=engine))
            except Abandoned:
                abandoned += 1
                world.wait_for_leases()
            last = STEPS
    world.settle()
    return abandoned


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_wherever_the_work_is_abandoned(world: World, seed: int) -> None:
    abandoned_somewhere(world, seed)


def abandoned_somewhere(world: World, seed: int) -> None:
    """A story with crashes, which ends exactly."""
    chance = random.Random(seed)
    # Every other story folds whatever it can.
    world.tasks = TaskRules(fold_files=2) if seed % 2 else TaskRules()
    rows = orders(chance, 24)
    middle = chance.randrange(1, len(rows))
    assert run_with_crashes(world, chance, [rows[:middle], rows[middle:]], world.platform) > 0
    model = replayed(world, "orders", SCHEMA, pii_key=PII_KEY)
    assert model.totals["read"] == len(rows)
    assert_tables(world, "orders", model)
    assert_settled(world, "orders")
    model.assert_laws()


def test_every_step_of_a_cycle_is_reached_and_named(world: World) -> None:
    steps: list[str] = []
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", orders(random.Random(1), 30))
    world.cycle(world.platform(step=steps.append))
    layer = ["intent", "errors", "commit", "checkpoint"]
    durable = ["intent", "alter", *layer[1:], *layer, "drift", "run record", "close", "close"]
    assert steps == [f"{moment} {what}" for what in durable for moment in ("before", "after")]
    assert len(steps) <= STEPS


def test_a_batch_is_repeated_with_the_schema_and_limits_it_was_begun_with(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", [row for row in orders(random.Random(2), 9) if row.json_payload.startswith('{"order')][:1])
    with pytest.raises(Abandoned):
        world.cycle(world.platform(step=stop_at(2)))
    world.wait_for_leases()
    begun = next(iter(world.platform().state.rows(BATCHES))).row["batch_id"]
    world.with_rules(limits={"payload_bytes": 1})
    result = world.cycle()["orders"]
    assert result.layers["standardized"].batch.batch_id == begun
    assert result.layers["standardized"].counts["parse_errors"] == 0


def test_a_first_batch_that_was_begun_under_other_keys_is_not_repeated_with_them(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    rows = orders(random.Random(4), 20)
    world.publish("orders", rows)
    with pytest.raises(Abandoned):
        world.cycle(world.platform(step=stop_at(2)))
    world.wait_for_leases()
    begun = next(iter(world.platform().state.rows(BATCHES))).row["batch_id"]
    deploy_schema(world.platform(), "orders", json.dumps(BY_ORDER), "f", Consent(rebuild=True))
    result = world.cycle()["orders"]
    assert result.layers["standardized"].batch.batch_id != begun
    assert result.layers["standardized"].batch.schema_version == 2
    model = Model("orders", {**BY_ORDER, "version": 2}, pii_key=PII_KEY)
    model.standardize(rows)
    model.curate()
    assert_tables(world, "orders", model)
