"""Quarantined rows: listed, and one of them with the event it came from."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from leanops.domain.batches import CURATED, STANDARDIZED
from leanops.domain.errors import UsageError
from leanops.domain.failures import DEAD_LETTERS
from leanops.ports.query import quoted
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
_PLAIN = re.compile(r"[A-Za-z0-9._:#/-]{1,256}")
_HEX = re.compile(r"[0-9a-f]{6,32}")


@dataclass(frozen=True)
class Payload:
    """The event behind an error, as RAW has it."""

    text: str
    attributes: str | None
    copies: int


def list_errors(
    sources: Sources,
    *,
    topic: str | None,
    rule: str | None,
    layer: str | None,
    limit: int,
    status: str | None = None,
) -> list[dict[str, Any]]:
    """The newest rows of the error tables that fit, newest first."""
    wanted = {
        "topic_name = ?": topic,
        "layer = ?": layer,
        "status = ?": status,
        "list_contains([f.rule FOR f IN failures], ?)": rule,
    }
    conditions = [condition for condition, value in wanted.items() if value is not None]
    values = [value for value in wanted.values() if value is not None]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    found: list[dict[str, Any]] = []
    for table in _tables(sources, layer):
        newest = f"SELECT {', '.join(_COLUMNS)} FROM {table} {where} ORDER BY detected_ts DESC, error_id LIMIT {limit}"
        found += sources.query.ask(newest, values).as_dicts()
    return sorted(found, key=lambda row: (-row["detected_ts"].timestamp(), row["error_id"]))[:limit]


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
    return found[0]


def payload_of(sources: Sources, error: dict[str, Any]) -> Payload | None:
    """The event of an error, from the RAW table and day its `source` names; None where it is gone."""
    table, _, day_text = str(error["source"]).partition("/publish_time_day=")
    day = datetime.strptime(day_text, "%Y-%m-%d").replace(tzinfo=UTC)
    where = f"publish_time >= '{day.isoformat()}' and publish_time < '{(day + timedelta(days=1)).isoformat()}'"
    message = str(error["message_id"])
    if _PLAIN.fullmatch(message):
        where += f" and message_id = '{message}'"
    rows = sources.catalog.select(table, ["message_id", "ingestion_ts", "json_payload", "attributes"], where)
    copies = [row for row in rows if row["message_id"] == message]
    if not copies:
        return None
    first = min(copies, key=lambda row: int(row["ingestion_ts"]))
    return Payload(first["json_payload"], first["attributes"], len(copies))


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
