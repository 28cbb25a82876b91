"""Cells become rows of Standardized: what becomes of each event of a batch, and the rows of those that are kept."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.transforms.keys import COUNTED, order_time
from leanops.transforms.older import NEWEST, PLACE
from leanops.transforms.older import VERSION as OF_VERSIONS
from leanops.transforms.quarantine import failures_of_parsing, failures_of_unknown_fields
from leanops.transforms.verdicts import DUPLICATE, INSERTED, SUPERSEDED, UPDATED, verdicts

COMPARED = ("record_key", "message_id", "_version", "last_updated_ts", "publish_time", "_payload_hash")
"""What decides between the versions of a key, beside the time of order."""
STORED = (*COMPARED, "ingestion_ts", "first_seen_ts", "period_reference")
"""The columns of the table that a batch is compared with."""
SUPERSEDED_COLUMNS = (*OF_VERSIONS, *PLACE)
_DECIDING = tuple(
    dict.fromkeys((*COMPARED, "order_ts", "ingestion_ts", "idempotency_key", *COUNTED, *SUPERSEDED_COLUMNS, "at"))
)
_NUMBERS = ("inserted", "updated", "duplicates", "superseded")


class Judged(NamedTuple):
    """What becomes of the events of a batch."""

    winners: pa.Table
    """Of each new and newer row where its event is (`at`, in the order of the events), and its first_seen_ts."""
    replaced: pa.Array
    """Which of the stored rows the newer ones take the place of."""
    superseded: pa.Table
    """What is known of the versions that are not the newest of their key, and where in RAW each is."""
    counts: dict[str, int]


def arrivals(
    cells: pa.Table, columns: Mapping[str, str], positions: Mapping[str, str], first: int, *, refuses: bool
) -> tuple[pa.Table, pa.Table]:
    """What of flattened events decides what becomes of them, and the messages that are none or are refused.

    `at` says where each is, `first` where the first of the cells is. `columns` names the column of each path,
    `positions` the one of `cells` that holds its texts; the others are in `extra`. The contract may refuse events with
    paths that have no column.
    """
    is_event = cells.column("rule").is_null()
    bad = failures_of_parsing(cells.filter(pc.invert(is_event)))
    cells = cells.append_column("at", pa.array(np.arange(first, first + len(cells))))
    events = cells.select(_DECIDING).filter(is_event)
    if refuses:
        refused = paths_without_column(cells.filter(is_event), columns, positions)
        is_refused = refused.is_valid()
        bad = pa.concat_tables([bad, failures_of_unknown_fields(events.filter(is_refused), refused.drop_null())])
        events = events.filter(pc.invert(is_refused))
    return events, bad


def judge(events: pa.Table, stored: pa.Table | None) -> Judged:
    """Judge events against each other and the stored rows of their keys."""
    judged = verdicts(_compared(events, stored))
    verdict = judged.column("verdict")
    is_winner = pc.is_in(verdict, value_set=pa.array([INSERTED, UPDATED]))
    won = judged.filter(is_winner)
    winners = pa.table({"at": events.column("at").filter(is_winner), "first_seen_ts": won.column("first_seen_ts")})
    replaced = won.filter(pc.equal(won.column("verdict"), UPDATED)).column("stored_row")
    superseded = events.filter(pc.equal(verdict, SUPERSEDED)).select(SUPERSEDED_COLUMNS)
    superseded = superseded.append_column(NEWEST, _newest(superseded.column("record_key"), won, stored))
    return Judged(winners, replaced.combine_chunks(), superseded, _counted(events, judged))


def _newest(keys: pa.ChunkedArray, won: pa.Table, stored: pa.Table | None) -> pa.ChunkedArray:
    """The message that stays the newest of each key; NULL where one of the winners is newer."""
    if stored is None:
        return pa.nulls(len(keys), pa.string())
    is_won = pc.is_in(keys, value_set=won.column("record_key").combine_chunks())
    at = pc.index_in(keys, value_set=stored.column("record_key").combine_chunks())
    messages = stored.column("message_id").take(at.combine_chunks())
    return pc.if_else(is_won, pa.scalar(None, pa.string()), messages)


def rows_of(
    cells: pa.Table, winners: pa.Table, columns: Mapping[str, str], positions: Mapping[str, str], first: int
) -> pa.Table:
    """The rows of those winners that are among these cells, the first of which is at `first`."""
    at = winners.column("at").to_numpy()
    start, end = np.searchsorted(at, [first, first + len(cells)]).tolist()
    won = cells.take(pa.array(at[start:end] - first))
    return table_rows(won, winners.column("first_seen_ts").slice(start, end - start), columns, positions)


def _compared(events: pa.Table, stored: pa.Table | None) -> pa.Table:
    """Events and stored rows in the columns that decide."""
    columns = [events.column(name) for name in (*COMPARED, "order_ts", "ingestion_ts")]
    places, no_period = pa.array(np.arange(len(events))), pa.nulls(len(events), pa.string())
    names = ["row", *COMPARED, "order_ts", "seen_ts", "is_stored", "stored_period"]
    arrived = pa.table([places, *columns, pa.repeat(False, len(events)), no_period], names)
    if stored is None:
        return arrived
    columns = [stored.column(name) for name in COMPARED]
    seen, period = stored.column("first_seen_ts"), stored.column("period_reference")
    ordered = order_time(stored.column("publish_time"), stored.column("ingestion_ts"))
    places, is_stored = pa.array(np.arange(len(stored))), pa.repeat(True, len(stored))
    return pa.concat_tables([arrived, pa.table([places, *columns, ordered, seen, is_stored, period], names)])


def _counted(events: pa.Table, judged: pa.Table) -> dict[str, int]:
    tally = {entry["values"]: entry["counts"] for entry in judged.column("verdict").value_counts().to_pylist()}
    numbers = dict(zip(_NUMBERS, (INSERTED, UPDATED, DUPLICATE, SUPERSEDED), strict=True))
    return {
        **{name: tally.get(verdict, 0) for name, verdict in numbers.items()},
        "conflicting_copies": _true(judged.column("is_conflict")),
        "missing_keys": events.column("idempotency_key").null_count,
        **{name: _true(events.column(name)) for name in COUNTED},
    }


def _true(flags: pa.ChunkedArray) -> int:
    return int(pc.sum(flags).as_py() or 0)


def table_rows(
    events: pa.Table, first_seen: pa.ChunkedArray, columns: Mapping[str, str], positions: Mapping[str, str]
) -> pa.Table:
    """The events in the table's own columns; each path's text is in its column or in `_rescued`."""
    kept = ("record_key", "idempotency_key", "message_id", "period_reference", "publish_time", "ingestion_ts")
    extra = _extra(events)
    rows = {name: events.column(name) for name in (*kept, "last_updated_ts")}
    rows["first_seen_ts"] = first_seen
    rows["_rescued"] = _rescued(events, extra, columns, positions)
    rows |= {name: events.column(name) for name in ("_version", "_payload_hash")}
    others = sorted({path for cells in extra.values() for path in cells if path in columns})
    rows |= {columns[path]: events.column(at) for path, at in positions.items() if path in columns}
    for path in others:
        texts = [extra[at].get(path) if at in extra else None for at in range(len(events))]
        rows[columns[path]] = pa.array(texts, pa.string())
    return pa.table(rows)


def _extra(events: pa.Table) -> dict[int, dict[str, str]]:
    """The cells beside the expected ones, of the few events that have any."""
    extra = events.column("extra")
    at = np.flatnonzero(extra.is_valid().to_numpy())
    return dict(zip(at.tolist(), map(dict, extra.take(pa.array(at)).to_pylist()), strict=True))


def _rescued(
    events: pa.Table, extra: Mapping[int, Mapping[str, str]], columns: Mapping[str, str], positions: Mapping[str, str]
) -> pa.Array:
    """Cells that got no column, as JSON of path → text in the order of the paths; NULL where there are none."""
    rescued: dict[int, dict[str, str]] = {}
    for at, cells in extra.items():
        rescued[at] = {path: text for path, text in cells.items() if path not in columns}
    for path, texts in _without_column(events, columns, positions):
        for at in np.flatnonzero(texts.is_valid().to_numpy()).tolist():
            rescued.setdefault(at, {})[path] = texts[at].as_py()
    written: list[str | None] = [None] * len(events)
    for at, cells in rescued.items():
        if cells:
            written[at] = json.dumps(cells, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return pa.array(written, pa.string())


def paths_without_column(events: pa.Table, columns: Mapping[str, str], positions: Mapping[str, str]) -> pa.Array:
    """The paths of each event that have no column, sorted; NULL where it has none of them."""
    paths_by_row: dict[int, set[str]] = {}
    for at, cells in _extra(events).items():
        paths_by_row[at] = {path for path in cells if path not in columns}
    for path, texts in _without_column(events, columns, positions):
        for at in np.flatnonzero(texts.is_valid().to_numpy()).tolist():
            paths_by_row.setdefault(at, set()).add(path)
    lists: Sequence[Any] = [sorted(paths_by_row.get(at, ()), key=str.encode) or None for at in range(len(events))]
    return pa.array(lists, pa.list_(pa.string()))


def _without_column(
    events: pa.Table, columns: Mapping[str, str], positions: Mapping[str, str]
) -> list[tuple[str, pa.ChunkedArray]]:
    return [(path, events.column(at)) for path, at in positions.items() if path not in columns]
