"""The rows of the three layers, and what one RAW row says under a schema."""

import hashlib
import re
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from tests.oracle.casts import FAILED, cast, hmac_hex, is_blank
from tests.oracle.flat import Flat, segment
from tests.oracle.names import segments

KEY_PATH = "$._metadata.idempotencyKeyResource"
PERIOD_PATHS = ("$.periodReference", "$.period_reference")
LONGEST_KEY = 1_024
LANDED = 1_800_000_000_000
"""From here on count the ingestion times of tests that only need an order of them: all are after publishing."""
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
    number: Decimal | None = None
    """The version, where the schema says that it is a number."""
    payload: str = field(default="", repr=False)

    @property
    def version(self) -> tuple[bool, Decimal, datetime, datetime, bytes]:
        """What orders versions; one without a number is older than any that has one."""
        number = (self.number is not None, self.number or Decimal(0))
        return *number, self.last_updated_ts, published(self), self.message_id.encode()

    @property
    def payload_hash(self) -> int:
        """The first eight bytes of the payload's SHA-256, the first of them with the sign."""
        return struct.unpack(">q", hashlib.sha256(self.payload.encode()).digest()[:8])[0]


def landed(row: "RawRow | Row") -> datetime:
    """When a message came in."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=row.ingestion_ts)


def is_ahead(row: "RawRow | Row") -> bool:
    """Whether the publisher's clock is more than a day ahead of ours."""
    return row.publish_time > landed(row) + CLOCK_TOLERANCE


def published(row: "RawRow | Row") -> datetime:
    """The time that counts as that of publishing."""
    return landed(row) if is_ahead(row) else row.publish_time


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


def version_of(raw: RawRow, flat: Flat, schema: Schema | None) -> datetime | Decimal | None:
    """The version, or None for a value that cannot be used; where there is no value, the publish time."""
    text = version_text(flat, schema)
    if text is None:
        return published(raw)
    form = ((schema or {}).get("keys") or {}).get("version_format", "iso")
    if form == "number":
        number = cast(text, "DECIMAL(38,9)")
        return None if number is FAILED else number
    # An order does not need the digits behind the microseconds, though a cast insists on them.
    version = cast(re.sub(r"(:[0-9]{2}[.][0-9]{6})[0-9]+", r"\1", text) if form == "iso" else text, "TIMESTAMP", form)
    return None if version is FAILED or version - published(raw) > CLOCK_TOLERANCE else version


def version_text(flat: Flat, schema: Schema | None) -> str | None:
    """What the event says its version is."""
    return flat.cells.get(key_path(schema, "version") or "")


def period_text(flat: Flat, schema: Schema | None) -> str | None:
    """What the event says its period is."""
    named = key_path(schema, "period")
    return next((flat.cells[path] for path in ([named] if named else PERIOD_PATHS) if path in flat.cells), None)


def is_period(text: str | None) -> bool:
    """Whether a text is a month we take."""
    match = _PERIOD.fullmatch(text or "")
    return match is not None and 1970 <= int(match[1]) <= 2100


def period_of(raw: RawRow, flat: Flat, schema: Schema | None) -> str:
    """The period as yyyy-MM."""
    text = period_text(flat, schema)
    return text if text is not None and is_period(text) else published(raw).astimezone(UTC).isoformat()[:7]
