"""The ledger: every message as it was sent, and what must become of it, in Parquet files in the home."""

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
"""The columns, beside one for each leaf of the profile, named by its path."""


def write(
    home: Path,
    topic: str,
    profile: Profile,
    part: str,
    messages: Sequence[Message],
    ids: Sequence[str] | None = None,
) -> None:
    """Write a part of a topic's ledger; only RAW knows the times of messages that got their `ids` from Pub/Sub."""
    values = dict(zip(Message._fields, zip(*messages, strict=True), strict=True))
    values["content"] = tuple(map(content, values["text"]))
    if ids is not None:
        unknown = (None,) * len(ids)
        values |= {"message_id": tuple(ids), "publish_us": unknown, "ingestion_ms": unknown}
    columns = [pa.array(values[name], kind) for name, kind in _FIELDS.items()]
    cells = [pa.array(column, pa.string()) for column in zip(*values["cells"], strict=True)]
    names = [*_FIELDS, *(leaf.canonical for leaf in profile.leaves)]
    folder = home / FOLDER / topic
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([*columns, *cells], names=names), folder / f"{part}.parquet", compression="lz4")


def content(text: str) -> str:
    """The hash that the ledger has of a text, to compare that of RAW with."""
    return sha256(text.encode()).hexdigest()


def parts(home: Path, topic: str) -> list[str]:
    """The files of a topic's ledger."""
    return sorted(str(path) for path in (home / FOLDER / topic).glob("*.parquet"))
