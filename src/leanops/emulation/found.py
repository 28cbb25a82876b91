"""The real tables of a topic beside its fates, and the comparison of the two."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from leanops.emulation.fates import Fates, listed
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


class Found:
    """What the tables hold, loaded beside what they must hold."""

    def __init__(self, runtime: Embedded, topic: str, fates: Fates) -> None:
        self._runtime, self._topic, self._fates = runtime, topic, fates
        fates.register("nothing", _EMPTY)

    def load(self, name: str, table: str, *, topic_only: bool = False) -> Mapping[str, str]:
        """A real table as `name`, and its payload columns by path; one that is not there yet is empty."""
        view = self._runtime.platform.catalog.load(table)
        if view is None:
            self._fates.connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM nothing")
            return {}
        self._fates.connection.execute(f"CREATE OR REPLACE TABLE {name} AS {self._rows(table, topic_only)}")
        return view.paths

    def _rows(self, table: str, topic_only: bool) -> str:
        """The rows of a table as DuckDB reads them from its files; no code of ours stands between."""
        chosen = f"topic_name = {text(self._topic)}" if topic_only else "true"
        tasks = list(self._runtime.catalog.load_table(table).scan(chosen).plan_files())
        if not tasks:
            return "FROM nothing"
        data = listed(_path(task.file.file_path) for task in tasks)
        deletes = sorted({_path(one.file_path) for task in tasks for one in task.delete_files})
        rows = (
            f"FROM read_parquet({data}, union_by_name = true, filename = true, file_row_number = true) WHERE {chosen}"
        )
        if not deletes:
            return rows
        place = "regexp_replace(file_path, '^file:(//)?', '') AS filename, pos"
        gone = f"SELECT {place} FROM read_parquet({listed(deletes)})"
        return (
            f"SELECT r.* FROM ({rows}) r ANTI JOIN ({gone}) d ON d.filename = r.filename AND d.pos = r.file_row_number"
        )

    def compare(self, name: str, expected: str, found: str, key: str, differs: Mapping[str, str]) -> Check:
        """Rows of both sides by key; `differs` says by which word a difference is called, and when there is one."""
        both = f"FROM ({expected}) e FULL JOIN ({found}) f USING ({key})"
        wrong = " OR ".join(["e.message_id IS NULL", "f.message_id IS NULL", *(f"({one})" for one in differs.values())])
        expected_rows, found_rows, wrong_rows = self._fates.rows(
            f"SELECT count(e.message_id), count(f.message_id), count(*) FILTER (WHERE {wrong}) {both}"
        )[0]
        # Only where something differs is it worth asking what.
        examples = self._examples(both, wrong, differs) if wrong_rows else ()
        return Check(name, expected_rows, found_rows, wrong_rows, examples)

    def _examples(self, both: str, wrong: str, differs: Mapping[str, str]) -> tuple[Wrong, ...]:
        words = ", ".join(f"CASE WHEN {one} THEN {text(word)} END" for word, one in differs.items()) or "NULL"
        said = f"array_to_string(list_filter([{words}], lambda word: word IS NOT NULL), ', ')"
        rows = self._fates.rows(
            "SELECT coalesce(e.message_id, f.message_id), CASE WHEN f.message_id IS NULL THEN 'is missing' "
            f"WHEN e.message_id IS NULL THEN 'must not be there' ELSE 'differs in ' || {said} END "
            f"{both} WHERE {wrong} ORDER BY 1 LIMIT {EXAMPLES}"
        )
        return tuple(Wrong(message, what) for message, what in rows)


_EMPTY = pa.table(
    {
        "message_id": pa.array([], pa.string()),
        "record_key": pa.array([], pa.string()),
        "idempotency_key": pa.array([], pa.string()),
        "period_reference": pa.array([], pa.string()),
        "ingestion_ts": pa.array([], pa.int64()),
        "first_seen_ts": pa.array([], pa.int64()),
        "publish_time": pa.array([], pa.timestamp("us", "UTC")),
        "last_updated_ts": pa.array([], pa.timestamp("us", "UTC")),
    }
)


def _path(uri: str) -> str:
    """Spark and PyIceberg do not agree on the slashes."""
    return uri.removeprefix("file:").replace("///", "/", 1)


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'
