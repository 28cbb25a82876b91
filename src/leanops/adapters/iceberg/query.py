"""SQL over the tables without Spark: DuckDB reads what PyIceberg streams, and nothing else."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import Table

from leanops.adapters.iceberg.syntax import Syntax
from leanops.domain.errors import UsageError
from leanops.domain.groups import in_groups
from leanops.ports.query import Answer, quoted

ROWS_AT_ONCE = 10_000
_KIND = re.compile(r"^[A-Z][A-Za-z ]* Error: ")


class DuckQuery:
    """The Query port on any PyIceberg catalog; `scratch` is where large sorts may spill."""

    def __init__(self, catalog: Catalog, scratch: Path, *, bytes_at_once: int = 64 << 20) -> None:
        self._catalog, self._scratch, self._bytes_at_once = catalog, scratch, bytes_at_once

    def ask(self, statement: str, parameters: Sequence[Any] = ()) -> Answer:
        connection = _connected(self._scratch)
        try:
            syntax = Syntax.parse(_one(connection, "SELECT json_serialize_sql(?)", [statement]), parameters)
            if syntax.asks_for_tables():
                connection.close()
                return Answer(("table",), iter([(name,) for name in self._names()]))
            tables = {name: self._table(name) for name in dict.fromkeys(syntax.tables())}
            _declare(connection, tables)
            read = _columns_read(connection, statement, parameters)
            for name, table in tables.items():
                _expose(connection, name, self._scan(table, read.get(name, ()), syntax))
            connection.execute("SET lock_configuration = true")
            relation = connection.sql(statement, params=list(parameters) or None)
            return Answer(_unique(relation.columns), _rows(connection, relation.to_arrow_reader(ROWS_AT_ONCE)))
        except duckdb.Error as wrong:
            connection.close()
            raise UsageError(_one_line(wrong)) from None
        except BaseException:
            connection.close()
            raise

    def _table(self, name: str) -> Table:
        try:
            if name.count(".") == 1:
                return self._catalog.load_table(name)
        except NoSuchTableError:
            pass
        raise UsageError(f"there is no table {name!r}; {self._suggestion(name)}")

    def _scan(self, table: Table, columns: Sequence[str], syntax: Syntax) -> "Scan":
        types = {field.name: str(field.field_type) for field in table.schema().fields}
        return Scan(table, columns, syntax.filter_for(".".join(table.name()), types), self._bytes_at_once)

    def _names(self) -> list[str]:
        spaces = self._catalog.list_namespaces()
        return sorted(".".join(table) for space in spaces for table in self._catalog.list_tables(space))

    def _suggestion(self, name: str) -> str:
        known = self._names()
        same = [full for full in known if full.split(".")[-1] == name.split(".")[-1]]
        close = same or difflib.get_close_matches(name, known, n=1)
        close = close or [full for full in known if difflib.get_close_matches(name, full.split("."))]
        return f"did you mean {' or '.join(close[:3])}?" if close else 'see them with: leanops sql "show tables"'


def _connected(scratch: Path) -> duckdb.DuckDBPyConnection:
    """A database in memory that has no access to files, the network or Python variables."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "python_enable_replacements": "false",
        "autoload_known_extensions": "false",
        "temp_directory": str(scratch / "duckdb"),
    }
    connection = duckdb.connect(config=config)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _one(connection: duckdb.DuckDBPyConnection, statement: str, parameters: Sequence[Any]) -> str:
    return str(connection.execute(statement, list(parameters)).fetchall()[0][-1])


def _declare(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Table]) -> None:
    """Empty tables of the same names and types, so that DuckDB can plan the statement before anything is read."""
    for name, table in tables.items():
        database = name.split(".")[0]
        connection.register("declared", schema_to_pyarrow(table.schema(), include_field_ids=False).empty_table())
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_identifier(database)}")
        connection.execute(f"CREATE TABLE {quoted(name)} AS FROM declared")
        connection.unregister("declared")


def _columns_read(
    connection: duckdb.DuckDBPyConnection, statement: str, parameters: Sequence[Any]
) -> dict[str, list[str]]:
    """The columns of each table that the plan of the statement reads."""
    others = [name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall() if name != "unused_columns"]
    # What is known of the empty tables must not shape the plan: nothing is left to be decided but the columns.
    connection.execute(f"SET disabled_optimizers = '{','.join(others)}'")
    plan = json.loads(_one(connection, f"EXPLAIN (FORMAT JSON) {statement}", parameters))
    connection.execute("RESET disabled_optimizers")
    read: dict[str, list[str]] = {}
    for operator in _operators(plan):
        details = operator.get("extra_info") or {}
        if isinstance(details, dict) and "Table" in details:
            columns = details.get("Projections") or []
            table = ".".join(details["Table"].split(".")[-2:])
            read.setdefault(table, []).extend([columns] if isinstance(columns, str) else columns)
    return {table: list(dict.fromkeys(columns)) for table, columns in read.items()}


def _operators(plan: Any) -> Iterator[dict[str, Any]]:
    for operator in plan if isinstance(plan, list) else [plan]:
        yield operator
        yield from _operators(operator.get("children") or [])


class Scan:
    """Some columns of a table at one snapshot, a few files at a time; an Arrow stream that can be opened repeatedly."""

    def __init__(self, table: Table, columns: Sequence[str], row_filter: BooleanExpression, bytes_at_once: int) -> None:
        self._bytes_at_once = bytes_at_once
        self.columns = tuple(columns) or _smallest(table)
        self._scan = table.scan(selected_fields=self.columns, row_filter=row_filter)
        self.schema = schema_to_pyarrow(self._scan.projection(), include_field_ids=False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        scan = self._scan
        # PyIceberg holds all files it is given at once.
        files = in_groups(scan.plan_files(), lambda task: task.file.file_size_in_bytes, most_bytes=self._bytes_at_once)
        for tasks in files:
            read = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter, scan.case_sensitive)
            for batch in read.to_record_batches(tasks):
                yield batch.cast(self.schema)


def _smallest(table: Table) -> tuple[str, ...]:
    """One column for a reader that only counts rows."""
    fixed = [field.name for field in table.schema().fields if str(field.field_type) in ("int", "long", "timestamptz")]
    return tuple(fixed[:1]) or (table.schema().fields[0].name,)


def _expose(connection: duckdb.DuckDBPyConnection, name: str, scan: Scan) -> None:
    """Replace the declared table by a view of the scan; columns that the plan does not read are NULL."""
    described = connection.execute(f"DESCRIBE {quoted(name)}").fetchall()
    stream = f"scan of {name}"
    connection.execute(f"DROP TABLE {quoted(name)}")
    connection.register(stream, scan)
    columns = ", ".join(
        _identifier(column) if column in scan.columns else f"NULL::{kind} AS {_identifier(column)}"
        for column, kind, *_ in described
    )
    connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT {columns} FROM {_identifier(stream)}")


def _rows(connection: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    try:
        for batch in reader:
            columns = zip(batch.schema.names, batch.columns, strict=True)
            yield from zip(*(_values(name, column) for name, column in columns), strict=True)
    except (duckdb.Error, pa.ArrowException) as wrong:
        raise UsageError(_one_line(wrong)) from None
    finally:
        connection.close()


def _values(name: str, column: pa.Array) -> list[Any]:
    """The values of a column as Python has them."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        raise UsageError(
            f"column {name!r} holds a time outside the years 0001 to 9999, which cannot be shown; "
            f"ask for its number of microseconds instead: epoch_us({_identifier(name)})"
        ) from None


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Column names, numbered where a name occurs twice."""
    unique: list[str] = []
    for name in names:
        candidates = (name if not n else f"{name}_{n}" for n in count())
        unique.append(next(candidate for candidate in candidates if candidate not in unique))
    return tuple(unique)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _one_line(wrong: Exception) -> str:
    """DuckDB's message without the excerpt of the statement."""
    message = str(wrong).split("\n\nLINE ")[0].split("\nLINE ")[0]
    return " ".join(_KIND.sub("", message).split())
