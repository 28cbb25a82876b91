"""Plans on real rows against the model: what fails, leaves, changes and is resolved, row for row."""

import copy
import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leanops.domain.compatibility import Kind
from leanops.domain.errors import UsageError
from leanops.domain.schema import Schema, schema_from_json
from leanops.domain.schema_plan import SchemaPlan
from leanops.usecases.plan_schema import failing_rows, plan_schema
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.oracle.streams import SCHEMA, make_stream
from tests.verify import same_value
from tests.world import FIRST, PII_KEY, World, few_batches

SEEDS = 6 if os.environ.get("CI") else 2
SCHEMAS = 4
KEY = "$._metadata.idempotencyKeyResource"
CHANGES: dict[str, list[dict[str, Any]]] = {
    "order_id": [{"cde": False}, {"rules": {"min_length": 2}}],
    "quantity": [{"type": "BIGINT"}, {"rules": {"max": 5}}, {"type": "STRING"}, {"cde": True}],
    "total": [{"type": "INT"}, {"type": "DECIMAL(38,2)"}, {"cde": True}],
    "amount": [{"type": "DECIMAL(20,2)"}, {"type": "DECIMAL(18,1)"}, {"rules": {}}, {"cde": False}],
    "rate": [{"rules": {"max": "0.1"}}, {"type": "STRING"}],
    "paid": [{"default": "true"}, {"default": None}],
    "due": [{"rules": {"min": "2024-01-01"}}, {"type": "STRING", "rules": {}}],
    "placed": [{"rules": {}}, {"type": "STRING", "rules": {}}],
    "status": [{"rules": {"allowed": ["NEW"]}}, {"rules": {}}, {"path": "$.order.label"}],
    "level": [{"default": "2"}, {"rules": {"allowed": [1, 2, 3, 4]}}],
    "code": [{"rules": {}}, {"rules": {"pattern": "[A-Z]+[0-9]"}}],
    "label": [{"rules": {"max_length": 10}}, {"path": "$.order.status"}],
    "email": [{"pii": None}, {"default": "none@example.com"}, {"pii": "mask"}],
    "card": [{"pii": "hmac"}, {"pii": None}, {"rules": {"min_length": 3}}],
    "secret": [{"pii": None}],
}
NEW = [
    {"name": "again", "path": "$.order.quantity", "type": "STRING"},
    {"name": "strict", "path": "$.order.level", "type": "INT", "cde": True},
    {"name": "odd", "path": "$.nowhere", "type": "DATE"},
    {"name": "sealed", "path": "$.order.label", "type": "STRING", "pii": "hmac"},
]


def _changed(chance: random.Random) -> dict[str, Any]:
    """The schema of the streams with a few changes."""
    said = copy.deepcopy(SCHEMA)
    columns = said["payload_columns"]
    for column in columns:
        if column["name"] in CHANGES and chance.random() < 0.3:
            column.update(chance.choice(CHANGES[column["name"]]))
    columns += [column for column in NEW if chance.random() < 0.3]
    said["payload_columns"] = [column for column in columns if chance.random() > 0.05 or column["name"] == "order_id"]
    chance.shuffle(said["payload_columns"])
    return said


def _read(said: dict[str, Any]) -> Schema:
    return schema_from_json(json.dumps(said), "schema.json")


def _plan(world: World, said: dict[str, Any], **options: Any) -> SchemaPlan:
    platform = world.platform()
    return plan_schema(platform, platform.lake(), "orders", _read(said), **options)


def _failures(world: World, said: dict[str, Any]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    platform = world.platform()
    rows = failing_rows(platform, platform.lake(), "orders", _read(said)).collect()
    return {
        (row.record_key, row.message_id): sorted((one["rule"], one["column"]) for one in row.failures) for row in rows
    }


def _with_orders(world: World, seed: int) -> Model:
    """A topic with some batches, and its model."""
    chance = random.Random(seed)
    world.add("orders", json.dumps(SCHEMA))
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    for batch in [[FIRST], *few_batches(chance, make_stream(chance, 120))]:
        world.publish("orders", batch)
        model.standardize(batch)
        model.curate()
        world.cycle()
    return model


def _expected(model: Model, said: dict[str, Any]) -> dict[str, Any]:
    """What the model says of each key under another schema."""
    today = {key: model._validate(row)[1] for key, row in model.standardized.items()}
    under = copy.deepcopy(model)
    under.set_schema(said)
    found = {key: under._validate(row) for key, row in model.standardized.items()}
    live = {key for key, row in model.standardized.items() if model._message_in_curated(row) == row.message_id}
    return {
        "failures": {
            (key, model.standardized[key].message_id): sorted(failures)
            for key, (_, failures) in found.items()
            if failures
        },
        "failing_today": sum(bool(failures) for failures in today.values()),
        "leaving": sum(bool(found[key][1]) for key in live),
        "resolved": sum(bool(today[key]) and not found[key][1] for key in found),
        "changed": sum(
            not found[key][1]
            and _differs(model.curated[model.standardized[key].idempotency_key or ""].values, found[key][0])
            for key in live
        ),
    }


def _differs(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return any(not same_value(before.get(name), after.get(name)) for name in before.keys() | after.keys())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_plan_counts_what_the_model_counts(world: World, seed: int) -> None:
    model, chance = _with_orders(world, seed), random.Random(seed)
    for _ in range(SCHEMAS):
        said = _changed(chance)
        expected, plan = _expected(model, said), _plan(world, said)
        assert _failures(world, said) == expected["failures"]
        assert plan.rows == plan.judged == len(model.standardized)
        assert plan.failing == len(expected["failures"])
        for name in ("failing_today", "leaving", "resolved", "changed"):
            assert getattr(plan, name) == expected[name], (name, plan.difference)
        reasons = Counter(reason for failures in expected["failures"].values() for reason in set(failures))
        assert {(group.rule, group.column): group.rows for group in plan.failures} == reasons
        assert all(1 <= len(group.examples) <= 3 for group in plan.failures)
