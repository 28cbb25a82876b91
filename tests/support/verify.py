"""The real tables against the model, cell by cell."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from leanops.domain.table.history import valid_watermark, watermark_from
from leanops.ports.state import BATCHES
from leanops.views.sources import Sources
from tests.oracle.model import CURATED_COUNTS, STANDARDIZED_COUNTS, Model
from tests.oracle.rows import RawRow
from tests.support.world import World

SYSTEM = (
    "idempotency_key",
    "message_id",
    "topic_name",
    "period_reference",
    "publish_time",
    "ingestion_ts",
    "last_updated_ts",
    "first_seen_ts",
)


def sources_of(world: World) -> Sources:
    """What the views of this world read from."""
    platform = world.platform()
    ports = {"catalog": platform.catalog, "state": platform.state, "schemas": platform.schemas}
    return replace(world.embedded.sources(), **ports, databases=world.databases)


def assert_counts(result: Any, standardized: dict[str, int] | None, curated: dict[str, int] | None) -> None:
    """What a cycle reported for a topic is what the model counted."""
    for layer, expected, names in (
        ("standardized", standardized, STANDARDIZED_COUNTS),
        ("curated", curated, CURATED_COUNTS),
    ):
        if expected is not None:
            assert layer in result.layers, (layer, result)
            found = {name: result.layers[layer].counts[name] for name in names}
            assert found == {name: expected[name] for name in names}, layer


def assert_tables(world: World, topic: str, model: Model) -> None:
    """Every row and cell of the four tables of a topic is the model's."""
    assert_standardized(world, topic, model)
    assert_errors(world.errors(world.databases.parse_errors, topic), _parse_rules(model))
    if model.schema:
        assert_curated(world, topic, model)
        assert_errors(world.errors(world.databases.errors, topic), model.errors)
    assert_totals(world, topic, model)


def replayed(world: World, topic: str, schema: dict[str, Any] | None, **options: Any) -> Model:
    """The model fed with the batches the tables say they had, in the order they say."""
    catalog, databases = world.embedded.platform.catalog, world.databases
    standardized = _marks(catalog.load(databases.standardized_table(topic)))
    curated = _marks(catalog.load(databases.curated_table(schema["table_name"]))) if schema else []
    model = Model(topic, schema, **options)
    for mark in standardized:
        model.standardize(_between(world.published[topic], mark.source_from, mark.source_to))
        if any(reader.source_to == mark.batch_seq for reader in curated):
            model.curate()
    return model


def _marks(view: Any) -> list[Any]:
    """The batches of a table, oldest first, each once."""
    found = [mark for snapshot in view.ancestors() if (mark := watermark_from(snapshot))] if view else []
    return sorted({mark.batch_id: mark for mark in reversed(found)}.values(), key=lambda mark: mark.batch_seq)


def _between(published: list[tuple[int, list[RawRow]]], start: int | None, end: int) -> list[RawRow]:
    snapshots = [snapshot for snapshot, _ in published]
    first = 0 if start is None else snapshots.index(start) + 1
    return [row for _, rows in published[first : snapshots.index(end) + 1] for row in rows]


def assert_settled(world: World, topic: str) -> None:
    """Nothing is left open, every committed batch has exactly one run record, and every column one drift row."""
    platform = world.platform()
    assert [stored.row["pipeline_id"] for stored in platform.state.rows(BATCHES)] == []
    view = platform.catalog.load(world.databases.standardized_table(topic))
    committed = [mark.batch_id for mark in _marks(view)]
    history = world.rows(world.databases.ops_table("job_run_history"))
    recorded = [row["batch_id"] for row in history if row["topic_name"] == topic and row["layer"] == "standardized"]
    assert sorted(recorded) == sorted(committed)
    # An error row leads back to the batch that found it, and that batch is in the table.
    assert {row["batch_id"] for row in world.errors(world.databases.parse_errors, topic)} <= set(committed)
    drift = world.rows(world.databases.ops_table("drift_log"))
    ours = [row for row in drift if row["topic_name"] == topic and row["source_layer"] == "standardized"]
    added = [row["column_name"] for row in ours if row["action"] == "ADDED"]
    assert sorted(added) == sorted(view.paths.values())


def assert_standardized(world: World, topic: str, model: Model) -> None:
    found = world.standardized(topic)
    assert _doubled(row["record_key"] for row in found) == []
    view = world.embedded.platform.catalog.load(world.databases.standardized_table(topic))
    names = {name: path for path, name in (view.paths if view else {}).items()}
    rows = {row["record_key"]: _standardized(row, names) for row in found}
    assert rows.keys() == model.standardized.keys()
    for key, row in model.standardized.items():
        expected = {name: getattr(row, name) for name in SYSTEM} | {"topic_name": topic, "cells": row.cells}
        expected |= {"_version": row.number, "_payload_hash": row.payload_hash}
        assert rows[key] == expected, key


def _standardized(row: dict[str, Any], paths: dict[str, str]) -> dict[str, Any]:
    cells = {path: row[name] for name, path in paths.items() if row[name] is not None}
    rescued = json.loads(row["_rescued"]) if row["_rescued"] else {}
    assert not cells.keys() & rescued.keys()
    return {name: row[name] for name in (*SYSTEM, "_version", "_payload_hash")} | {"cells": cells | rescued}


def assert_curated(world: World, topic: str, model: Model) -> None:
    found = world.curated(model.schema["table_name"])
    assert _doubled(row["idempotency_key"] for row in found) == []
    rows = {row["idempotency_key"]: row for row in found}
    assert rows.keys() == model.curated.keys()
    for key, expected in model.curated.items():
        for name in SYSTEM:
            wanted = topic if name == "topic_name" else getattr(expected.source, name)
            assert rows[key][name] == wanted, (key, name)
        for name, value in expected.values.items():
            assert same_value(rows[key][name], value), (key, name, rows[key][name], value)


def same_value(found: Any, expected: Any) -> bool:
    """Equal in value and type; Spark gives naive datetimes, which are UTC."""
    if isinstance(expected, datetime):
        return isinstance(found, datetime) and (found if found.tzinfo else found.replace(tzinfo=UTC)) == expected
    return type(found) is type(expected) and bool(found == expected)


def assert_errors(found: list[dict[str, Any]], expected: dict[str, list[tuple[str, str | None]]]) -> None:
    assert _doubled(row["error_id"] for row in found) == []
    rows = {row["message_id"]: row for row in found}
    assert rows.keys() == expected.keys()
    for message, failures in expected.items():
        where = "path" if rows[message]["layer"] == "standardized" else "column"
        said = sorted((failure["rule"], failure[where] or "") for failure in rows[message]["failures"])
        wanted = sorted((rule, place or "") for rule, place in failures)
        assert said == wanted, (message, said, wanted)


def _parse_rules(model: Model) -> dict[str, list[tuple[str, str | None]]]:
    return dict(model.parse_errors)


def assert_totals(world: World, topic: str, model: Model) -> None:
    """The running totals in the watermark balance and are the model's; RAW has exactly the rows that were read."""
    view = world.embedded.platform.catalog.load(world.databases.standardized_table(topic))
    mark = valid_watermark(view) if view else None
    if mark is None:
        assert model.totals["read"] == 0
        return
    mark.totals.check()
    assert mark.totals.rows == len(model.standardized)
    assert mark.totals.read == model.totals["read"] == len(world.rows(world.databases.raw_table(topic)))
    for name in ("updated", "duplicates", "superseded", "parse_errors"):
        assert getattr(mark.totals, name) == model.totals[name], name


def _doubled(values: Any) -> list[Any]:
    return [value for value, times in Counter(values).items() if times > 1]
