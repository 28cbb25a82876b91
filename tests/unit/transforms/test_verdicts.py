"""Both dedups at once are those of the specification, one event after the other."""

from collections import defaultdict
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.domain.errors import UnbalancedBatchError
from leanops.transforms.verdicts import verdicts

TYPES = {
    "row": pa.int64(),
    "record_key": pa.string(),
    "message_id": pa.string(),
    "_version": pa.decimal128(38, 9),
    "last_updated_ts": pa.timestamp("us", "UTC"),
    "publish_time": pa.timestamp("us", "UTC"),
    "order_ts": pa.timestamp("us", "UTC"),
    "seen_ts": pa.int64(),
    "_payload_hash": pa.int64(),
    "is_stored": pa.bool_(),
    "stored_period": pa.string(),
}
SMALL = st.integers(0, 3)


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events of a few keys with a few messages, and for some keys the row that the table has."""
    times = {"last_updated_ts": SMALL, "publish_time": SMALL, "order_ts": SMALL, "seen_ts": st.none() | SMALL}
    keys, messages = st.sampled_from(["a", "b", "c", None]), st.sampled_from(["m", "M", "é", "z"])
    said = {"record_key": keys, "message_id": messages, **times, "_version": st.none() | st.decimals(-2, 2, places=1)}
    event = st.fixed_dictionaries({**said, "_payload_hash": SMALL})
    periods = st.sampled_from(["2026-01", "2026-02", "2026-03"])
    row = st.fixed_dictionaries({**said, "_payload_hash": st.none() | SMALL, "stored_period": periods})
    events = [{**one, "is_stored": False, "stored_period": None} for one in draw(st.lists(event, max_size=12))]
    stored = [{**one, "is_stored": True} for one in draw(st.lists(row, max_size=4, unique_by=itemgetter("record_key")))]
    return [{**one, "row": -1 if one["is_stored"] else at} for at, one in enumerate([*events, *stored])]


def table(rows: list[dict[str, Any]], *, pieces: int) -> pa.Table:
    cut = [rows[at::pieces] for at in range(pieces)]
    schema = pa.schema(list(TYPES.items()))
    return pa.concat_tables([pa.Table.from_pylist(part, schema) for part in cut])


def one_by_one(rows: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """What the specification says of every event, by its row."""
    of_key = defaultdict(list)
    for row in rows:
        of_key[row["record_key"]].append(row)
    found = {}
    for key, versions in of_key.items():
        periods = [row["stored_period"] for row in versions if row["is_stored"]]
        firsts: dict[str, dict[str, Any]] = {}
        for row in sorted(versions, key=arrival):
            firsts.setdefault(row["message_id"], row)
        newest = max(firsts.values(), key=lambda row: (*version(row), -row["row"]))
        seen = [one["seen_ts"] for one in versions if one["seen_ts"] is not None]
        for row in versions:
            if row["is_stored"]:
                continue
            first = firsts[row["message_id"]]
            verdict = "updated" if periods else "inserted"
            if first is not row:
                verdict = "duplicate"
            elif newest is not row:
                verdict = "superseded"
            hashes = (first["_payload_hash"], row["_payload_hash"])
            is_conflict = None not in hashes and hashes[0] != hashes[1]
            found[row["row"]] = (key, verdict, min(seen, default=None), periods[0] if periods else None, is_conflict)
    return found


def arrival(row: dict[str, Any]) -> tuple[Any, ...]:
    seen = row["seen_ts"]
    return (
        not row["is_stored"],
        seen is None,
        seen or 0,
        *(row[name] for name in ("publish_time", "last_updated_ts", "row")),
    )


def version(row: dict[str, Any]) -> tuple[Any, ...]:
    number = row["_version"]
    times = (row["last_updated_ts"], row["order_ts"])
    return number is not None, number or Decimal(0), *times, row["message_id"].encode()


@settings(max_examples=500, deadline=None)
@given(batches(), st.integers(1, 3))
def test_verdicts_are_those_of_one_event_after_the_other(rows: list[dict[str, Any]], pieces: int) -> None:
    found = verdicts(table(rows, pieces=pieces)).to_pylist()
    names = ("record_key", "verdict", "first_seen_ts", "old_period", "is_conflict")
    assert {row["row"]: tuple(row[name] for name in names) for row in found} == one_by_one(rows)


@given(batches(), st.integers(1, 3))
def test_a_second_stored_row_of_a_key_is_refused(rows: list[dict[str, Any]], pieces: int) -> None:
    stored = {**dict.fromkeys(TYPES), "record_key": "twice", "message_id": "m", "is_stored": True, "row": -1}
    stored |= dict.fromkeys(("last_updated_ts", "publish_time", "order_ts"), 0)
    with pytest.raises(UnbalancedBatchError, match="several rows of one key"):
        verdicts(table([stored, *rows, {**stored, "message_id": "other"}], pieces=pieces))
