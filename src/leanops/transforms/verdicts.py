"""What becomes of the events of a batch: both dedups, against each other and against the rows their keys have."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.errors import UnbalancedBatchError

INSERTED, UPDATED, DUPLICATE, SUPERSEDED = VERDICTS = ("inserted", "updated", "duplicate", "superseded")
_NEVER = int(np.iinfo(np.int64).max)
"""Later than any time."""
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class _Outcome(NamedTuple):
    """What becomes of rows: the number of the verdict, and of their key when it was first seen and its stored row."""

    verdict: Numbers
    first_seen: Numbers
    stored_at: Numbers
    is_conflict: Flags


def verdicts(rows: pa.Table) -> pa.Table:
    """Of each event its row, record_key, verdict, first_seen_ts, is_conflict, and stored_row and old_period of its key.

    `rows` are events and, where `is_stored`, the rows of the table that have their keys: all of a key, or none.
    """
    keys, size = _codes(rows.column("record_key")), len(rows)
    outcome = _Outcome(np.zeros(size, int), _seen(rows), np.full(size, -1), np.zeros(size, bool))
    # Most keys come once, and their events are inserted: only of the others there is something to find out.
    repeated = np.flatnonzero(np.bincount(keys, minlength=1)[keys] > 1)
    if len(repeated):
        judged = _of_repeated_keys(rows.take(pa.array(repeated)), keys[repeated])
        stored_at = np.where(judged.stored_at < 0, -1, repeated[judged.stored_at])
        for whole, part in zip(outcome, judged._replace(stored_at=stored_at), strict=True):
            whole[repeated] = part
    stored_at = pa.array(outcome.stored_at, mask=outcome.stored_at < 0)
    columns = {
        "row": rows.column("row"),
        "record_key": rows.column("record_key"),
        "verdict": pa.array(VERDICTS).take(pa.array(outcome.verdict)),
        "first_seen_ts": pa.array(outcome.first_seen, mask=outcome.first_seen == _NEVER),
        "old_period": rows.column("stored_period").take(stored_at),
        "stored_row": rows.column("row").take(stored_at),
        "is_conflict": pa.array(outcome.is_conflict),
    }
    return pa.table(columns).filter(pc.invert(rows.column("is_stored")))


def _of_repeated_keys(rows: pa.Table, keys: Numbers) -> _Outcome:
    is_stored, number = _flags(rows, "is_stored"), _numbers(rows, "row")
    messages, seen = _ranks(rows.column("message_id")), _seen(rows)
    updated, published, order = (_numbers(rows, name) for name in ("last_updated_ts", "publish_time", "order_ts"))
    # Copies of a message: the stored one is the first, else the one that came first.
    copies = np.lexsort((number, updated, published, seen, ~is_stored, messages, keys))
    first_copy = _first(copies, keys, messages)
    is_copy = first_copy != np.arange(len(rows))
    # Versions of a key: the newest is the first. A version without a number is older than any with one.
    versions = _ranks(rows.column("_version"))
    newest = _first(np.lexsort((number, -messages, -order, -updated, -versions, is_copy, keys)), keys)
    is_newest = newest == np.arange(len(rows))
    stored = np.flatnonzero(is_stored)
    if len(np.unique(keys[stored])) != len(stored):
        raise UnbalancedBatchError(
            "Standardized has several rows of one key, which another tool must have written; rebuild it from RAW"
        )
    stored_at = np.full(keys.max() + 1, -1)
    stored_at[keys[stored]] = stored
    first_seen = np.full(keys.max() + 1, _NEVER)
    np.minimum.at(first_seen, keys, seen)
    kept = np.where(stored_at[keys] < 0, VERDICTS.index(INSERTED), VERDICTS.index(UPDATED))
    lost = np.where(is_copy, VERDICTS.index(DUPLICATE), VERDICTS.index(SUPERSEDED))
    hashes, has_hash = _numbers(rows, "_payload_hash"), _is_there(rows, "_payload_hash")
    # A stored row from before there were hashes has none, and nothing differs from it.
    is_conflict = has_hash & has_hash[first_copy] & (hashes != hashes[first_copy])
    return _Outcome(np.where(is_newest, kept, lost), first_seen[keys], stored_at[keys], is_conflict)


def _first(order: Numbers, *groups: Numbers) -> Numbers:
    """Of each row the one that is first, in this order, of those that are alike in all groups."""
    starts = np.zeros(len(order), bool)
    starts[:1] = True
    for group in groups:
        starts[1:] |= group[order][1:] != group[order][:-1]
    first = np.empty(len(order), np.int64)
    first[order] = order[np.flatnonzero(starts)][np.cumsum(starts) - 1]
    return first


def _codes(texts: pa.ChunkedArray) -> Numbers:
    """A number for each distinct text; of NULL 0."""
    indices = texts.combine_chunks().dictionary_encode().indices.fill_null(-1)
    return np.array(indices.to_numpy(zero_copy_only=False), np.int64) + 1


def _ranks(values: pa.ChunkedArray) -> Numbers:
    """The place of each value among the distinct ones, texts in the order of their bytes; of NULL -1."""
    distinct = values.combine_chunks().dictionary_encode()
    ranks = np.empty(len(distinct.dictionary) + 1, np.int64)
    ranks[pc.sort_indices(distinct.dictionary).to_numpy()] = np.arange(len(distinct.dictionary))
    ranks[-1] = -1
    return np.array(ranks[distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False)])


def _numbers(rows: pa.Table, name: str, null: int = -_NEVER) -> Numbers:
    """A column of numbers or times as numbers; NULL becomes `null`, by default less than any."""
    return np.array(rows.column(name).cast(pa.int64()).fill_null(null).to_numpy())


def _seen(rows: pa.Table) -> Numbers:
    return _numbers(rows, "seen_ts", _NEVER)


def _flags(rows: pa.Table, name: str) -> Flags:
    return np.array(rows.column(name).to_numpy())


def _is_there(rows: pa.Table, name: str) -> Flags:
    return np.array(rows.column(name).is_valid().to_numpy())
