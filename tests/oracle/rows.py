"""The rows of the three layers, and what one RAW row says under a schema."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from tests.oracle.casts import FAILED, cast, hmac_hex, is_blank
from tests.oracle.flat import Flat, segment
from tests.oracle.names import segments

KEY_PATH = "$._metadata.idempotencyKeyResource"
PERIOD_PATHS = ("$.periodReference", "$.period_reference")
LONGEST_KEY = 1_024
CLOCK_TOLERANCE = timedelta(hours=24)
_PERIOD = re.compile(r"([0-9]{4})-(?:0[1-9]|1[0-2])")

Schema = dict[str, Any]


@dataclass(frozen=True)
class RawRow:
    """One row of RAW; publish_time is an aware UTC datetime, ingestion_ts epoch milliseconds."""

    message_id: str
    publish_time: datetime
    topic_name: str
    json_payload: str
    ingestion_ts: int
    idempotency_key: str | None = None
    attributes: str | None = None


@dataclass(frozen=True)
class Row:
    """One row of Standardized; `rescued` are those paths of `cells` that have no column."""

    record_key: str
    idempotency_key: str | None
    message_id: str
    topic_name: str
    period_reference: str
    publish_time: datetime
    ingestion_ts: int
    last_updated_ts: datetime
    first_seen_ts: int
    cells: dict[str, str]
    rescued: frozenset[str] = frozenset()
    batch_seq: int = 0

    @property
    def version(self) -> tuple[datetime, datetime, bytes]:
        return self.last_updated_ts, self.publish_time, self.message_id.encode()


@dataclass(frozen=True)
class CuratedRow:
    """One row of Curated: its system columns are those of the Standardized row it was made from."""

    source: Row
    schema_version: int | None
    values: dict[str, Any]


@cache
def canonical(path: str) -> str:
    """The one spelling of a path."""
    return "$" + "".join(map(segment, segments(path)))


def key_path(schema: Schema | None, name: str) -> str | None:
    """The path a schema names for a key, if it does."""
    path = ((schema or {}).get("keys") or {}).get(name)
    return canonical(path) if path else None


def named_paths(schema: Schema | None) -> set[str]:
    """The paths the schema names: once an event has one, it has a column outside all limits."""
    keys = [key_path(schema, name) for name in ("idempotency_key", "version", "period")]
    columns = [column.get("path") for column in (schema or {}).get("payload_columns") or []]
    return {path for path in keys if path} | {canonical(path) for path in columns if path}


def key_of(raw: RawRow, flat: Flat, schema: Schema | None, pii_key: bytes) -> str | None:
    """The idempotency_key as the tables hold it."""
    path = key_path(schema, "idempotency_key") or KEY_PATH
    in_payload = flat.cells.get(path) if flat.kinds.get(path) != "array" else None
    for text in (in_payload, raw.idempotency_key):
        if text is not None and not is_blank(text) and len(text.encode()) <= LONGEST_KEY:
            hidden = ((schema or {}).get("keys") or {}).get("pii") == "hmac"
            return hmac_hex(text, pii_key) if hidden else text
    return None


def version_of(raw: RawRow, flat: Flat, schema: Schema | None) -> datetime | None:
    """The version, or None for a value that must be replaced by publish_time and counted."""
    text = flat.cells.get(key_path(schema, "version") or "")
    if text is None:
        return raw.publish_time
    version = cast(text, "TIMESTAMP")
    return None if version is FAILED or version - raw.publish_time > CLOCK_TOLERANCE else version


def period_of(raw: RawRow, flat: Flat, schema: Schema | None) -> str:
    """The period as yyyy-MM."""
    named = key_path(schema, "period")
    for path in [named] if named else PERIOD_PATHS:
        match = _PERIOD.fullmatch(flat.cells.get(path, ""))
        if match and 1970 <= int(match[1]) <= 2100:
            return match.group()
    return raw.publish_time.astimezone(UTC).isoformat()[:7]
