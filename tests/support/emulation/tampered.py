"""Changes to the tables of an emulation that no code of ours would make, through their catalog or behind its back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from leanops.emulation.play.phases import Emulation
from leanops.emulation.verify.boundaries import local

Row = dict[str, Any]


@dataclass
class Tampered:
    """The tables of one topic."""

    emulation: Emulation
    topic: str = "orders"
    asked: set[str] = field(default_factory=set)

    @cached_property
    def names(self) -> Mapping[str, str]:
        databases = self.emulation.runtime.platform.rules.databases
        return {
            "raw": databases.raw_table(self.topic),
            "standardized": databases.standardized_table(self.topic),
            "curated": databases.curated_table(self.topic),
            "dead": databases.dlq_errors,
            "unparsed": databases.parse_errors,
            "refused": databases.errors,
            "drift": databases.ops_table("drift_log"),
            "runs": databases.ops_table("job_run_history"),
        }

    def table(self, name: str) -> Table:
        return self.emulation.runtime.catalog.load_table(self.names[name])

    def rows(self, name: str, where: str = "") -> list[Row]:
        """The topic's rows of a table, in an order that is always the same."""
        chosen = f"topic_name = '{self.topic}'" + (f" and {where}" if where else "")
        found: list[Row] = self.table(name).scan(chosen).to_arrow().to_pylist()
        order = {"drift": "details", "runs": "batch_id"}.get(name, "message_id")
        return sorted(found, key=lambda row: (str(row[order]), str(row.get("action"))))

    def some(self, name: str, where: str = "") -> Row:
        """A row nobody has asked for yet, as long as there is one."""
        rows = self.rows(name, where)
        row = next((row for row in rows if _is(name, row) not in self.asked), rows[-1])
        self.asked.add(_is(name, row))
        return row

    def add(self, name: str, *rows: Row) -> None:
        table = self.table(name)
        table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))

    def remove(self, name: str, row: Row) -> None:
        self.table(name).delete(_is(name, row))

    def change(self, name: str, row: Row, **values: Any) -> str:
        """Other values in one row; the message it is about."""
        self.remove(name, row)
        self.add(name, row | values)
        return str(row.get("message_id") or row.get("batch_id") or row["details"])

    def put_back(self, name: str, commits: int) -> None:
        """A table as it was N commits ago, behind the back of the pipeline."""
        table = self.table(name)
        history = [entry.snapshot_id for entry in table.history()]
        table.overwrite(table.scan(snapshot_id=history[-1 - commits]).to_arrow())

    def rewrite(self, name: str, column: str, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> None:
        """Another type of column in a file, behind the catalog's back."""
        path = local(next(iter(self.table(name).scan().plan_files())).file.file_path)
        stored = pq.read_table(path, partitioning=None)
        at = stored.schema.get_field_index(column)
        changed = change(stored.column(at))
        field = pa.field(column, changed.type, metadata=stored.schema.field(at).metadata)
        pq.write_table(stored.set_column(at, field, changed), path)

    def mark(self, values: Mapping[str, int]) -> None:
        """A commit to Standardized that changes no row, but numbers its watermark carries."""
        table = self.table("standardized")
        last = table.current_snapshot()
        assert last is not None
        assert last.summary is not None
        marks = {key: value for key, value in last.summary.additional_properties.items() if key.startswith("leanops.")}
        keys = {
            name: f"leanops.total.{name}" if f"leanops.total.{name}" in marks else f"leanops.{name}" for name in values
        }
        marks |= {keys[name]: str(int(marks[keys[name]]) + more) for name, more in values.items()}
        table.append(table.schema().as_arrow().empty_table(), snapshot_properties=marks)


_KEYS = {"drift": ("topic_name", "details", "action"), "runs": ("run_id",)}


def _is(name: str, row: Row) -> str:
    """A filter for a row of a table; other values do not make it another row."""
    return " and ".join(f"{column} = '{row[column]}'" for column in _KEYS.get(name, ("topic_name", "message_id")))


Change = Callable[[Tampered], str]
"""Changes something, and says what the check must name; '' where the check has only numbers."""


def changed(table: str, **values: Any) -> Change:
    return lambda tables: tables.change(table, tables.some(table), **values)


def removed(table: str) -> Change:
    def change(tables: Tampered) -> str:
        row = tables.some(table)
        tables.remove(table, row)
        return str(row["message_id"])

    return change


def doubled(table: str, **values: Any) -> Change:
    def change(tables: Tampered) -> str:
        row = tables.some(table)
        tables.add(table, row | values)
        return str((row | values)["message_id"])

    return change


def failing(table: str, **values: str) -> Change:
    def change(tables: Tampered) -> str:
        row = tables.some(table)
        return tables.change(table, row, failures=[failure | values for failure in row["failures"]])

    return change


def lost(table: str) -> Change:
    """The last batch of a layer is not there."""

    def change(tables: Tampered) -> str:
        batch = newest(tables, table)
        tables.put_back(table, 1)
        return str(batch[0]["message_id"])

    return change


def twice(table: str) -> Change:
    """The last batch of a layer is there twice."""

    def change(tables: Tampered) -> str:
        batch = newest(tables, table)
        tables.add(table, *batch)
        return str(batch[0]["message_id"])

    return change


def newest(tables: Tampered, table: str) -> list[Row]:
    rows = tables.rows(table)
    return [row for row in rows if row["_batch_seq"] == max(row["_batch_seq"] for row in rows)]


def nameless(change: Change) -> Change:
    def silent(tables: Tampered) -> str:
        change(tables)
        return ""

    return silent
