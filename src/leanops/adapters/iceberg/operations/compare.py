"""A new Curated beside the live one: what they hold, and why a key leaves."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.adapters.iceberg.batches.plan import groups
from leanops.adapters.iceberg.batches.runner import Runner
from leanops.adapters.iceberg.operations.matching import Matched, Partners, Texts, matched
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.places import Place, chosen_rows
from leanops.adapters.iceberg.tasks.rows import DeadRows, live_pieces
from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.comparison import Comparison
from leanops.domain.words import counted
from leanops.transforms.curate import Flags
from leanops.transforms.keys import PREFIX

_KEY, _MESSAGE = "idempotency_key", "message_id"
_VERSION = (_KEY, _MESSAGE, "last_updated_ts")
_EXAMPLES = 5
_NEW, _FAILED, _UNREAD, _CURRENT, _RAW = "new", "failed", "unread", "current", "raw"


@dataclass(frozen=True)
class Places:
    """The tables that are compared."""

    new: Place
    live: Place
    standardized: Place
    raw: Place
    errors: Place
    parse_errors: Place


def compare(runner: Runner, rules: TaskRules, places: Places, *, topic: str, same_keys: bool) -> Comparison:
    """What becomes of the keys of the live table; raises UnbalancedBatchError if the new one has a key twice."""
    by_message = {
        _FAILED: Texts(places.errors, _MESSAGE),
        _UNREAD: Texts(places.parse_errors, _MESSAGE),
        _RAW: Texts(places.raw, _MESSAGE),
        _CURRENT: Texts(places.standardized, _MESSAGE),
    }
    by_key = {
        _FAILED: Texts(places.errors, "record_key", prefix=PREFIX),
        _CURRENT: Texts(places.standardized, _KEY),
    }
    in_new = {_NEW: Texts(places.new, _KEY)}
    without = matched(runner, rules, Texts(places.live, _KEY), in_new, _has_no_row if same_keys else _nobody)
    if same_keys:
        messages = matched(runner, rules, Texts(places.live, _MESSAGE, _at(without, places)), by_message)
    else:
        messages = matched(runner, rules, Texts(places.live, _MESSAGE), by_message, _is_refused_or_retired)
    keys = matched(runner, rules, Texts(places.live, _KEY, _at(messages, places)), by_key)
    # Both have the same rows in the same order.
    fails = keys.has(_FAILED) | messages.has(_UNREAD) if same_keys else np.ones(len(keys.rows), bool)
    # A key that was behind, and whose version RAW no longer has, could not be judged again.
    is_explained = fails & (messages.has(_RAW) | messages.has(_CURRENT))
    is_gone = ~is_explained & ~keys.has(_CURRENT)
    (before, old), (after, new) = (_measured(runner, rules, place) for place in (places.live, places.new))
    # A row without a key is none of those that were counted.
    _check_keys(topic, after, without.totals[_NEW][1])
    some = ~is_explained if not is_explained.all() else is_explained
    return Comparison(
        rows_before=before,
        rows_after=after,
        checksum_before=old,
        checksum_after=new,
        failing=int(is_explained.sum()),
        lost=int((~is_explained & ~is_gone).sum()),
        gone=int(is_gone.sum()),
        examples=_examples(places.live, keys, some),
    )


def _check_keys(topic: str, rows: int, keys: int) -> None:
    if rows != keys:
        raise UnbalancedBatchError(
            f"{topic}: built {counted(rows, 'row')} for {counted(keys, 'key')}; all are discarded, "
            "and the next attempt starts over"
        )


def _has_no_row(partners: Partners) -> Flags:
    """A key leaves that the new table does not have."""
    return ~partners[_NEW]


def _is_refused_or_retired(partners: Partners) -> Flags:
    """Under other keys that leaves whose message is refused, or no longer in RAW."""
    return partners[_FAILED] | partners[_UNREAD] | ~partners[_RAW]


def _at(rows: Matched, places: Places) -> dict[str, "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    return rows.chosen(places.live.files)


def _nobody(partners: Partners) -> Flags:
    """No row, where only the totals are asked for."""
    return np.zeros_like(partners[_NEW])


def _examples(live: Place, leaving: Matched, which: Flags) -> tuple[str, ...]:
    """Message ids of some of the rows that leave."""
    some = Matched(leaving.rows.filter(pa.array(which)).slice(0, _EXAMPLES), {})
    if not len(some.rows):
        return ()
    pieces = chosen_rows(live, [_MESSAGE], some.chosen(live.files))
    return tuple(sorted(message for rows in pieces for message in rows.column(_MESSAGE).to_pylist()))


def _measured(runner: Runner, rules: TaskRules, place: Place) -> tuple[int, str]:
    """How many rows a table has, and a checksum over their keys and versions in which their order does not matter."""
    units = [Place(place.layout, part) for part in groups(place.files, rules)]
    rows, checksum = 0, 0
    for answer in runner.run(_measure, units):
        if isinstance(answer, Exception):
            raise answer
        rows, checksum = rows + answer[0], checksum ^ answer[1]
    return rows, f"{checksum:016x}" if rows else "0"


def _measure(place: Place) -> tuple[int, int]:
    io = place.layout.io()
    rows, checksum, dead = 0, 0, DeadRows(io)
    for file in place.files:
        for piece in live_pieces(io, place.layout, file, _VERSION, dead=dead):
            rows += len(piece)
            checksum ^= _checksum([piece.column(name) for name in _VERSION])
    return rows, checksum


def _checksum(columns: Sequence[pa.ChunkedArray]) -> int:
    numbers = (column if pa.types.is_string(column.type) else column.cast(pa.int64()) for column in columns)
    texts = (column.cast(pa.string()) for column in numbers)
    versions = pc.binary_join_element_wise(*texts, "\n", null_handling="replace", null_replacement="")
    digests = (blake2b(version.encode(), digest_size=8).digest() for version in versions.to_pylist())
    return int(np.bitwise_xor.reduce(np.frombuffer(b"".join(digests), np.uint64), initial=0))
