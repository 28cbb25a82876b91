"""The real tables of a topic beside its fates, and the comparison of the two."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from leanops.domain.table.definitions import (
    BOOLEAN,
    CURATED,
    DOUBLE,
    ERRORS,
    FAILURE,
    FAILURES,
    INT,
    LONG,
    NUMBER,
    OPS,
    STANDARDIZED,
    STRING,
    TIMESTAMP,
)
from leanops.emulation.verify.boundaries import SCHEME, local
from leanops.emulation.verify.fates import Database, listed
from leanops.runtimes.embedded import Embedded

EXAMPLES = 20


@dataclass(frozen=True)
class Wrong:
    """A message that is not where or what it must be."""

    message_id: str
    what: str


@dataclass(frozen=True)
class Check:
    """One law on one topic: how many it was held against, how many were found, and which of them break it."""

    name: str
    expected: int
    found: int
    wrong: int = 0
    examples: tuple[Wrong, ...] = ()

    @property
    def passed(self) -> bool:
        return self.wrong == 0 and self.expected == self.found

    def as_json(self) -> dict[str, Any]:
        """The fields and whether it passed, in the words of `emulate verify --json`."""
        numbers = {"expected": self.expected, "found": self.found, "wrong": self.wrong}
        return {"check": self.name, "passed": self.passed, **numbers, "messages": self.examples}


class Found:
    """What the tables hold, loaded beside what they must hold."""

    def __init__(self, runtime: Embedded, topic: str, database: Database) -> None:
        self._runtime, self._topic, self._database = runtime, topic, database

    def load(self, name: str, table: str, *, topic_only: bool = False) -> Mapping[str, str]:
        """A real table as `name`, and its payload columns by path; one that is not there yet is empty."""
        view = self._runtime.platform.catalog.load(table)
        if view is None:
            self._database.register(name, self._nothing(table))
            return {}
        self._database.register("nothing", self._runtime.catalog.load_table(table).schema().as_arrow().empty_table())
        chosen = f"topic_name = {text(self._topic)}" if topic_only else "true"
        rows = f"SELECT * FROM ({self._rows(table, chosen)}) WHERE {chosen}"
        self._database.connection.execute(f"CREATE OR REPLACE TABLE {name} AS {rows}")
        return view.paths

    def _nothing(self, table: str) -> pa.Table:
        """No rows of a table that is not there, with the columns it will have at least."""
        databases = self._runtime.platform.rules.databases
        if table in (databases.errors, databases.parse_errors, databases.dlq_errors):
            columns = ERRORS.columns
        else:
            ops = {databases.ops_table(name): definition.columns for name, definition in OPS.items()}
            columns = ops.get(table) or {**STANDARDIZED.columns, **CURATED.columns}
        return pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()]).empty_table()

    def _rows(self, table: str, chosen: str) -> str:
        """The rows of a table as DuckDB reads them from its files; no code of ours stands between."""
        tasks = list(self._runtime.catalog.load_table(table).scan(chosen).plan_files())
        if not tasks:
            return "FROM nothing"
        data = listed(local(task.file.file_path) for task in tasks)
        # A column that was added since a file was written is NULL there, and in no file yet before the next batch.
        rows = (
            "FROM nothing UNION ALL BY NAME "
            f"FROM read_parquet({data}, union_by_name = true, filename = true, file_row_number = true)"
        )
        deletes = sorted({local(one.file_path) for task in tasks for one in task.delete_files})
        if not deletes:
            return rows
        gone = f"SELECT regexp_replace(file_path, '{SCHEME}', '') AS filename, pos FROM read_parquet({listed(deletes)})"
        return (
            f"SELECT r.* FROM ({rows}) r ANTI JOIN ({gone}) d ON d.filename = r.filename AND d.pos = r.file_row_number"
        )

    def compare(self, name: str, expected: str, found: str, key: str, differs: Mapping[str, str]) -> Check:
        """Rows of both sides by key; `differs` says by which word a difference is called, and when there is one."""
        both = f"FROM ({expected}) e FULL JOIN ({found}) f USING ({key})"
        wrong = " OR ".join(["e.message_id IS NULL", "f.message_id IS NULL", *(f"({one})" for one in differs.values())])
        expected_rows, found_rows, wrong_rows = self._database.rows(
            f"SELECT count(e.message_id), count(f.message_id), count(*) FILTER (WHERE {wrong}) {both}"
        )[0]
        # Only where something differs is it worth asking what.
        examples = self._examples(both, wrong, differs) if wrong_rows else ()
        return Check(name, expected_rows, found_rows, wrong_rows, examples)

    def _examples(self, both: str, wrong: str, differs: Mapping[str, str]) -> tuple[Wrong, ...]:
        words = ", ".join(f"CASE WHEN {one} THEN {text(word)} END" for word, one in differs.items()) or "NULL"
        said = f"array_to_string(list_filter([{words}], lambda word: word IS NOT NULL), ', ')"
        rows = self._database.rows(
            "SELECT coalesce(e.message_id, f.message_id), CASE WHEN f.message_id IS NULL THEN 'is missing' "
            f"WHEN e.message_id IS NULL THEN 'must not be there' ELSE 'differs in ' || {said} END "
            f"{both} WHERE {wrong} ORDER BY 1 LIMIT {EXAMPLES}"
        )
        return tuple(Wrong(message, what) for message, what in rows)


_ARROW = {
    STRING: pa.string(),
    LONG: pa.int64(),
    INT: pa.int32(),
    DOUBLE: pa.float64(),
    BOOLEAN: pa.bool_(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    NUMBER: pa.decimal128(38, 9),
    FAILURES: pa.list_(pa.struct([(name, pa.string()) for name in FAILURE])),
}


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'
