"""The real tables of a topic, and their comparison with what they must hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from leanops.adapters.iceberg.definitions import iceberg_schema
from leanops.domain.table.definitions import CURATED, ERRORS, OPS, STANDARDIZED
from leanops.emulation.events.profile import Profile
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


class Found:
    """Loads what the tables hold beside what they must hold."""

    def __init__(self, runtime: Embedded, topic: str, database: Database) -> None:
        self._runtime, self._topic, self._database = runtime, topic, database

    def load(self, name: str, table: str, *, topic_only: bool = False) -> Mapping[str, str]:
        """Load a real table as `name`, empty if it does not exist yet; returns its payload columns by path."""
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
        """An empty table with at least the columns that a table will have."""
        databases = self._runtime.platform.rules.databases
        shared = dict.fromkeys((databases.errors, databases.parse_errors, databases.dlq_errors), ERRORS)
        shared |= {databases.ops_table(name): definition for name, definition in OPS.items()}
        layers = replace(CURATED, columns={**STANDARDIZED.columns, **CURATED.columns})
        return iceberg_schema(shared.get(table, layers)).as_arrow().empty_table()

    def _rows(self, table: str, chosen: str) -> str:
        """The rows of a table as DuckDB reads them from its files, with no code of ours in between."""
        tasks = list(self._runtime.catalog.load_table(table).scan(chosen).plan_files())
        if not tasks:
            return "FROM nothing"
        data = listed(local(task.file.file_path) for task in tasks)
        # A column that is newer than a file is NULL there, and before the next batch it is in no file.
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
        """Compare both sides by key; `differs` maps the name of a difference to its condition."""
        both = f"FROM ({expected}) e FULL JOIN ({found}) f USING ({key})"
        wrong = " OR ".join(["e.message_id IS NULL", "f.message_id IS NULL", *(f"({one})" for one in differs.values())])
        expected_rows, found_rows, wrong_rows = self._database.rows(
            f"SELECT count(e.message_id), count(f.message_id), count(*) FILTER (WHERE {wrong}) {both}"
        )[0]
        # What differs is worth a query only if anything does.
        examples = self._examples(both, wrong, differs) if wrong_rows else ()
        return Check(name, expected_rows, found_rows, wrong_rows, examples)

    def _examples(self, both: str, wrong: str, differs: Mapping[str, str]) -> tuple[Wrong, ...]:
        words = ", ".join(f"CASE WHEN {one} THEN {text(word)} END" for word, one in differs.items()) or "NULL"
        names = f"array_to_string(list_filter([{words}], lambda word: word IS NOT NULL), ', ')"
        rows = self._database.rows(
            "SELECT coalesce(e.message_id, f.message_id), CASE WHEN f.message_id IS NULL THEN 'is missing' "
            f"WHEN e.message_id IS NULL THEN 'must not be there' ELSE 'differs in ' || {names} END "
            f"{both} WHERE {wrong} ORDER BY 1 LIMIT {EXAMPLES}"
        )
        return tuple(Wrong(message, what) for message, what in rows)


def in_clear(database: Database, name: str, table: str, profiles: Iterable[Profile]) -> list[Wrong]:
    """The rows of a table, loaded as `name`, in which personal data of a profile can be read."""
    shapes = "|".join(sorted({leaf.shape for profile in profiles for leaf in profile.leaves if leaf.shape}))
    if not shapes:
        return []
    columns = database.rows(f"DESCRIBE {name}")
    texts = ", ".join(f"{identifier(column)}::VARCHAR" for column, kind, *_ in columns if "VARCHAR" in kind)
    clear = f"SELECT coalesce(message_id, '-') FROM {name} WHERE regexp_matches(concat_ws(' ', {texts}), ?)"
    return [Wrong(message, f"is in clear in {table}") for (message,) in database.rows(clear, [shapes])]


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'
