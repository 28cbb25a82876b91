"""The real tables, in a DuckDB beside what they must hold, and their comparison."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from leanops.adapters.iceberg.definitions import iceberg_schema
from leanops.domain.table.definitions import CURATED, ERRORS, OPS, STANDARDIZED
from leanops.emulation.events.profile import Profile
from leanops.emulation.verify.boundaries import SCHEME, local
from leanops.runtimes.embedded import Embedded

EXAMPLES = 20
MEMORY = "1GB"
"""For each database; two topics are verified at once."""


@dataclass(frozen=True)
class Wrong:
    """A message that is not where or what it must be."""

    message_id: str
    what: str


@dataclass(frozen=True)
class Check:
    """A law on a topic: how many rows were expected and found, and which of them break it."""

    name: str
    expected: int
    found: int
    wrong: int = 0
    examples: tuple[Wrong, ...] = ()

    @property
    def passed(self) -> bool:
        return self.wrong == 0 and self.expected == self.found

    @classmethod
    def of(cls, name: str, expected: int, found: int, wrong: Sequence[Wrong]) -> "Check":
        """A check that counts everything wrong and keeps some examples."""
        return cls(name, expected, found, len(wrong), tuple(wrong[:EXAMPLES]))

    @classmethod
    def none(cls, name: str, wrong: Sequence[Wrong]) -> "Check":
        """A check on rows that must not exist."""
        return cls.of(name, 0, len(wrong), wrong)

    def as_json(self) -> dict[str, Any]:
        """The fields and whether it passed, in the words of `emulate verify --json`."""
        numbers = {"expected": self.expected, "found": self.found, "wrong": self.wrong}
        return {"check": self.name, "passed": self.passed, **numbers, "messages": self.examples}


class Database:
    """A DuckDB in memory, which spills to the disk of the home."""

    def __init__(self, home: Path) -> None:
        # By default DuckDB takes most of the memory, of which a JVM already has a good part.
        folder = str(home / "scratch" / "duckdb")
        self.connection = duckdb.connect(config={"temp_directory": folder, "memory_limit": MEMORY})

    def register(self, name: str, rows: Any) -> None:
        """Copy rows into a table of this database."""
        self.connection.register("given", rows)
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")
        self.connection.unregister("given")

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, list(parameters)).fetchall()

    def close(self) -> None:
        self.connection.close()


class Tables(Database):
    """A database with what the tables of a home hold."""

    def __init__(self, runtime: Embedded) -> None:
        super().__init__(runtime.home)
        self.runtime, self.names = runtime, runtime.platform.rules.databases

    def load(self, name: str, table: str, topic: str | None = None) -> Mapping[str, str]:
        """Load a real table, or its rows of a topic, as `name`, empty if there is none; returns its columns by path."""
        view = self.runtime.platform.catalog.load(table)
        if view is None:
            self.register(name, self._empty(table))
            return {}
        self.register("nothing", self.runtime.catalog.load_table(table).schema().as_arrow().empty_table())
        chosen = f"topic_name = {text(topic)}" if topic else "true"
        rows = f"SELECT * FROM ({self._files(table, chosen)}) WHERE {chosen}"
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS {rows}")
        return view.paths

    def _empty(self, table: str) -> pa.Table:
        """An empty table with at least the columns that a table will have."""
        shared = dict.fromkeys((self.names.errors, self.names.parse_errors, self.names.dlq_errors), ERRORS)
        shared |= {self.names.ops_table(name): definition for name, definition in OPS.items()}
        layers = replace(CURATED, columns={**STANDARDIZED.columns, **CURATED.columns})
        return iceberg_schema(shared.get(table, layers)).as_arrow().empty_table()

    def _files(self, table: str, chosen: str) -> str:
        """The rows of a table as DuckDB reads them from its files, with no code of ours in between."""
        tasks = list(self.runtime.catalog.load_table(table).scan(chosen).plan_files())
        if not tasks:
            return "FROM nothing"
        data = listed(local(task.file.file_path) for task in tasks)
        # A column that is newer than a file is NULL there, and before the next batch it is in no file.
        rows = (
            "FROM nothing UNION ALL BY NAME "
            f"FROM read_parquet({data}, union_by_name = true, filename = true, file_row_number = true)"
        )
        deletes = sorted({local(delete.file_path) for task in tasks for delete in task.delete_files})
        if not deletes:
            return rows
        gone = f"SELECT regexp_replace(file_path, '{SCHEME}', '') AS filename, pos FROM read_parquet({listed(deletes)})"
        return (
            f"SELECT r.* FROM ({rows}) r ANTI JOIN ({gone}) d ON d.filename = r.filename AND d.pos = r.file_row_number"
        )

    def compare(self, name: str, expected: str, found: str, key: str, differs: Mapping[str, str]) -> Check:
        """Compare both sides by key; `differs` maps the name of a difference to its condition."""
        both = f"FROM ({expected}) e FULL JOIN ({found}) f USING ({key})"
        conditions = [f"({condition})" for condition in differs.values()]
        wrong = " OR ".join(["e.message_id IS NULL", "f.message_id IS NULL", *conditions])
        expected_rows, found_rows, wrong_rows = self.rows(
            f"SELECT count(e.message_id), count(f.message_id), count(*) FILTER (WHERE {wrong}) {both}"
        )[0]
        # What differs is worth a query only if anything does.
        examples = self._examples(both, wrong, differs) if wrong_rows else ()
        return Check(name, expected_rows, found_rows, wrong_rows, examples)

    def _examples(self, both: str, wrong: str, differs: Mapping[str, str]) -> tuple[Wrong, ...]:
        words = (
            ", ".join(f"CASE WHEN {condition} THEN {text(word)} END" for word, condition in differs.items()) or "NULL"
        )
        names = f"array_to_string(list_filter([{words}], lambda word: word IS NOT NULL), ', ')"
        rows = self.rows(
            "SELECT coalesce(e.message_id, f.message_id), CASE WHEN f.message_id IS NULL THEN 'is missing' "
            f"WHEN e.message_id IS NULL THEN 'must not be there' ELSE 'differs in ' || {names} END "
            f"{both} WHERE {wrong} ORDER BY 1 LIMIT {EXAMPLES}"
        )
        return tuple(Wrong(message, what) for message, what in rows)

    def in_clear(self, name: str, table: str, profiles: Iterable[Profile]) -> list[Wrong]:
        """The rows of a table, loaded as `name`, in which personal data of a profile can be read."""
        shapes = "|".join(sorted({leaf.shape for profile in profiles for leaf in profile.leaves if leaf.shape}))
        if not shapes:
            return []
        # The name of a file, which DuckDB adds, is random: now and then it looks like the number of a card.
        columns = [column for column, kind, *_ in self.rows(f"DESCRIBE {name}") if "VARCHAR" in kind]
        texts = ", ".join(f"{identifier(column)}::VARCHAR" for column in columns if column != "filename")
        clear = f"SELECT coalesce(message_id, '-') FROM {name} WHERE regexp_matches(concat_ws(' ', {texts}), ?)"
        return [Wrong(message, f"is in plain text in {table}") for (message,) in self.rows(clear, [shapes])]


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def listed(paths: Iterable[str]) -> str:
    """Paths as a list in SQL."""
    return f"[{', '.join(map(text, paths))}]"
