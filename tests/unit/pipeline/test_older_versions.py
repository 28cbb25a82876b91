"""Curated is a function of RAW and the schema: of each key the newest version that passes, in whatever batches."""

import json
import random
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.iceberg.batches import engine
from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.errors import UsageError
from leanops.domain.table.definitions import RAW
from leanops.domain.table.outcome import Outcome
from leanops.usecases.cycle.job import TopicResult
from leanops.usecases.cycle.plan import plan_cycle
from leanops.usecases.operations.plan_rollback import plan_rollback, roll_back_topic
from leanops.usecases.pipeline.curate import curated_definition
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.oracle.streams import SCHEMA, cut, make_stream
from tests.support.verify import assert_counts, assert_tables
from tests.support.world import FIRST, PII_KEY, Abandoned, World

SIZES = {"one task": TaskRules(), "many tasks": TaskRules(task_rows=10), "keys in parts": TaskRules(task_rows=1)}
COLUMNS = [{"name": "amount", "path": "$.amount", "type": "INT"}]
ORDERS: dict[str, Any] = {
    **SCHEMA,
    "payload_columns": COLUMNS,
    "keys": {"idempotency_key": "$.key", "version": "$.at"},
}


@pytest.fixture
def orders(world: World) -> World:
    world.add("orders", json.dumps(ORDERS))
    return world


def standardize(world: World) -> TopicResult:
    """A cycle that leaves Curated alone, as it does where that is parked."""
    platform = world.platform()
    return world.cycle(platform, plans=[replace(plan, curate=False) for plan in plan_cycle(platform, None)])["orders"]


def expire_raw(world: World, *, keep: int = 1) -> None:
    """What another tool may do: forget all but the newest snapshots of RAW."""
    raw = world.embedded.catalog.load_table(world.databases.raw_table("orders"))
    older = [snapshot.snapshot_id for snapshot in raw.snapshots()][:-keep]
    raw.maintenance.expire_snapshots().by_ids(older).commit()


def curate_alone(world: World) -> TopicResult:
    platform = world.platform()
    plans = [replace(plan, standardize=False, curate=True, outcome=None) for plan in plan_cycle(platform, None)]
    return world.cycle(platform, plans=plans)["orders"]


def version(day: int, amount: object, key: str = "k", **members: object) -> RawRow:
    """A version of a key: an amount that is no number fails."""
    text = json.dumps({"key": key, "at": f"2024-01-{day:02}T00:00:00Z", "amount": amount, **members})
    published = FIRST.publish_time + timedelta(days=day)
    landed = FIRST.ingestion_ts + day
    return RawRow(f"{key}-{day}", published, "orders", text, landed)


def amounts(world: World) -> dict[str, int]:
    return {row["idempotency_key"]: row["amount"] for row in world.curated("orders")}


def refused(world: World) -> list[str]:
    return sorted(row["message_id"] for row in world.errors(world.databases.errors, "orders"))


def left_over(world: World) -> list[Path]:
    """Files that name versions: nobody needs them after a cycle."""
    tables = [world.databases.standardized_table("orders"), world.databases.curated_table("orders")]
    places = [world.embedded.catalog.load_table(table).location().removeprefix("file://") for table in tables]
    return [path for place in places for path in Path(place).rglob("note-*")]


def test_a_good_version_that_comes_with_a_newer_bad_one_is_in_curated(orders: World) -> None:
    orders.publish("orders", [version(1, 1), version(2, 2), version(3, "x"), version(4, "y")])
    counts = orders.cycle()["orders"].layers["curated"].counts
    assert (amounts(orders), refused(orders)) == ({"k": 2}, ["k-3", "k-4"])
    names = ("read", "inserted", "errors", "behind", "judged_older", "kept_older", "replaced_older")
    assert [counts[name] for name in names] == [1, 0, 1, 1, 2, 1, 0]
    assert left_over(orders) == []


def test_an_older_good_version_that_comes_after_a_newer_bad_one_takes_its_place(orders: World) -> None:
    orders.publish("orders", [version(1, 1), version(1, 1, "other")])
    orders.cycle()
    orders.publish("orders", [version(9, "x")])
    orders.cycle()
    assert amounts(orders) == {"k": 1, "other": 1}
    # Of those that come late one is newer than what is there, and one older.
    orders.publish("orders", [version(5, 5), version(7, "z")])
    counts = orders.cycle()["orders"].layers["curated"].counts
    assert (amounts(orders), refused(orders)) == ({"k": 5, "other": 1}, ["k-7", "k-9"])
    names = ("read", "judged_older", "kept_older", "replaced_older", "behind")
    assert [counts[name] for name in names] == [0, 2, 1, 1, 0]
    orders.publish("orders", [version(3, 3), version(10, 10)])
    orders.cycle()
    assert amounts(orders) == {"k": 10, "other": 1}
    assert left_over(orders) == []


@pytest.mark.parametrize("rules", SIZES.values(), ids=SIZES)
def test_versions_that_came_and_went_while_curated_lagged_are_found_in_raw(orders: World, rules: TaskRules) -> None:
    orders.tasks = rules
    for batch in ([version(1, 1)], [version(2, 2), version(1, 1, "other")], [version(3, "x")], [version(4, "y")]):
        orders.publish("orders", batch)
        standardize(orders)
    assert (amounts(orders), len(orders.standardized("orders"))) == ({}, 2)
    counts = orders.cycle()["orders"].layers["curated"].counts
    assert (amounts(orders), refused(orders)) == ({"k": 2, "other": 1}, ["k-3", "k-4"])
    assert (counts["inserted"], counts["kept_older"]) == (1, 1)
    assert left_over(orders) == []


def test_after_a_gap_all_of_raw_is_looked_at_for_what_curated_has_missed(orders: World) -> None:
    orders.publish("orders", [version(1, 1, "other")])
    orders.cycle()
    orders.publish("orders", [version(2, 2)])
    standardize(orders)
    orders.publish("orders", [version(3, 3, "other")])
    orders.publish("orders", [version(4, "x")])
    expire_raw(orders)
    assert orders.cycle()["orders"].outcome == Outcome.GAP
    assert amounts(orders) == {"k": 2, "other": 3}


def test_a_rollback_says_that_a_key_leaves_which_only_an_older_version_brought_in(orders: World) -> None:
    orders.publish("orders", [version(1, 1, "other")])
    orders.cycle()
    view = orders.platform().catalog.load(orders.databases.standardized_table("orders"))
    assert view is not None
    orders.publish("orders", [version(2, 2), version(3, "x")])
    orders.cycle()
    assert amounts(orders) == {"k": 2, "other": 1}
    plan = plan_rollback(orders.platform(), "orders", snapshot=view.head)
    assert plan.leaving == 1
    with pytest.raises(UsageError, match="1 key would leave Curated"):
        roll_back_topic(orders.platform(), plan)
    assert amounts(orders) == {"k": 2, "other": 1}


def test_where_the_cycle_was_killed_between_the_layers_they_are_found_in_raw(orders: World) -> None:
    orders.publish("orders", [version(1, 1), version(2, "x")])

    def killed(name: str) -> None:
        if name == "after run record" or (name == "before intent" and orders.standardized("orders")):
            raise Abandoned

    with pytest.raises(Abandoned):
        orders.cycle(orders.platform(killed))
    assert (len(orders.standardized("orders")), amounts(orders)) == (1, {})
    orders.wait_for_leases()
    orders.settle()
    assert (amounts(orders), refused(orders)) == ({"k": 1}, ["k-2"])


def test_where_raws_snapshots_have_expired_all_of_raw_is_looked_at(orders: World) -> None:
    orders.publish("orders", [version(1, "x"), version(1, 1, "other")])
    orders.cycle()
    for batch in ([version(2, 2), version(3, "y")], [version(4, "z")]):
        orders.publish("orders", batch)
        standardize(orders)
    expire_raw(orders)
    assert orders.cycle()["orders"].outcome == Outcome.DONE
    assert amounts(orders) == {"k": 2, "other": 1}


@pytest.mark.parametrize("is_recreated", [False, True], ids=["expired", "re-created"])
def test_a_batch_begun_over_a_part_of_raw_that_is_gone_is_begun_again(orders: World, is_recreated: bool) -> None:
    orders.publish("orders", [version(1, 1), version(1, 1, "other")])
    orders.cycle()
    for batch in ([version(2, 2), version(3, "x")], [version(4, "y")]):
        orders.publish("orders", batch)
        standardize(orders)

    def killed(name: str) -> None:
        if name == "before commit":
            raise Abandoned

    with pytest.raises(Abandoned):
        orders.cycle(orders.platform(killed))
    orders.wait_for_leases()
    if is_recreated:
        name = orders.databases.raw_table("orders")
        rows = orders.rows(name)
        orders.embedded.catalog.drop_table(name)
        orders.embedded.platform.catalog.create(name, RAW)
        orders.embedded.platform.catalog.append(name, rows)
    else:
        expire_raw(orders)
    orders.settle()
    assert amounts(orders) == {"k": 2, "other": 1}


def test_where_raw_was_expired_up_to_its_head_nothing_is_taken_for_looked_at(orders: World) -> None:
    orders.publish("orders", [version(1, "x")])
    orders.cycle()
    orders.publish("orders", [version(2, "x")])
    standardize(orders)
    orders.publish("orders", [version(3, 3), version(4, "y")])
    expire_raw(orders)
    assert curate_alone(orders).outcome == Outcome.DONE
    orders.settle()
    assert amounts(orders) == {"k": 3}


def test_a_table_that_does_not_say_how_far_it_has_looked_looks_at_all_of_raw(orders: World) -> None:
    orders.publish("orders", [version(1, 1), version(2, "x")])
    orders.cycle()
    # As an earlier version left it: no older version was looked for, and no place in RAW noted.
    name = orders.databases.curated_table("orders")
    table = orders.embedded.catalog.load_table(name)
    summary = dict(table.current_snapshot().summary.additional_properties)
    orders.embedded.catalog.drop_table(name)
    orders.embedded.platform.catalog.create(name, curated_definition(orders.platform().schemas.active("orders")))
    ours = {key: value for key, value in summary.items() if key.startswith("leanops.") and key != "leanops.raw-to"}
    orders.embedded.platform.catalog.mark(name, ours)
    assert amounts(orders) == {}
    orders.publish("orders", [version(1, 7, "other")])
    assert orders.cycle()["orders"].outcome == Outcome.DONE
    assert amounts(orders) == {"k": 1, "other": 7}


def test_a_standardized_of_an_earlier_version_can_be_looked_into(orders: World) -> None:
    orders.publish("orders", [version(1, 1), version(2, "x")])
    standardize(orders)
    table = orders.embedded.catalog.load_table(orders.databases.standardized_table("orders"))
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("_version")
    assert curate_alone(orders).outcome == Outcome.DONE
    assert amounts(orders) == {"k": 1}


def test_in_one_cycle_after_the_other_raw_is_read_once(orders: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    monkeypatch.setattr(engine, "versions_unit", lambda unit, _secret: read.append(unit.work.raw))
    orders.tasks = TaskRules(fold_files=2)
    for day in range(1, 20, 2):
        orders.publish("orders", [version(day, day), version(day + 1, "x")])
        assert orders.cycle()["orders"].outcome == Outcome.DONE
    assert (amounts(orders), read) == ({"k": 19}, [])


def test_what_was_named_is_removed_where_a_task_fails(orders: World, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.tasks = TaskRules(task_rows=2)
    for day in (1, 3, 5):
        orders.publish("orders", [version(day, day), version(day + 1, "x")])
        standardize(orders)
    name_versions, tasks = engine.versions_unit, count(1)

    def fails(unit: Any, secret: bytes | None) -> Any:
        if next(tasks) % 3 == 0:
            raise OSError(28, "No space left on device")
        return name_versions(unit, secret)

    monkeypatch.setattr(engine, "versions_unit", fails)
    with pytest.raises(OSError, match="No space left"):
        orders.cycle()
    assert left_over(orders) == []
    monkeypatch.undo()
    orders.wait_for_leases()
    orders.settle()
    assert amounts(orders) == {"k": 5}


def test_sealed_keys_have_versions_too(world: World) -> None:
    world.add("orders", json.dumps({**ORDERS, "keys": {**ORDERS["keys"], "pii": "hmac"}}))
    for batch in ([version(1, 1)], [version(2, 2), version(3, "x")]):
        world.publish("orders", batch)
        standardize(world)
    world.cycle()
    assert list(amounts(world).values()) == [2]
    world.publish("orders", [version(6, 6), version(7, "x")])
    world.cycle()
    assert list(amounts(world).values()) == [6]


def test_what_the_contract_refuses_is_no_version(world: World) -> None:
    schema = {**ORDERS, "policies": {**ORDERS.get("policies", {}), "unknown_fields": "quarantine"}}
    world.add("orders", json.dumps(schema))
    batches = ([version(1, 1)], [version(2, 2, note="unknown")], [version(3, 3), version(4, "x")], [version(5, "y")])
    for batch in batches:
        world.publish("orders", batch)
        standardize(world)
    world.cycle()
    assert amounts(world) == {"k": 3}
    world.publish("orders", [version(6, "z"), version(7, 7, note="unknown")])
    world.cycle()
    assert amounts(world) == {"k": 3}


def test_a_key_with_many_bad_versions_is_judged_down_to_the_first_good_one(orders: World) -> None:
    bad = [replace(version(20, "x"), message_id=f"bad-{number:03}") for number in range(150)]
    orders.publish("orders", [version(1, 1), version(2, 2), *bad, version(30, "x")])
    counts = orders.cycle()["orders"].layers["curated"].counts
    assert amounts(orders) == {"k": 2}
    assert (counts["judged_older"], counts["kept_older"], len(refused(orders))) == (151, 1, 151)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_over_any_batches_of_both_layers_curated_is_what_raw_and_the_schema_say(
    world: World, seed: int, size: str
) -> None:
    chance = random.Random(f"{seed} {size}")
    world.tasks = SIZES[size]
    world.add("orders", json.dumps(SCHEMA))
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    batches = cut(chance, make_stream(chance, 60))[:6] if seed else [make_stream(chance, 100)]
    for at, batch in enumerate([[FIRST], *batches], start=1):
        world.publish("orders", batch)
        lags = 1 < at <= len(batches) and chance.random() < 0.5
        result = standardize(world) if lags else world.cycle()["orders"]
        standardized, curated = model.standardize(batch), None if lags else model.curate()
        assert_tables(world, "orders", model)
        assert_counts(result, standardized, curated)
    model.assert_laws()
    table = world.curated(model.schema["table_name"])
    assert {row["idempotency_key"]: row["message_id"] for row in table} == model.newest_passing()


def test_older_versions_are_looked_for_only_where_a_newest_one_failed(
    orders: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = list[str](), engine.older_unit

    def noted(unit: Any, secret: bytes | None) -> Any:
        looked.append(unit.work.batch.batch_id)
        return look(unit, secret)

    monkeypatch.setattr(engine, "older_unit", noted)
    without_key = replace(version(1, 1, "other"), json_payload='{"amount": 1}')
    # A message without a key has no versions. Then one comes late, of a key whose newest version is there.
    batches = (
        [version(1, 1), version(4, 4), without_key],
        [version(9, "x", "late")],
        [version(2, 2), version(5, 5, "third")],
    )
    for batch in batches:
        orders.publish("orders", batch)
        orders.cycle()
    assert (looked, amounts(orders)) == ([], {"k": 4, "third": 5})
    orders.publish("orders", [version(3, 3, "late")])
    orders.cycle()
    assert (len(looked), amounts(orders)) == (1, {"k": 4, "third": 5, "late": 3})
    assert left_over(orders) == []
