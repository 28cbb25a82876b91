"""Every reader sees the same rows in tables that have taken in many small batches with corrections."""

import json
import random
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import duckdb
import pytest

from leanops.adapters.iceberg.options import CATALOG, TaskRules
from tests.crash.batches import SCHEMA, orders
from tests.support.verify import assert_tables, replayed
from tests.support.world import PII_KEY, World

BATCHES, ROWS = 200, 4


@pytest.mark.slow
@pytest.mark.parametrize("rules", [TaskRules(), TaskRules(fold_files=1_000)], ids=["folded", "never folded"])
def test_duckdb_pyiceberg_and_spark_read_the_rows_of_the_model(world: World, rules: TaskRules) -> None:
    world.tasks = rules
    world.add("orders", json.dumps(SCHEMA))
    rows = orders(random.Random(17), BATCHES * ROWS, keys=40)
    for at in range(0, len(rows), ROWS):
        world.publish("orders", rows[at : at + ROWS])
        world.cycle()
    assert_tables(world, "orders", replayed(world, "orders", SCHEMA, pii_key=PII_KEY))
    for table in (world.databases.standardized_table("orders"), world.databases.curated_table("orders")):
        view = world.embedded.platform.catalog.load(table)
        assert view is not None
        assert len(view.ancestors()) >= BATCHES * 3 // 4
        assert int(view.snapshots[view.head].summary["total-position-deletes"]) > 0
        columns = sorted(view.columns)
        by_pyiceberg = told(world.rows(table), columns)
        assert len(by_pyiceberg) > 30
        by_duckdb = told(read_by_duckdb(world, table, columns), columns)
        by_spark = world.embedded.spark().table(f"{CATALOG}.{table}").select(*columns).collect()
        assert by_duckdb == by_pyiceberg
        assert told((row.asDict() for row in by_spark), columns) == by_pyiceberg


def read_by_duckdb(world: World, table: str, columns: list[str]) -> Iterable[dict[str, Any]]:
    """What is in the files and not deleted, as DuckDB alone reads them; it names files without their scheme."""
    files = world.embedded.catalog.load_table(table).inspect.files().select(["content", "file_path"]).to_pylist()
    paths = {kind: [file["file_path"] for file in files if file["content"] == kind] for kind in (0, 1)}
    assert paths[1]
    listed = ", ".join(f'"{name}"' for name in columns)
    statement = f"""
        SELECT {listed} FROM read_parquet(?, union_by_name = true, filename = true, file_row_number = true) AS rows
        WHERE NOT EXISTS (
            FROM read_parquet(?) AS dead
            WHERE dead.file_path = 'file://' || rows.filename AND dead.pos = rows.file_row_number
        )"""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(statement, [paths[0], paths[1]]).fetchall()
    return (dict(zip(columns, row, strict=True)) for row in found)


def told(rows: Iterable[dict[str, Any]], columns: list[str]) -> list[tuple[str, ...]]:
    """Rows as texts, in an order of their own."""
    return sorted(tuple(_text(row[name]) for name in columns) for row in rows)


def _text(value: Any) -> str:
    return f"{value.timestamp():.6f}" if isinstance(value, datetime) else str(value)
