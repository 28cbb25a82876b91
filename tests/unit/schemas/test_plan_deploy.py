"""What a plan foretells of a deployment: paths that no event has, keys that leave, and what would be refused."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from leanops.domain.schema.model import schema_from_json
from leanops.domain.schema.plan import SchemaPlan
from leanops.domain.table.operation import Accept
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from leanops.usecases.schemas.plan import plan_schema
from tests.oracle.rows import RawRow
from tests.support.world import World

KEY = "$._metadata.idempotencyKeyResource"


def _plan(world: World, said: dict[str, Any]) -> SchemaPlan:
    platform = world.platform()
    return plan_schema(platform, "orders", schema_from_json(json.dumps(said), "schema.json"))


def _sent(number: int, payload: dict[str, Any], key: str = "") -> RawRow:
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    body = {"_metadata": {"idempotencyKeyResource": key or f"k{number}"}, **payload}
    return RawRow(f"m{number}", moment, "orders", json.dumps(body), number)


def _schema(*columns: dict[str, Any], **members: Any) -> dict[str, Any]:
    found = [{"path": f"$.{column['name']}", "type": "STRING", **column} for column in columns]
    return {"table_name": "orders", "envelope_columns": [], "payload_columns": found, **members}


def test_paths_that_no_event_has_are_told_and_a_key_among_them_is_refused(world: World) -> None:
    world.add("orders")
    world.publish(
        "orders", [_sent(number, {"updatedAt": "2026-01-01", "pay": {"status": "new"}}) for number in range(30)]
    )
    status = {"name": "status", "path": "$.pay.statusx"}
    plan = _plan(world, _schema(status, keys={"version": "$.updated_at", "idempotency_key": KEY}))
    assert [(one.pointer, one.events, one.nearest) for one in plan.unseen] == [
        ("/keys/version", 30, "$.updatedAt"),
        ("/payload_columns/0/path", 30, "$.pay.status"),
    ]
    assert (plan.source, plan.is_safe) == ("raw", False)

    said = _schema(status)
    world.add("orders", json.dumps(said))
    world.cycle()
    assert [one.path for one in _plan(world, said).unseen] == ["$.pay.statusx"]
    added = _schema(status, {"name": "right", "path": "$.pay.status"}, {"name": "none", "path": "$.nowhere"})
    plan = _plan(world, added)
    assert [(one.name, one.events, one.nearest) for one in plan.unseen] == [
        ("status", 30, "$.pay.status"),
        ("none", 30, None),
    ]
    assert (plan.source, plan.unseen_keys) == ("standardized", ())


def test_a_path_that_no_event_has_leaves_its_column_name_to_one_that_has_it(world: World) -> None:
    typo = {"name": "pay_status", "path": "$.pay_status"}
    world.add("orders", json.dumps(_schema(typo)))
    world.publish("orders", [_sent(1, {"pay": {"status": "new"}})])
    world.cycle()
    view = world.embedded.platform.catalog.load(world.databases.standardized_table("orders"))
    assert view.paths["$.pay.status"] == "pay_status"
    assert "$.pay_status" not in view.paths
    world.publish("orders", [_sent(2, {"pay_status": "typo"})])
    world.cycle()
    assert {row["idempotency_key"]: row["pay_status"] for row in world.curated("orders")} == {"k1": None, "k2": "typo"}


def test_a_plan_says_what_a_deployment_would_refuse(world: World) -> None:
    world.add("orders", json.dumps(_schema({"name": "a"})))
    world.publish("orders", [_sent(number, {"a": "1"} if number % 2 else {}) for number in range(4)])
    world.cycle()
    renamed = _plan(world, {**_schema({"name": "a"}), "table_name": "other"})
    assert [problem.code for problem in renamed.problems] == ["table_renamed"]
    spiking = _plan(world, _schema({"name": "a", "cde": True}, policies={"cde_error_rate_fail": 0.4}))
    assert [(problem.code, problem.pointer) for problem in spiking.problems] == [
        ("cde_missing", "/payload_columns/0/cde")
    ]
    assert not renamed.is_safe
    assert not spiking.is_safe


def test_a_plan_counts_every_key_that_leaves_and_so_those_that_are_behind(world: World) -> None:
    world.add("orders", json.dumps(_schema({"name": "a", "rules": {"max_length": 3}})))
    world.publish("orders", [_sent(number, {"a": text}) for number, text in enumerate(["1", "22", "333", "4", "55"])])
    world.cycle()
    # Newer versions that fail: k2, k3 and k4 are behind, and stay at 333, 4 and 55.
    world.publish("orders", [_sent(10 + number, {"a": "too long"}, f"k{number}") for number in (2, 3, 4)])
    world.cycle()
    assert len(world.curated("orders")) == 5
    strict = _schema({"name": "a", "rules": {"max_length": 1}})
    plan = _plan(world, strict)
    done = deploy_schema(
        world.platform(), "orders", json.dumps(strict), "f", Consent(recurate=True, missing=Accept.ALL), plan
    )
    assert done.comparison is not None
    assert (plan.leaving, done.comparison.missing) == (3, 3)
    assert {row["idempotency_key"] for row in world.curated("orders")} == {"k0", "k3"}


def test_a_plan_counts_the_keys_that_other_versions_or_contracts_take_out(world: World) -> None:
    first = _schema({"name": "a"}, policies={"unknown_fields": "rescue"})
    world.add("orders", json.dumps(first))
    at = "2025-12-0{}T00:00:00Z".format
    sent = [_sent(number, {"a": str(number), "b": number, "at": at(9 - number)}) for number in range(4)]
    # One whose key has no other event that is not refused, and which is no number; and one that stays.
    others = [_sent(7, {"a": "long", "at": at(1)}, "k1"), _sent(8, {"a": "8", "at": at(1)})]
    world.publish("orders", [*sent, *others])
    world.cycle()
    strict = _schema({"name": "a", "type": "INT"}, keys={"version": "$.at"}, policies={"unknown_fields": "quarantine"})
    plan = _plan(world, strict)
    done = deploy_schema(
        world.platform(), "orders", json.dumps(strict), "f", Consent(rebuild=True, missing=Accept.ALL), plan
    )
    assert done.comparison is not None
    assert plan.leaving == done.comparison.missing == 4
    assert [row["idempotency_key"] for row in world.curated("orders")] == ["k8"]
