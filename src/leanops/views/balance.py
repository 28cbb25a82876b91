"""The balance of a topic: what was read against what was found, from the tables themselves."""

from dataclasses import asdict, dataclass
from typing import Any

from leanops.domain.errors import LeanOpsError
from leanops.domain.snapshots import TableView, Watermark, new_range, retired_rows, valid_watermark
from leanops.ports.query import quoted
from leanops.views.sources import Sources


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


@dataclass(frozen=True)
class Balance:
    """Every check of a topic, and what keeps a check from being made."""

    checks: tuple[Check, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def balanced(self) -> bool:
        return not self.problems and all(check.balanced for check in self.checks)

    def complaints(self) -> list[str]:
        """What is wrong, one line each."""
        return [*self.problems, *(str(check) for check in self.checks if not check.balanced)]

    def as_json(self) -> dict[str, Any]:
        checks = [{**asdict(check), "balanced": check.balanced} for check in self.checks]
        return {"balanced": self.balanced, "checks": checks, "problems": list(self.problems)}


def rows_in(table: TableView | None) -> int:
    """The rows of a table nothing was ever replaced in, as its newest snapshot counts them."""
    head = table.snapshots.get(table.head) if table and table.head else None
    return int(head.summary.get("total-records", 0)) if head else 0


def lag_of(raw: TableView | None, standardized: TableView | None) -> int:
    """RAW rows that are not standardized yet; raises where RAW was rewritten."""
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
    found = totals.rows - totals.base_rows + totals.updated + totals.duplicates + totals.superseded
    standard = Check("read since the base = found in Standardized", totals.read, found + totals.parse_errors)
    try:
        kept = _raw_rows_at(raw, mark)
    except LeanOpsError as wrong:
        return Balance((standard,), (str(wrong),))
    if kept is None:
        return Balance((standard,), ("RAW is not the table this topic was read from; the next cycle reads it anew",))
    return Balance((standard, Check("read and before the base = RAW rows", totals.base_raw_rows + totals.read, kept)))


def _raw_rows_at(raw: TableView | None, mark: Watermark) -> int | None:
    """RAW rows up to the watermark, retired ones included; None where RAW no longer knows that place."""
    if raw is None or raw.uuid != mark.source_uuid:
        return None
    waiting = new_range(raw, mark)
    if waiting and waiting.is_gap:
        return None
    return rows_in(raw) + retired_rows(raw) - (waiting.rows if waiting else 0)


def whole_topic(sources: Sources, topic: str) -> Balance:
    """The running totals, and every row of Standardized accounted for in Curated or an error; reads the tables."""
    databases = sources.databases
    raw = sources.catalog.load(databases.raw_table(topic))
    standardized = sources.catalog.load(databases.standardized_table(topic))
    balance = running_totals(raw, standardized)
    mark = valid_watermark(standardized) if standardized else None
    if standardized is None or mark is None:
        return balance
    rows = sources.catalog.count(standardized.name)
    counted = Check("rows carried in the watermark = rows in Standardized", mark.totals.rows, rows)
    curated = _curated(sources, topic, standardized, mark)
    return Balance((*balance.checks, counted, *curated.checks), (*balance.problems, *curated.problems))


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
    rows, keys, stored, failing, behind, unexplained = next(answer.rows)
    return Balance(
        (
            Check("Standardized rows = distinct keys", rows, keys),
            Check("Standardized rows = Curated rows + failing - behind", rows, stored + failing - behind),
            Check("failing keys without an error row", 0, unexplained),
        )
    )


_ACCOUNT = """
WITH s AS (SELECT record_key, idempotency_key, message_id FROM {0}),
     c AS (SELECT idempotency_key, message_id FROM {1}),
     e AS ({2}),
     j AS (SELECT s.record_key, c.message_id IS NOT NULL AS is_stored,
                  c.message_id IS DISTINCT FROM s.message_id AS is_failing, e.message_id IS NOT NULL AS is_explained
           FROM s LEFT JOIN c ON c.idempotency_key = s.idempotency_key LEFT JOIN e ON e.message_id = s.message_id)
SELECT count(*), count(DISTINCT record_key), (SELECT count(*) FROM c),
       count(*) FILTER (WHERE is_failing), count(*) FILTER (WHERE is_failing AND is_stored),
       count(*) FILTER (WHERE is_failing AND NOT is_explained)
FROM j
"""
