"""The ledger: every message as it was sent, beside what must become of it; Parquet files in the home."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from leanops.emulation.events.generator import Message
from leanops.emulation.events.profile import Profile

FOLDER = "ledger"
_FIELDS = {
    "message_id": pa.string(),
    "kind": pa.string(),
    "publish_us": pa.int64(),
    "ingestion_ms": pa.int64(),
    "content": pa.string(),
    "key": pa.string(),
    "version_us": pa.int64(),
    "period": pa.string(),
    "rule": pa.string(),
    "is_dead": pa.bool_(),
    "is_fallback": pa.bool_(),
    "failures": pa.list_(pa.string()),
    "extra": pa.map_(pa.string(), pa.string()),
    "changed": pa.list_(pa.string()),
    "idempotency_key": pa.string(),
    "attributes": pa.string(),
}
"""Beside these, one column for each leaf of the profile, named by its path."""


_STAMPS = ("message_id", "publish_us", "ingestion_ms")


def write(
    home: Path,
    topic: str,
    profile: Profile,
    part: str,
    messages: Sequence[Message],
    ids: Sequence[str] | None = None,
) -> None:
    """One part of a topic's ledger; messages that got their ids on the way have times that only RAW knows."""
    told = dict(zip(Message._fields, zip(*messages, strict=True), strict=True))
    told["content"] = tuple(map(content, told["text"]))
    columns = [
        pa.array(told[name], kind) if ids is None or name not in _STAMPS else _stamped(name, kind, ids)
        for name, kind in _FIELDS.items()
    ]
    cells = [pa.array(column, pa.string()) for column in zip(*told["cells"], strict=True)]
    names = [*_FIELDS, *(leaf.canonical for leaf in profile.leaves)]
    folder = home / FOLDER / topic
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([*columns, *cells], names=names), folder / f"{part}.parquet", compression="lz4")


def _stamped(name: str, kind: pa.DataType, ids: Sequence[str]) -> pa.Array:
    return pa.array(ids, kind) if name == "message_id" else pa.nulls(len(ids), kind)


def content(text: str) -> str:
    """What stands in the ledger for a text, so that RAW's can be compared with it."""
    return sha256(text.encode()).hexdigest()


def parts(home: Path, topic: str) -> list[str]:
    """The files of a topic's ledger."""
    return sorted(str(path) for path in (home / FOLDER / topic).glob("*.parquet"))
