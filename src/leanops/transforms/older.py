"""Older versions of keys whose newest version fails: which of them are judged, and which one is kept."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.transforms.curate import Flags, is_newer_than
from leanops.transforms.keys import PREFIX, order_time

VERSION = ("record_key", "message_id", "_version", "last_updated_ts", "publish_time", "ingestion_ts")
"""What orders the versions of a key."""
RAW_FILE, RAW_ROW = "raw_file", "raw_row"
PLACE = (RAW_FILE, RAW_ROW)
"""Where in RAW a version is."""
NEWEST = "newest"
"""The message of the newest version of its key, if that came with an earlier batch."""
_FIRST_TRY, _GROWTH = 1, 4
"""How many versions of a key are judged at first, and how many times more with every further try."""


class Outcome(NamedTuple):
    """What became of the older versions, in the order in which they were given."""

    kept: pa.Array
    """The places of those that pass and are the newest of their key that does."""
    failed: pa.Array
    """The places of those that were judged before, and fail."""


def idempotency_keys(record_keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """The keys that Curated has for record_keys with the prefix."""
    return pc.utf8_slice_codeunits(record_keys, len(PREFIX))


def candidates(versions: pa.Table, failing: pa.Table, stored: pa.Table | None) -> pa.Table:
    """The versions of failing keys that may take their place, each message once; newest of a key first.

    They are older than the newest version, which `failing` has, and newer than what Curated has, if it has any.
    """
    versions = _first_copies(versions)
    newest = _matched(versions, versions.column("record_key"), failing, "record_key")
    is_other = pc.not_equal(versions.column("message_id"), newest.column("message_id")).fill_null(False)
    wanted = flags(is_other) & ~is_newer_than(versions, newest)
    if stored is not None and len(stored):
        kept = _matched(versions, idempotency_keys(versions.column("record_key")), stored, "idempotency_key")
        wanted &= ~flags(kept.column("idempotency_key").is_valid()) | is_newer_than(versions, kept)
    return _newest_first(versions.filter(pa.array(wanted)))


def newest_passing(ranked: pa.Table, judge: Callable[[pa.Table], pa.Table]) -> Outcome:
    """Judge the candidates of each key, newest first, until one passes.

    `judge` says of each candidate whether it `passes` and whether it `fails`; what is not an event does neither.
    """
    ranks, keys = _ranks(ranked)
    kept, failed = np.zeros(len(ranked), bool), np.zeros(len(ranked), bool)
    is_open, start, end = np.ones(len(ranked), bool), 0, _FIRST_TRY
    while len(tried := np.flatnonzero(is_open & (ranks >= start) & (ranks < end))):
        verdict = judge(ranked.take(pa.array(tried)))
        passing = tried[flags(verdict.column("passes"))]
        # In the order of ranks the first of a key is its newest.
        winners = passing[np.unique(keys[passing], return_index=True)[1]]
        kept[winners] = True
        is_open &= ~np.isin(keys, keys[winners])
        newest = np.full(keys.max() + 1, len(ranked))
        newest[keys[winners]] = ranks[winners]
        failures = tried[flags(verdict.column("fails"))]
        failed[failures[ranks[failures] < newest[keys[failures]]]] = True
        start, end = end, end * _GROWTH
    return Outcome(pa.array(np.flatnonzero(kept)), pa.array(np.flatnonzero(failed)))


def not_there(versions: pa.Table, stored: pa.Table | None) -> pa.Table:
    """Those versions whose newest one, by their own account, is not what Curated has of their key."""
    if stored is None or not len(stored):
        return versions
    there = _matched(versions, idempotency_keys(versions.column("record_key")), stored, "idempotency_key")
    is_there = pc.equal(versions.column(NEWEST), there.column("message_id")).fill_null(False)
    return versions.filter(pc.invert(is_there))


def _matched(rows: pa.Table, keys: pa.ChunkedArray, others: pa.Table, column: str) -> pa.Table:
    """The other row beside each row, NULLs where there is none."""
    at = pc.index_in(keys, value_set=others.column(column).combine_chunks(), skip_nulls=True)
    return others.take(at.combine_chunks() if isinstance(at, pa.ChunkedArray) else at)


def _first_copies(versions: pa.Table) -> pa.Table:
    """Of each message of a key the copy that landed first."""
    order = ("record_key", "message_id", "ingestion_ts", "publish_time", RAW_FILE, RAW_ROW)
    columns = [versions.column(name) for name in order]
    # Arrow does not sort by names of files that are a dictionary.
    columns[order.index(RAW_FILE)] = versions.column(RAW_FILE).cast(pa.string())
    by = [(name, "ascending") for name in order]
    ordered = versions.take(pc.sort_indices(pa.table(columns, order), by))
    return ordered.filter(pa.array(_starts(ordered, ("record_key", "message_id"))))


def _newest_first(versions: pa.Table) -> pa.Table:
    ordered = order_time(versions.column("publish_time"), versions.column("ingestion_ts"))
    columns = [versions.column("record_key"), versions.column("_version"), versions.column("last_updated_ts")]
    keys = pa.table([*columns, ordered, versions.column("message_id")], ["key", "number", "updated", "order", "id"])
    newest = [(name, "descending") for name in ("number", "updated", "order", "id")]
    # A version without a number is older than any with one, and Arrow puts NULLs last.
    return versions.take(pc.sort_indices(keys, [("key", "ascending"), *newest]))


def _ranks(ranked: pa.Table) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", ...]:
    """Of each version its place among those of its key, and the number of the key."""
    starts = _starts(ranked, ("record_key",))
    keys = np.cumsum(starts) - 1
    return np.arange(len(ranked)) - np.flatnonzero(starts)[keys], keys


def _starts(rows: pa.Table, columns: tuple[str, ...]) -> Flags:
    """Whether each row of a sorted table differs in these columns from the one before."""
    starts = np.zeros(len(rows), bool)
    starts[:1] = True
    for name in columns:
        values = rows.column(name)
        starts[1:] |= flags(pc.not_equal(values.slice(1), values.slice(0, max(0, len(rows) - 1))).fill_null(True))
    return starts


def flags(values: pa.ChunkedArray) -> Flags:
    """A column of booleans without NULLs, as numpy has it."""
    return np.array(values.to_numpy(), bool)
