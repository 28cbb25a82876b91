"""Spark and this process run the same tasks and give the same answers, also where one shuffle follows another."""

import json
import random
from typing import Any

import pytest

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess, Runner
from leanops.adapters.iceberg.batches.spark import SparkRunner
from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.schema.model import schema_from_json
from leanops.usecases.schemas.infer import infer_schema
from leanops.usecases.schemas.plan import plan_schema
from tests.oracle.streams import SCHEMA, make_stream
from tests.support.world import FIRST, World

RULES = TaskRules(task_rows=25)
ONLY_PAID = {"name": "status", "path": "$.order.status", "type": "STRING", "rules": {"allowed": ["PAID"]}}
STRICTER = [ONLY_PAID if column["name"] == "status" else column for column in SCHEMA["payload_columns"]]
PLANS = {
    "rows of Standardized, and older versions": {"payload_columns": STRICTER},
    "rows that RAW would give": {"keys": {"idempotency_key": "$.order.id"}},
    "rows that RAW would give, under the same keys": {
        "keys": {**SCHEMA.get("keys", {}), "version": "$.order.quantity"}
    },
}


@pytest.fixture
def orders(world: World) -> World:
    chance = random.Random(7)
    world.add("orders", json.dumps(SCHEMA))
    stream = make_stream(chance, 160)
    for batch in ([FIRST, *stream[:80]], stream[80:]):
        world.publish("orders", batch)
        world.settle()
    return world


def runners(world: World) -> list[Runner]:
    return [InProcess(), SparkRunner(world.embedded.spark)]


@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS)
def test_a_plan_is_the_same(orders: World, changes: dict[str, Any]) -> None:
    schema = schema_from_json(json.dumps({**SCHEMA, **changes}), "schema.json")
    plans = [
        plan_schema(
            orders.platform(engine=lambda on=on: TaskEngine(orders.embedded.catalog, on, RULES)), "orders", schema
        )
        for on in runners(orders)
    ]
    assert plans[0] == plans[1]
    assert plans[0].judged > 0
    assert plans[0].failing > 0
    assert plans[0].leaving + plans[0].changed > 0


def test_what_is_inferred_is_the_same(orders: World) -> None:
    inferred = [
        infer_schema(orders.platform(engine=lambda on=on: TaskEngine(orders.embedded.catalog, on, RULES)), "orders")
        for on in runners(orders)
    ]
    assert inferred[0] == inferred[1]
    assert len(inferred[0].columns) > 10
