"""Plans on real rows against the model: what fails, leaves, changes and is resolved, row for row."""

import copy
import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.errors import UsageError
from leanops.domain.schema.diff import Kind
from leanops.domain.schema.model import Schema, schema_from_json
from leanops.domain.schema.plan import SchemaPlan
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from leanops.usecases.schemas.plan import plan_schema
from tests.oracle.model import Model
from tests.oracle.rows import LANDED, RawRow
from tests.oracle.streams import SCHEMA, make_stream
from tests.support.verify import same_value
from tests.support.world import FIRST, PII_KEY, World, few_batches

SEEDS = 3 if os.environ.get("CI") else 1
SCHEMAS = 3
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
    {"name": "sealed", "path": "$.user_id", "type": "STRING", "pii": "hmac"},
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
    return plan_schema(platform, "orders", _read(said), **options)


def _reasons(failures: Iterable[Iterable[tuple[str, str]]]) -> Counter[tuple[str, str]]:
    """How many rows break each rule of a column."""
    return Counter(reason for broken in failures for reason in set(broken))


def _grouped(plan: SchemaPlan) -> dict[tuple[str, str], int]:
    return {(group.rule, group.column): group.rows for group in plan.failures}


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
    today = {key: model.validate(row)[1] for key, row in model.standardized.items()}
    under = copy.deepcopy(model)
    under.set_schema(said)
    found = {key: under.validate(row) for key, row in model.standardized.items()}
    anew = copy.deepcopy(under)
    anew.recurate()
    live = {key for key, row in model.standardized.items() if model.message_in_curated(row) == row.message_id}
    return {
        "failures": {
            (key, model.standardized[key].message_id): sorted(failures)
            for key, (_, failures) in found.items()
            if failures
        },
        "failing_today": sum(bool(failures) for failures in today.values()),
        "leaving": len(model.curated.keys() - anew.curated.keys()),
        "resolved": sum(bool(today[key]) and not found[key][1] for key in found),
        "changed": sum(
            not found[key][1]
            and _differs(model.curated[model.standardized[key].idempotency_key or ""].values, found[key][0])
            for key in live
        ),
    }


def _differs(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return any(not same_value(before.get(name), after.get(name)) for name in before.keys() | after.keys())


@pytest.mark.parametrize("rules", [TaskRules(), TaskRules(task_rows=10, task_memory=20_000)], ids=["one", "many"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_plan_counts_what_the_model_counts(world: World, seed: int, rules: TaskRules) -> None:
    world.tasks = rules
    model, chance = _with_orders(world, seed), random.Random(seed)
    for _ in range(SCHEMAS):
        said = _changed(chance)
        expected, plan = _expected(model, said), _plan(world, said)
        assert plan.rows == plan.judged == len(model.standardized)
        assert plan.failing == len(expected["failures"])
        for name in ("failing_today", "leaving", "resolved", "changed"):
            assert getattr(plan, name) == expected[name], (name, plan.difference)
        assert _grouped(plan) == _reasons(expected["failures"].values())
        for group in plan.failures:
            failing = {key[1] for key, broken in expected["failures"].items() if (group.rule, group.column) in broken}
            assert {example.message_id for example in group.examples} <= failing
            assert min(3, len(failing)) >= len(group.examples) >= min(2, len(failing))


def _sent(number: int, payload: dict[str, Any], key: str | None = "set") -> RawRow:
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    body = {"_metadata": {"idempotencyKeyResource": f"k{number}"}, **payload} if key else payload
    return RawRow(f"m{number}", moment, "orders", json.dumps(body), LANDED + number)


def _schema(*columns: dict[str, Any], **members: Any) -> dict[str, Any]:
    found = [{"path": f"$.{column['name']}", "type": "STRING", **column} for column in columns]
    return {"table_name": "orders", "envelope_columns": [], "payload_columns": found, **members}


def test_a_plan_quarantines_row_for_row_what_a_recurate_does(world: World) -> None:
    model, said = _with_orders(world, 3), copy.deepcopy(SCHEMA)
    by_name = {column["name"]: column for column in said["payload_columns"]}
    by_name["quantity"]["cde"] = True
    by_name["status"]["rules"] = {"allowed": ["NEW", "PAID"]}
    plan, failures = _plan(world, said), _expected(model, said)["failures"]
    assert plan.difference.kind == Kind.RESTRICTIVE
    platform = world.platform()
    deploy_schema(
        platform,
        "orders",
        json.dumps(said),
        "schema.json",
        Consent(recurate=True, missing=plan.leaving),
        plan,
    )
    errors = world.errors(world.databases.errors, "orders")
    version = platform.schemas.active("orders").version
    quarantined = {
        (row["record_key"], row["message_id"]): sorted((one["rule"], one["column"]) for one in row["failures"])
        for row in errors
        if row["schema_version"] == version
    }
    # Those of the newest versions are what was planned; below them older ones failed, too.
    current = {row["message_id"] for row in world.standardized("orders")}
    assert {key: rules for key, rules in quarantined.items() if key[1] in current} == failures
    assert {key for key, _ in quarantined} == {key for key, _ in failures}
    assert len(failures) == plan.failing
    assert _grouped(plan) == _reasons(failures.values())


def test_a_topic_that_was_never_processed_is_planned_on_raw(world: World) -> None:
    chance = random.Random(5)
    batch = [FIRST, *make_stream(chance, 100)]
    world.add("orders")
    world.publish("orders", batch)
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    counts = model.standardize(batch)
    failures = [failed for row in model.standardized.values() if (failed := model.validate(row)[1])]
    plan = _plan(world, SCHEMA)
    assert (plan.source, plan.difference.kind, plan.rows) == ("raw", Kind.FIRST, len(batch))
    assert (plan.judged, plan.failing) == (len(model.standardized), len(failures))
    assert _grouped(plan) == _reasons(failures)
    for name in ("parse_errors", "missing_keys", "version_fallback"):
        assert getattr(plan, name) == counts[name]
    assert plan.ddl[0].startswith("CREATE TABLE")
    assert plan.needs == "nothing"


def test_other_keys_are_planned_on_raw_and_need_a_rebuild(world: World) -> None:
    _with_orders(world, 1)
    said = {**SCHEMA, "keys": {"idempotency_key": "$.order.id"}}
    model = Model("orders", said, pii_key=PII_KEY)
    for _, batch in world.published["orders"]:
        model.standardize(batch)
    plan = _plan(world, said)
    assert (plan.source, plan.needs, plan.is_safe) == ("raw", "rebuild", False)
    assert plan.judged == len(model.standardized)
    assert _grouped(plan) == _reasons(model.validate(row)[1] for row in model.standardized.values())
    assert plan.missing_keys == model.totals["missing_keys"]
    assert [line.split()[0] for line in plan.ddl] == ["replace", "replace"]


def _twice(world: World) -> None:
    """A key with two versions of which the later message is the older one by `at`, and a key with one."""
    body = {"_metadata": {"idempotencyKeyResource": "k"}}
    moments = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (1, 2)]
    bodies = [json.dumps({**body, "a": "x", "at": f"2026-01-0{3 - at}T00:00:00Z"}) for at in range(2)]
    sent = [RawRow(f"v{at}", moments[at], "orders", bodies[at], LANDED + at) for at in range(2)]
    world.publish("orders", [*sent, _sent(9, {"a": "x", "at": "2026-01-02T00:00:00Z"})])
    world.cycle()


def test_keys_that_another_version_wins_and_rows_with_another_time_or_period_are_changed(world: World) -> None:
    world.add("orders", json.dumps(_schema({"name": "a"})))
    _twice(world)
    plan = _plan(world, _schema({"name": "a"}, keys={"version": "$.at"}))
    assert (plan.source, plan.judged, plan.changed, plan.leaving) == ("raw", 2, 2, 0)
    same = _plan(world, _schema({"name": "a"}, policies={"unknown_fields": "quarantine"}))
    assert (same.source, same.changed) == ("raw", 0)


def test_columns_that_no_row_has_yet_are_planned_as_empty(world: World) -> None:
    world.add("orders", json.dumps(_schema({"name": "a"}, {"name": "b"})))
    world.publish("orders", [_sent(1, {"a": "x", "b": "y"})])
    world.cycle()
    names = world.databases.standardized_table("orders"), world.databases.curated_table("orders")
    for name in names:
        world.embedded.platform.catalog.alter(name, {"late": ("string", "$.late"), "day": ("date", "$.day")})
    plan = _plan(world, _schema({"name": "a"}, {"name": "b"}, {"name": "late"}, {"name": "day", "type": "DATE"}))
    assert (plan.source, plan.judged, plan.changed, plan.failing) == ("standardized", 1, 0, 0)


def test_a_row_that_lacks_two_critical_values_is_one_that_lacks_any(world: World) -> None:
    world.add("orders")
    world.publish("orders", [_sent(1, {}), _sent(2, {"a": "x"}), _sent(3, {"a": "x", "b": "y"})])
    plan = _plan(world, _schema({"name": "a", "cde": True}, {"name": "b", "cde": True}))
    assert (plan.cde_missing, plan.judged) == (2, 3)
    assert [(group.column, group.rows) for group in plan.failures] == [("b", 2), ("a", 1)]


def test_an_additive_plan_asks_for_a_recurate_only_where_old_rows_change(world: World) -> None:
    world.add("orders", json.dumps(_schema({"name": "a"})))
    world.publish("orders", [_sent(number, {"a": "x", "b": "y"}) for number in range(3)])
    world.cycle()
    filled = _plan(world, _schema({"name": "a"}, {"name": "b"}))
    empty = _plan(world, _schema({"name": "a"}, {"name": "c"}))
    assert (filled.needs, filled.changed, filled.is_safe) == ("recurate", 3, True)
    assert filled.ddl == (f"ALTER TABLE {world.databases.curated_table('orders')} ADD COLUMN b STRING",)
    assert (empty.needs, empty.changed) == ("nothing", 0)
    assert any("_c" in line or "COLUMN c " in line for line in empty.ddl)


def test_rows_that_failed_and_would_pass_are_resolved(world: World) -> None:
    world.add("orders", json.dumps(_schema({"name": "a", "type": "INT"})))
    world.publish("orders", [_sent(1, {"a": 5}), _sent(2, {"a": 5_000_000_000}), _sent(3, {"a": "no"})])
    world.cycle()
    plan = _plan(world, _schema({"name": "a", "type": "BIGINT"}))
    assert (plan.failing_today, plan.resolved, plan.failing, plan.changed) == (2, 1, 1, 0)
    assert plan.needs == "recurate"
    assert plan.ddl[-1].endswith("ALTER COLUMN a TYPE BIGINT")


def test_values_of_personal_columns_are_hidden(world: World) -> None:
    world.add("orders")
    world.publish("orders", [_sent(1, {"mail": "someone@example.com", "open": "shown"})])
    rules = {"rules": {"max_length": 2}}
    plan = _plan(world, _schema({"name": "mail", "pii": "mask", **rules}, {"name": "open", **rules}))
    assert {group.column: group.examples[0].value for group in plan.failures} == {"mail": "***", "open": "shown"}
    assert "someone" not in json.dumps(plan.as_json())


def test_what_is_personal_today_stays_hidden_in_the_plan_of_a_schema_that_opens_it(world: World) -> None:
    world.add("orders", json.dumps(_schema({"name": "mail", "pii": "mask"})))
    world.publish("orders", [_sent(1, {"mail": "someone@example.com"})])
    world.cycle()
    plan = _plan(world, _schema({"name": "mail", "rules": {"max_length": 2}}))
    assert [group.examples[0].value for group in plan.failures] == ["***"]


def test_a_pattern_that_repeats_a_group_is_tried_on_long_texts(world: World) -> None:
    world.add("orders")
    world.publish("orders", [_sent(at, {"a": text}) for at, text in enumerate(["x" * 500, "x" * 20_000, "no!"])])
    plan = _plan(world, _schema({"name": "a", "rules": {"pattern": "([A-Za-z0-9]|_)*", "max_length": 500}}))
    assert [(group.rule, group.rows) for group in plan.failures] == [("rule_length", 1), ("rule_pattern", 1)]


def test_what_is_personal_today_stays_hidden_whichever_way_its_column_is_named(world: World) -> None:
    world.with_rules(pipeline={"explore": True})
    world.add("orders")
    world.publish("orders", [_sent(1, {"customer": {"email": "someone@example.com"}, "open": "shown"})])
    world.cycle()
    rules = {"rules": {"max_length": 2}}
    by_name = {"name": "customer_email", "path": None, "pii": "hmac"}
    said = json.dumps(_schema(by_name, {"name": "other", "path": "$.nowhere"}))
    deploy_schema(world.platform(), "orders", said, "schema.json")
    by_path = {"name": "mail", "path": "$.customer.email", **rules}
    plan = _plan(world, _schema(by_path, {"name": "open", "path": None, **rules}))
    assert {group.column: group.examples[0].value for group in plan.failures} == {"mail": "***", "open": "shown"}


def test_a_path_without_a_column_is_read_from_what_was_rescued(world: World) -> None:
    policies = {"unknown_fields": "rescue"}
    world.add("orders", json.dumps(_schema({"name": "a"}, policies=policies)))
    world.publish("orders", [_sent(1, {"a": "x", "b": {"c": "12"}}), _sent(2, {"a": "x", "b": {"c": "no"}})])
    world.cycle()
    number = {"name": "c", "path": "$.b.c", "type": "INT"}
    plan = _plan(world, _schema({"name": "a"}, number, policies=policies))
    assert (plan.source, plan.changed, plan.leaving) == ("standardized", 1, 1)
    assert not plan.is_safe


def test_a_contract_of_quarantine_counts_the_events_it_would_refuse(world: World) -> None:
    world.add("orders")
    world.publish("orders", [_sent(1, {"a": "x"}), _sent(2, {"a": "x", "b": "y"})])
    metadata = {"name": "key", "path": KEY}
    plan = _plan(world, _schema({"name": "a"}, metadata, policies={"unknown_fields": "quarantine"}))
    assert (plan.parse_errors, plan.judged) == (1, 1)


def test_a_sample_is_the_same_every_time_and_says_so(world: World) -> None:
    world.add("orders", json.dumps(_schema({"name": "a"})))
    world.publish("orders", [_sent(number, {"a": "x"}) for number in range(200)])
    world.cycle()
    said = _schema({"name": "a", "rules": {"allowed": ["y"]}})
    first, second = (_plan(world, said, sample=50) for _ in range(2))
    assert first.is_sample
    assert (first.rows, first.failing, first.failures) == (second.rows, second.failing, second.failures)
    assert 20 < first.rows < 90
    assert first.failing == first.rows
    assert not _plan(world, said, sample=200).is_sample


def test_other_keys_cannot_be_planned_where_raw_no_longer_holds_the_events(world: World) -> None:
    world.with_rules(pipeline={"explore": True})
    world.add("orders")
    world.publish("orders", [_sent(1, {"a": "x"})])
    world.cycle()
    world.embedded.catalog.load_table(world.databases.raw_table("orders")).delete()
    plan = _plan(world, _schema({"name": "a"}, keys={"idempotency_key": "$.a"}))
    assert (plan.source, plan.needs, plan.is_safe) == ("retired", "rebuild", False)


def test_a_topic_without_events_has_nothing_to_plan_on(world: World) -> None:
    world.add("orders")
    plan = _plan(world, _schema({"name": "a"}))
    assert (plan.source, plan.rows, plan.is_safe) == ("nothing", 0, True)


def test_a_column_that_can_be_read_nowhere_is_refused(world: World) -> None:
    world.add("orders")
    world.publish("orders", [_sent(1, {"a": "x"})])
    with pytest.raises(UsageError, match="give it a path"):
        _plan(world, _schema({"name": "nowhere", "path": None}))
