"""Patterns of a grammar that is gone: the topic says what to do, loses nothing, and goes on with a new schema."""

import json
from datetime import UTC, datetime, timedelta

from leanops.usecases.schemas.deploy import deploy_schema
from tests.oracle.rows import RawRow
from tests.support.builders import column, schema_text
from tests.support.world import World

LOOKS_AHEAD = schema_text(column("code", rules={"pattern": "(?=.*[0-9])[a-z0-9]+"}))


def event(number: int, code: str) -> RawRow:
    published = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
    payload = {"_metadata": {"idempotencyKeyResource": f"k{number}"}, "code": code}
    return RawRow(f"m{number}", published, "orders", json.dumps(payload), int(published.timestamp() * 1000))


def test_a_schema_deployed_with_a_pattern_that_re2_does_not_take_stops_curated_until_it_is_replaced(
    world: World,
) -> None:
    world.add("orders", schema_text(column("code")))
    (world.folder / "schemas/orders/active/schema.json").write_text(LOOKS_AHEAD)
    world.publish("orders", [event(1, "a1"), event(2, "ab")])
    stopped = world.cycle()["orders"]
    assert stopped.outcome == "failed"
    assert "the pattern of orders.code is not a regular expression: invalid perl operator: (?=" in stopped.reason
    assert "without look-around" in stopped.reason
    assert len(world.standardized("orders")) == 2
    assert world.errors(world.databases.errors, "orders") == []
    new = schema_text(column("code", rules={"pattern": "[a-z0-9]*[0-9][a-z0-9]*"}), version=2)
    deploy_schema(world.platform(), "orders", new, "schema.json")
    assert world.cycle()["orders"].outcome == "done"
    assert [row["code"] for row in world.curated("orders")] == ["a1"]
    assert [row["message_id"] for row in world.errors(world.databases.errors, "orders")] == ["m2"]
