"""Which version of a key wins: in every format, with clocks that are ahead, and on tables of earlier versions."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leanops.usecases.operations.start import rebuild_topic
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.support.builders import column, schema_text
from tests.support.verify import assert_counts, assert_tables
from tests.support.world import PII_KEY, World

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VERSIONS = {
    "iso": ["2026-03-01T10:00:00.123456789Z", "2026-03-01T10:00:00.123456Z", "2026-03-01T10:00:00.2Z", 5, "soon", None],
    "epoch_s": [1772359201, "1772359202.0", 1.7723592e9, 1772359201000, "soon", None],
    "epoch_ms": [1772359200001, "1772359200002", 1772359200000, 2000000000000, "soon", None],
    "number": [2, "10", 3.5, 123456789012345678, 123456789012345679, "1e40", "0.0000000001", "two", None],
}


def schema_with(**keys: Any) -> dict[str, Any]:
    return json.loads(schema_text(column("value", type="INT"), keys={"version": "$.v", **keys}))


def event(number: int, key: str, published: datetime = NOON, landed: datetime | None = None, **members: Any) -> RawRow:
    payload = {"_metadata": {"idempotencyKeyResource": key}, "value": number, **members}
    ingested = landed or published
    return RawRow(f"m{number}", published, "orders", json.dumps(payload), round(ingested.timestamp() * 1000))


def follow(world: World, schema: dict[str, Any], *batches: list[RawRow]) -> Model:
    """The batches through tables and model, which must agree after each."""
    world.add("orders", json.dumps(schema))
    model = Model("orders", schema, pii_key=PII_KEY)
    for batch in batches:
        world.publish("orders", batch)
        standardized, curated = model.standardize(batch), model.curate()
        assert_counts(world.cycle()["orders"], standardized, curated)
        assert_tables(world, "orders", model)
    return model


@pytest.mark.parametrize("form", VERSIONS)
def test_versions_of_every_format_win_in_their_order_whatever_order_brings_them(world: World, form: str) -> None:
    # Every pair of versions, the one sent later being the first or the second of them: publish time says nothing.
    pairs = [(first, second) for first in VERSIONS[form] for second in VERSIONS[form]]
    batches = [
        [event(2 * at + turn, f"k{at}", NOON + timedelta(seconds=turn), v=pair[turn]) for at, pair in enumerate(pairs)]
        for turn in range(2)
    ]
    model = follow(world, schema_with(version_format=form), *batches)
    assert model.totals["version_missing"] == 2 * len(VERSIONS[form])
    assert model.totals["version_fallback"] > 0
    assert model.totals["superseded"] > 0
    rebuild_topic(world.platform(), "orders")
    model.rebuild([row for batch in batches for row in batch])
    assert_tables(world, "orders", model)


def test_a_publish_time_of_2099_does_not_freeze_its_key(world: World) -> None:
    future = datetime(2099, 1, 1, tzinfo=UTC)
    first = [event(1, "k1", future, NOON), event(2, "k2", NOON + timedelta(hours=24), NOON)]
    second = [event(3, "k1", NOON + timedelta(hours=1)), event(4, "k2", NOON + timedelta(hours=1))]
    schema = json.loads(schema_text(column("value", type="INT")))
    model = follow(world, schema, first, second)
    assert model.standardized["key:k1"].message_id == "m3"
    assert model.standardized["key:k2"].message_id == "m2"
    assert model.totals["publish_time_ahead"] == 1


def test_a_copy_with_another_payload_is_a_duplicate_that_is_told(world: World) -> None:
    sent = event(1, "k1")
    altered = replace(event(1, "k1", v="other"), ingestion_ts=sent.ingestion_ts + 1)
    again = replace(sent, ingestion_ts=sent.ingestion_ts + 2)
    model = follow(world, schema_with(), [sent, altered, again], [again, altered])
    assert (model.totals["duplicates"], model.totals["conflicting_copies"]) == (4, 2)
    world.publish("orders", [replace(altered, ingestion_ts=altered.ingestion_ts + 5)])
    result = world.cycle()["orders"]
    assert [warning for warning in result.warnings if "1 of 1 duplicate with another payload" in warning]


def test_more_odd_rows_than_the_share_are_told_and_fewer_are_not(world: World) -> None:
    world.with_rules(pipeline={"warning_share": 0.5})
    world.add("orders", json.dumps(schema_with(period="$.p")))
    good = {"v": "2026-03-01T11:00:00Z", "p": "2026-03"}
    world.publish("orders", [event(1, "k1", **good), event(2, "k2", v=good["v"], p="2026-13")])
    assert world.cycle()["orders"].warnings == []
    world.publish("orders", [event(3, "k3", v=7, p="2026-03"), event(4, "k4", v="x", p="2026-03")])
    result = world.cycle()["orders"]
    assert [warning[:34] for warning in result.warnings] == ["2 of 2 rows have a version that ke"]
    assert result.as_json()["warnings"] == result.warnings
    assert result.layers["standardized"].as_json()["version_fallback"] == 2


def test_tables_of_an_earlier_version_get_the_new_columns_and_their_rows_keep_their_place(world: World) -> None:
    world.add("orders", json.dumps(schema_with()))
    first = [event(1, "k1", v="2026-03-01T11:00:00Z"), event(2, "k2", v="2026-03-01T11:00:00Z")]
    world.publish("orders", first)
    assert world.cycle()["orders"].outcome == "done"
    later = {"_version", "_payload_hash"}
    for name in (world.databases.standardized_table("orders"), world.databases.curated_table("orders")):
        table = world.embedded.catalog.load_table(name)
        with table.update_schema(allow_incompatible_changes=True) as update:
            for column in later & set(table.schema().column_names):
                update.delete_column(column)
    assert "_version" not in world.standardized("orders")[0]
    newer, older = event(3, "k1", v="2026-03-01T11:30:00Z"), event(4, "k2", v="2026-03-01T10:00:00Z")
    world.publish("orders", [newer, older, replace(first[1], json_payload=first[0].json_payload.replace("k1", "k2"))])
    counts = world.cycle()["orders"].layers["standardized"].counts
    told = ("updated", "superseded", "duplicates", "conflicting_copies")
    assert [counts[name] for name in told] == [1, 1, 1, 0]
    for rows in (world.standardized("orders"), world.curated("orders")):
        assert {row["idempotency_key"]: row["message_id"] for row in rows} == {"k1": "m3", "k2": "m2"}
        assert {row["_version"] for row in rows} == {None}
