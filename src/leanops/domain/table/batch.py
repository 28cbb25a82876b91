"""A batch as it is written down before it starts: all that decides its result."""

import secrets
from datetime import datetime

import msgspec

from leanops.domain.limits import ColumnLimits, Limits

STANDARDIZED, CURATED = "standardized", "curated"


class Batch(msgspec.Struct, frozen=True):
    """One topic, one layer, one source range. A retry repeats it with exactly this."""

    batch_id: str
    topic: str
    layer: str
    source_uuid: str
    source_from: int | None
    source_to: int
    source_snapshot: int
    rows: int
    batch_seq: int
    batch_time_ms: int
    schema_version: int
    contract: str = "evolve"
    limits: Limits = Limits()
    column_limits: ColumnLimits = ColumnLimits()
    starts_base: bool = False
    is_gap: bool = False
    timeline: str = ""
    """Standardized: the history of its table that the batch belongs to, as its watermark has it."""
    source_timeline: str = ""
    """Curated: the history of Standardized that is read."""
    key_check: str = ""
    """The check value of the key that seals something in this batch; nothing where none does."""
    free_columns: int | None = None
    """Columns under the limits when the batch was begun: a later try must not add them again."""
    raw_from: int | None = None
    raw_to: int | None = None
    """Curated: the part of RAW that the batches came from which are read; None is the beginning, and whatever end."""
    older_versions: bool = False
    """Curated: whether that part of RAW may have versions that are not in Standardized and never were judged."""


def pipeline_id(topic: str, layer: str) -> str:
    """The key of a topic's layer in the state store."""
    return f"{topic}/{layer}"


def new_batch_id(now: datetime) -> str:
    """An id whose first 16 characters sort by time."""
    return f"{now:%y%m%d%H%M%S}{now.microsecond // 100:04d}-{secrets.token_hex(4)}"
