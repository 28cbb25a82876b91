"""Names that Iceberg and Spark give a meaning of their own: no payload column has one, and values stay exact."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from leanops.domain.table.definitions import breaks_merge
from leanops.usecases.operations.start import rebuild_topic
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.support.builders import column, schema_text
from tests.support.verify import assert_tables
from tests.support.world import PII_KEY, World

NAMES = (
    "__row_operation",
    "__original_row_id__pos",
    "__original_row_id__file",
    "__row_from_source",
    "__row_from_target",
    "publish_time_day",
)
SCHEMA = json.loads(schema_text(column("value", type="INT")))


def event(number: int, key: str, **members: Any) -> RawRow:
    published = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
    payload = {"_metadata": {"idempotencyKeyResource": key}, "value": number, **members}
    return RawRow(f"m{number}", published, "orders", json.dumps(payload), int(published.timestamp() * 1000))


def test_events_with_keys_of_the_engines_and_a_correction_of_them_end_exactly(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    first = [event(at, f"k{at}", **dict.fromkeys(NAMES, f"v{at}")) for at in range(3)]
    second = [event(7, "k0", **dict.fromkeys(NAMES, "corrected")), event(8, "k9", __row_operation="U")]
    for batch in (first, second):
        world.publish("orders", batch)
        assert world.cycle()["orders"].outcome == "done"
        model.standardize(batch)
        model.curate()
        assert_tables(world, "orders", model)


def test_a_table_that_has_such_a_column_is_refused_and_a_rebuild_renames_it(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", [event(1, "k1")])
    assert world.cycle()["orders"].outcome == "done"
    table = world.databases.standardized_table("orders")
    catalog = world.platform().catalog
    catalog.alter(table, {"__row_operation": ("string", "$.__row_operation"), "__v": ("string", "$.__v")})
    world.publish("orders", [event(2, "k1", __row_operation="U", __v="7")])
    refused = world.cycle()["orders"]
    assert refused.outcome == "failed"
    assert "(__row_operation)" in refused.reason
    assert refused.reason.endswith("leanops rebuild orders")
    rebuild_topic(world.platform(), "orders")
    world.settle()
    columns = catalog.load(table).paths
    assert not breaks_merge(columns["$.__row_operation"])
    assert columns["$.__v"] == "__v"
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    model.standardize([row for _, rows in world.published["orders"] for row in rows])
    model.curate()
    assert_tables(world, "orders", model)
