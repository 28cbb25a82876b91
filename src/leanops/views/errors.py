"""Quarantined rows, and their events."""

import heapq
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from leanops.domain.errors import UsageError
from leanops.domain.failures import DEAD_LETTERS, is_error_id
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.definitions import ERRORS
from leanops.ports.query import quoted
from leanops.ports.tables import Between
from leanops.views.error_status import RESOLVED, SUPERSEDED, UNSETTLED, settled
from leanops.views.sources import Sources

_COLUMNS = [name for name in ERRORS.columns if name != "status_ts"]


@dataclass(frozen=True)
class Payload:
    """The event behind an error, as RAW has it."""

    text: str
    copies: int


@dataclass(frozen=True)
class Wanted:
    """Which rows of the error tables to list; None is all."""

    topic: str | None = None
    rule: str | None = None
    layer: str | None = None
    statuses: Collection[str] | None = None

    def condition(self) -> tuple[str, list[str]]:
        """The WHERE clause for stored rows, and its values."""
        wanted: dict[str, Sequence[str]] = {
            "topic_name = ?": [self.topic] if self.topic else [],
            "layer = ?": [self.layer] if self.layer else [],
            "list_contains([f.rule FOR f IN failures], ?)": [self.rule] if self.rule else [],
        }
        stored = sorted({stored for status in self.statuses or () for stored in _stored_as(status)})
        wanted[f"status IN ({', '.join('?' * len(stored))})"] = stored
        terms = {term: values for term, values in wanted.items() if values}
        where = f"WHERE {' AND '.join(terms)}" if terms else ""
        return where, [value for values in terms.values() for value in values]


@dataclass(frozen=True)
class Page:
    """The newest matching rows, and how many resolved or superseded rows were passed over."""

    rows: list[dict[str, Any]]
    passed: int


def list_errors(sources: Sources, wanted: Wanted, limit: int) -> Page:
    """The newest matching rows of the error tables, newest first, with their current `status`."""
    statuses = _Statuses(sources)
    most = limit
    while True:
        rows, passed, read = [], 0, 0
        for row in _newest(sources, wanted, most):
            current = statuses.current(row)
            is_wanted = wanted.statuses is None or current["status"] in wanted.statuses
            rows += [current] if is_wanted else []
            passed += not is_wanted and current["status"] in (RESOLVED, SUPERSEDED)
            read += 1
            if len(rows) == limit:
                break
        if len(rows) == limit or read < most:
            return Page(rows, passed)
        most *= 20


def _newest(sources: Sources, wanted: Wanted, most: int) -> Iterator[dict[str, Any]]:
    where, values = wanted.condition()
    answers = []
    for table in _tables(sources, wanted.layer):
        newest = f"SELECT {', '.join(_COLUMNS)} FROM {table} {where} ORDER BY detected_ts DESC, error_id LIMIT {most}"
        answers.append(sources.query.ask(newest, values).as_dicts())
    merged = heapq.merge(*answers, key=lambda row: (-row["detected_ts"].timestamp(), row["error_id"]))
    yield from islice(merged, most)


@dataclass
class _Statuses:
    """The current status of rows; each topic's tables are read at most once, and only if it has rows."""

    sources: Sources
    known: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def current(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its current `status`, and `stored_status` as it is written."""
        stored, place = row["status"], (row["layer"], row["topic_name"])
        if stored in UNSETTLED and place not in self.known:
            self.known[place] = {error.error_id: error.status for error in settled(self.sources, *place)}
        now = self.known[place].get(row["error_id"]) if stored in UNSETTLED else None
        return {**row, "status": now or stored, "stored_status": stored}


def _stored_as(status: str) -> Collection[str]:
    """The stored statuses a row of this status can have."""
    return UNSETTLED if status in (RESOLVED, SUPERSEDED) else (status,)


def find_error(sources: Sources, error_id: str, layer: str | None = None) -> dict[str, Any]:
    """The row whose id is, or alone begins with, `error_id`."""
    noun, group = ("dead letter", "dlq") if layer == DEAD_LETTERS else ("error", "errors")
    if not is_error_id(error_id):
        raise UsageError(f"{error_id!r} is not an error id; list them with: leanops {group} list")
    errors: list[dict[str, Any]] = []
    for table in _tables(sources, layer):
        select = f"SELECT {', '.join(_COLUMNS)} FROM {table} WHERE starts_with(error_id, ?) LIMIT 2"
        errors += sources.query.ask(select, [error_id]).as_dicts()
    if len(errors) != 1:
        problem = f"several {noun}s begin with" if errors else f"there is no {noun}"
        raise UsageError(f"{problem} {error_id!r}; list them with: leanops {group} list")
    return _Statuses(sources).current(errors[0])


def payload_of(sources: Sources, error: dict[str, Any]) -> Payload | None:
    """The event of an error, from the RAW table and day that its `source` names; None if it is no longer there."""
    table, _, day_text = str(error["source"]).partition("/publish_time_day=")
    day = datetime.strptime(day_text, "%Y-%m-%d").replace(tzinfo=UTC)
    message = str(error["message_id"])
    where = {"publish_time": Between(day, day + timedelta(days=1)), "message_id": message}
    rows = sources.catalog.select(table, ["ingestion_ts", "json_payload"], where)
    if not rows:
        return None
    first = min(rows, key=lambda row: int(row["ingestion_ts"]))
    return Payload(first["json_payload"], len(rows))


def summary(failures: list[dict[str, Any]]) -> str:
    """All failures of a row in one line."""
    return "; ".join(_in_words(**failure) for failure in failures)


def _in_words(rule: str, column: str | None, path: str | None, message: str, value: str | None) -> str:
    place = f" {column or path}" if column or path else ""
    shown = f" ({json.dumps(value, ensure_ascii=False)})" if value is not None else ""
    return f"{rule}{place}: {message}{shown}"


def _tables(sources: Sources, layer: str | None) -> Iterator[str]:
    databases = sources.databases
    tables = {DEAD_LETTERS: databases.dlq_errors, STANDARDIZED: databases.parse_errors, CURATED: databases.errors}
    for name, table in tables.items():
        if layer in (None, name) and sources.catalog.load(table) is not None:
            yield quoted(table)
