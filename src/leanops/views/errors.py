"""Quarantined rows: listed, and one of them with the event it came from."""

import heapq
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from leanops.domain.errors import UsageError
from leanops.domain.failures import DEAD_LETTERS
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.ports.query import quoted
from leanops.ports.tables import Between
from leanops.views.error_status import RESOLVED, SUPERSEDED, UNSETTLED, settled
from leanops.views.sources import Sources

_COLUMNS = (
    "error_id",
    "topic_name",
    "layer",
    "message_id",
    "record_key",
    "publish_time",
    "ingestion_ts",
    "failures",
    "source",
    "batch_id",
    "schema_version",
    "detected_ts",
    "status",
    "attempts",
)
_HEX = re.compile(r"[0-9a-f]{6,32}")


@dataclass(frozen=True)
class Payload:
    """The event behind an error, as RAW has it."""

    text: str
    attributes: str | None
    copies: int


@dataclass(frozen=True)
class Wanted:
    """Which rows of the error tables are asked for; None is all."""

    topic: str | None = None
    rule: str | None = None
    layer: str | None = None
    statuses: Collection[str] | None = None

    def condition(self) -> tuple[str, list[str]]:
        """What a stored row must be like, as a WHERE clause with its values."""
        wanted: dict[str, Sequence[str]] = {
            "topic_name = ?": [self.topic] if self.topic else [],
            "layer = ?": [self.layer] if self.layer else [],
            "list_contains([f.rule FOR f IN failures], ?)": [self.rule] if self.rule else [],
        }
        stored = sorted({one for status in self.statuses or () for one in _stored_as(status)})
        wanted[f"status IN ({', '.join('?' * len(stored))})"] = stored
        terms = {term: values for term, values in wanted.items() if values}
        where = f"WHERE {' AND '.join(terms)}" if terms else ""
        return where, [value for values in terms.values() for value in values]


@dataclass(frozen=True)
class Page:
    """The newest rows that fit, and how many newer ones nobody has to look at any more."""

    rows: list[dict[str, Any]]
    passed: int


def list_errors(sources: Sources, wanted: Wanted, limit: int) -> Page:
    """The newest rows of the error tables that fit, newest first; `status` is what holds now."""
    fate = _Fate(sources)
    most = limit
    while True:
        rows, passed, read = [], 0, 0
        for row in _newest(sources, wanted, most):
            told = fate.told(row)
            is_wanted = wanted.statuses is None or told["status"] in wanted.statuses
            rows += [told] if is_wanted else []
            passed += not is_wanted and told["status"] in (RESOLVED, SUPERSEDED)
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
class _Fate:
    """Rows with the status that holds now; each topic's tables are read at most once, and only if it has rows."""

    sources: Sources
    known: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def told(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with `status` as it is now and `stored_status` as it is written."""
        stored = row["status"]
        now = self._now(row) if stored in UNSETTLED else None
        return {**row, "status": now or stored, "stored_status": stored}

    def _now(self, row: dict[str, Any]) -> str | None:
        place = (row["layer"], row["topic_name"])
        if place not in self.known:
            self.known[place] = {one.error_id: one.status for one in settled(self.sources, *place)}
        return self.known[place].get(row["error_id"])


def _stored_as(status: str) -> Collection[str]:
    """The stored statuses a row of this status can have."""
    return UNSETTLED if status in (RESOLVED, SUPERSEDED) else (status,)


def find_error(sources: Sources, error_id: str, layer: str | None = None) -> dict[str, Any]:
    """The row with this id, or with the only id that begins so."""
    listing = "leanops dlq list" if layer == DEAD_LETTERS else "leanops errors list"
    if not _HEX.fullmatch(error_id):
        raise UsageError(f"{error_id!r} is no error id; see them with: {listing}")
    found: list[dict[str, Any]] = []
    for table in _tables(sources, layer):
        select = f"SELECT {', '.join(_COLUMNS)} FROM {table} WHERE starts_with(error_id, ?) LIMIT 2"
        found += sources.query.ask(select, [error_id]).as_dicts()
    if len(found) != 1:
        problem = "several errors begin with" if found else "there is no error"
        raise UsageError(f"{problem} {error_id!r}; see them with: {listing}")
    return _Fate(sources).told(found[0])


def payload_of(sources: Sources, error: dict[str, Any]) -> Payload | None:
    """The event of an error, from the RAW table and day its `source` names; None where it is gone."""
    table, _, day_text = str(error["source"]).partition("/publish_time_day=")
    day = datetime.strptime(day_text, "%Y-%m-%d").replace(tzinfo=UTC)
    message = str(error["message_id"])
    where = {"publish_time": Between(day, day + timedelta(days=1)), "message_id": message}
    rows = sources.catalog.select(table, ["message_id", "ingestion_ts", "json_payload", "attributes"], where)
    if not rows:
        return None
    first = min(rows, key=lambda row: int(row["ingestion_ts"]))
    return Payload(first["json_payload"], first["attributes"], len(rows))


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
