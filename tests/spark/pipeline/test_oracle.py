"""The real pipeline against the model: the same tables and counts for the same batches, whatever the events are."""

import json
import os
import random

import pytest

from leanops.adapters.iceberg.options import TaskRules
from tests.oracle.model import Model
from tests.oracle.streams import SCHEMA, make_stream
from tests.support.verify import assert_counts, assert_tables
from tests.support.world import FIRST, PII_KEY, World, few_batches

SEEDS = 6 if os.environ.get("CI") else 2


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_table_and_count_is_the_models(spark_world: World, seed: int) -> None:
    world, chance = spark_world, random.Random(seed)
    # Every other time no batch is small.
    world.tasks = TaskRules(task_rows=10) if seed % 2 else TaskRules()
    batches = [[FIRST], *few_batches(chance, make_stream(chance, 120))]
    world.add("orders", json.dumps(SCHEMA))
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    for batch in batches:
        world.publish("orders", batch)
        standardized, curated = model.standardize(batch), model.curate()
        result = world.cycle()["orders"]
        assert_tables(world, "orders", model)
        assert_counts(result, standardized, curated)
        model.assert_laws()
