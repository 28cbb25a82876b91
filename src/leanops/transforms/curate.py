"""Judged rows against what Curated holds of their keys: which are new, newer, already there or bad."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.failures import Rule
from leanops.domain.schema.model import Schema
from leanops.transforms.judge import KEY, Source, judged
from leanops.transforms.keys import order_time
from leanops.transforms.quarantine import BAD

SYSTEM = (
    "idempotency_key",
    "message_id",
    "topic_name",
    "period_reference",
    "publish_time",
    "ingestion_ts",
    "first_seen_ts",
    "last_updated_ts",
    "_version",
)
"""Columns that Curated has from Standardized as they are."""
READ = (*SYSTEM, "record_key", "_rescued")
"""What is read of a Standardized row beside its payload."""
STORED = (KEY, "period_reference", "_version", "last_updated_ts", "publish_time", "ingestion_ts", "message_id")
"""The columns of the table that a batch is compared with."""
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Curated(NamedTuple):
    """What becomes of the rows of a batch."""

    rows: pa.Table
    """New and newer rows, in the table's own columns but for what is the same in all of them."""
    replaced: pa.Array
    """Which of the stored rows the newer ones take the place of."""
    bad: pa.Table
    """Messages that get a row in the error table."""
    counts: dict[str, int]


def curated(
    changed: pa.Table, stored: pa.Table | None, schema: Schema, sources: list[Source], secret: bytes | None
) -> Curated:
    """Judge rows of Standardized by a schema, and the good ones against the stored rows of their keys, one of each."""
    values, failures = judged(_one_batch(changed), sources, secret)
    is_bad = _numpy(failures.is_valid())
    against = _against(changed, stored)
    is_updated = ~is_bad & against.is_newer
    is_inserted = ~is_bad & ~against.is_stored
    columns = [*(changed.column(name) for name in SYSTEM), *values]
    whole = pa.table(columns, [*SYSTEM, *(column.name for column in schema.payload_columns)])
    bad = pa.table([*(changed.column(name) for name in BAD.names[:-1]), failures], BAD.names).filter(pa.array(is_bad))
    crosses = is_updated & (against.months != 0)
    counts = {
        "inserted": is_inserted.sum(),
        "updated": is_updated.sum(),
        "unchanged": (~is_bad & against.is_stored & ~against.is_newer).sum(),
        "errors": is_bad.sum(),
        "behind": (is_bad & against.is_stored & ~against.is_same).sum(),
        "cross_period": crosses.sum(),
        "late_corrections": (crosses & (against.months > schema.policies.lookback_months)).sum(),
        "cde_missing": _missing_cdes(failures),
    }
    replaced = pa.array(against.stored_at[is_updated])
    rows = whole.filter(pa.array(is_inserted | is_updated))
    return Curated(rows, replaced, bad.cast(BAD), {name: int(count) for name, count in counts.items()})


class _Against(NamedTuple):
    """Of each row whether its key is stored, where, and how it compares with what is stored."""

    is_stored: Flags
    is_newer: Flags
    is_same: Flags
    """Whether the stored row is of the same message."""
    stored_at: "np.ndarray[Any, Any]"
    months: "np.ndarray[Any, Any]"
    """How many months its period is away from the stored one."""


def _against(rows: pa.Table, stored: pa.Table | None) -> _Against:
    nothing = np.zeros(len(rows), bool)
    if stored is None or not len(stored):
        return _Against(nothing, nothing, nothing, np.zeros(len(rows), int), np.zeros(len(rows), int))
    at = pc.index_in(rows.column(KEY), value_set=stored.column(KEY).combine_chunks(), skip_nulls=True)
    is_stored = _numpy(at.is_valid())
    places = at.fill_null(0).combine_chunks()
    matched = stored.take(places)
    is_same = is_stored & _numpy(pc.equal(rows.column("message_id"), matched.column("message_id")).fill_null(False))
    is_newer = is_stored & ~is_same & is_newer_than(rows, matched)
    months = np.abs(_months(rows.column("period_reference")) - _months(matched.column("period_reference")))
    return _Against(is_stored, is_newer, is_same, places.to_numpy(), np.where(is_stored, months, 0))


def is_newer_than(rows: pa.Table, matched: pa.Table) -> Flags:
    """Whether each row is a newer version than the one beside it: by number, time, publication, message, in this order.

    NULL is older than any value, and a row beside which there is nothing is newer.
    """
    is_newer, is_open = np.zeros(len(rows), bool), np.ones(len(rows), bool)
    for value, other in zip(_version(rows), _version(matched), strict=True):
        is_there, was_there = _numpy(value.is_valid()), _numpy(other.is_valid())
        is_more = _numpy(pc.greater(value, other).fill_null(False)) | (is_there & ~was_there)
        is_equal = _numpy(pc.equal(value, other).fill_null(False)) | (~is_there & ~was_there)
        is_newer |= is_open & is_more
        is_open &= is_equal
    return is_newer


def _version(rows: pa.Table) -> list[pa.ChunkedArray]:
    ordered = order_time(rows.column("publish_time"), rows.column("ingestion_ts"))
    # As bytes: texts compare so, too, but this says it.
    message = rows.column("message_id").cast(pa.binary())
    return [rows.column("_version"), rows.column("last_updated_ts"), ordered, message]


def _months(periods: pa.ChunkedArray) -> "np.ndarray[Any, Any]":
    """The number of each month; a period is yyyy-MM."""
    years = pc.utf8_slice_codeunits(periods, 0, 4).cast(pa.int64()).fill_null(0)
    months = pc.utf8_slice_codeunits(periods, 5, 7).cast(pa.int64()).fill_null(0)
    return np.array(pc.add(pc.multiply(years, 12), months).to_numpy())


def _missing_cdes(failures: pa.Array) -> int:
    """How many rows lack a critical value."""
    rules = pc.struct_field(failures.flatten(), "rule")
    parents = pc.list_parent_indices(failures)
    return len(pc.unique(parents.filter(pc.equal(rules, Rule.CDE_MISSING.value))))


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def _numpy(flags: pa.Array) -> Flags:
    return np.array(flags.to_numpy(zero_copy_only=False) if isinstance(flags, pa.Array) else flags.to_numpy(), bool)
