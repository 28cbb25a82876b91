"""The balance of a topic: every row that was read is in exactly one place, as the tables themselves show."""

from dataclasses import dataclass
from typing import Any

from leanops.domain.errors import LeanOpsError
from leanops.domain.table.history import (
    TableView,
    Watermark,
    foreign_snapshots,
    new_range,
    retired_rows,
    rows_in,
    valid_watermark,
)
from leanops.ports.query import quoted
from leanops.views.sources import Sources, time_of


@dataclass(frozen=True)
class Check:
    """Two numbers that must be equal."""

    name: str
    expected: int
    found: int

    @property
    def balanced(self) -> bool:
        return self.expected == self.found

    def __str__(self) -> str:
        sign = "=" if self.balanced else "≠"
        return f"{self.name}: {self.expected:,} {sign} {self.found:,}"

    def as_json(self) -> dict[str, Any]:
        """The numbers, and whether they are equal."""
        return {**vars(self), "balanced": self.balanced}


@dataclass(frozen=True)
class Balance:
    """The checks of a topic, and the problems that prevent others."""

    checks: tuple[Check, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Worth knowing, but not a problem."""

    @property
    def balanced(self) -> bool:
        return not self.problems and all(check.balanced for check in self.checks)

    def complaints(self) -> list[str]:
        """The problems and the checks that fail, one line each."""
        return [*self.problems, *(str(check) for check in self.checks if not check.balanced)]

    def as_json(self) -> dict[str, Any]:
        """The fields, and whether the topic is balanced."""
        return {"balanced": self.balanced, **vars(self)}

    def __add__(self, other: "Balance") -> "Balance":
        return Balance(self.checks + other.checks, self.problems + other.problems, self.notes + other.notes)


def lag_of(raw: TableView | None, standardized: TableView | None) -> int:
    """RAW rows that are not standardized yet; raises if RAW was rewritten."""
    if raw is None:
        return 0
    waiting = new_range(raw, valid_watermark(standardized) if standardized else None)
    return waiting.rows if waiting else 0


def running_totals(raw: TableView | None, standardized: TableView | None) -> Balance:
    """The two laws of the running totals, from metadata alone."""
    mark = valid_watermark(standardized) if standardized else None
    if mark is None:
        return Balance()
    totals = mark.totals
    accounted = totals.rows - totals.base_rows + totals.updated + totals.duplicates + totals.superseded
    standard = Check("read since the base = found in Standardized", totals.read, accounted + totals.parse_errors)
    try:
        kept = _raw_rows_at(raw, mark)
    except LeanOpsError as failure:
        return Balance((standard,), (str(failure),))
    if kept is None:
        return Balance((standard,), ("RAW is not the table this topic was read from; the next cycle reads all of it",))
    return Balance((standard, Check("read and before the base = RAW rows", totals.base_raw_rows + totals.read, kept)))


def _raw_rows_at(raw: TableView | None, mark: Watermark) -> int | None:
    """RAW rows up to the watermark, retired ones included; None if RAW no longer has that snapshot."""
    if raw is None or raw.uuid != mark.source_uuid:
        return None
    waiting = new_range(raw, mark)
    if waiting and waiting.is_gap:
        return None
    return rows_in(raw) + retired_rows(raw) - (waiting.rows if waiting else 0)


def at_a_glance(
    sources: Sources, topic: str, raw: TableView | None, standardized: TableView | None, curated: TableView | None
) -> Balance:
    """The running totals, the rows of Standardized and snapshots of other tools; from metadata where that is exact."""
    balance = running_totals(raw, standardized)
    mark = valid_watermark(standardized) if standardized else None
    if standardized and mark:
        balance += Balance((_carried(mark, _rows_now(sources, standardized, mark.totals.rows)),))
    for layer, table in (("Standardized", standardized), ("Curated", curated)):
        balance += _foreign(topic, layer, table) if table else Balance()
    return balance


def _carried(mark: Watermark, rows: int) -> Check:
    return Check("rows carried in the watermark = rows in Standardized", mark.totals.rows, rows)


def _rows_now(sources: Sources, table: TableView, expected: int) -> int:
    """The rows of a table; counted if the totals of its snapshot, inexact after a compaction, disagree."""
    head = table.snapshots.get(table.head) if table.head else None
    summary = head.summary if head else {}
    rows = int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
    return rows if rows == expected else sources.catalog.count(table.name)


def _foreign(topic: str, layer: str, table: TableView) -> Balance:
    """Snapshots of other tools: a problem if rows may have changed, else a note."""
    problems, notes = [], []
    for snapshot in foreign_snapshots(table):
        when = f" of {time_of(snapshot.at_ms):%Y-%m-%d %H:%M:%S}" if snapshot.at_ms else ""
        what = f"{layer}: snapshot {snapshot.snapshot_id}{when} ({snapshot.operation}) was written by another tool"
        if snapshot.changes_rows:
            problems.append(f"{what}; find out which, then rebuild the tables from RAW with: leanops rebuild {topic}")
        else:
            notes.append(f"{what}; it is a compaction and changed no rows")
    return Balance((), tuple(problems), tuple(notes))


def whole_topic(sources: Sources, topic: str) -> Balance:
    """The running totals, and every row of Standardized in Curated or in an error table; reads the tables."""
    databases = sources.databases
    raw = sources.catalog.load(databases.raw_table(topic))
    standardized = sources.catalog.load(databases.standardized_table(topic))
    balance = running_totals(raw, standardized)
    mark = valid_watermark(standardized) if standardized else None
    if standardized is None or mark is None:
        return balance
    counted = _carried(mark, sources.catalog.count(standardized.name))
    return balance + Balance((counted,)) + _curated(sources, topic, standardized, mark)


def _curated(sources: Sources, topic: str, standardized: TableView, newest: Watermark) -> Balance:
    schema = sources.schemas.active(topic)
    curated = sources.catalog.load(sources.databases.curated_table(schema.table_name)) if schema else None
    mark = valid_watermark(curated) if curated else None
    if curated is None or mark is None:
        return Balance()
    if mark.source_to < newest.batch_seq:
        return Balance((), ("Curated has not read the newest Standardized batch yet; run: leanops cycle",))
    errors = sources.catalog.load(sources.databases.errors)
    explained = (
        f"SELECT DISTINCT message_id FROM {quoted(errors.name)} WHERE topic_name = ?"
        if errors
        else "SELECT '' AS message_id"
    )
    statement = _ACCOUNT.format(quoted(standardized.name), quoted(curated.name), explained)
    answer = sources.query.ask(statement, [topic] if errors else [])
    rows, keys, stored, stored_keys, failing, behind, unexplained = next(answer.rows)
    return Balance(
        (
            Check("Standardized rows = distinct keys", rows, keys),
            Check("Curated rows = distinct keys", stored, stored_keys),
            Check("Standardized rows = Curated rows + failing - behind", rows, stored + failing - behind),
            Check("failing keys without an error row", 0, unexplained),
        )
    )


# Each table is counted separately: a join would multiply the rows of one by the duplicates of the other.
_ACCOUNT = """
WITH s AS (SELECT record_key, idempotency_key, message_id FROM {0}),
     c AS (SELECT idempotency_key, message_id FROM {1}),
     e AS ({2}),
     j AS (SELECT EXISTS (FROM c WHERE c.idempotency_key = s.idempotency_key) AS is_stored,
                  NOT EXISTS (FROM c WHERE c.idempotency_key = s.idempotency_key AND c.message_id = s.message_id)
                  AS is_failing,
                  EXISTS (FROM e WHERE e.message_id = s.message_id) AS is_explained
           FROM s)
SELECT (SELECT count(*) FROM s), (SELECT count(DISTINCT record_key) FROM s),
       (SELECT count(*) FROM c), (SELECT count(DISTINCT idempotency_key) FROM c),
       count(*) FILTER (WHERE is_failing), count(*) FILTER (WHERE is_failing AND is_stored),
       count(*) FILTER (WHERE is_failing AND NOT is_explained)
FROM j
"""
