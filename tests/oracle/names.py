"""Column names of JSON paths, written from the specification alone."""

import hashlib
import json
import re
from collections.abc import Iterable

LONGEST = 128
# fmt: off
SYSTEM_COLUMNS = {
    "record_key", "idempotency_key", "message_id", "topic_name", "period_reference", "publish_time", "ingestion_ts",
    "last_updated_ts", "first_seen_ts", "_rescued", "_version", "_payload_hash", "_batch_seq", "_batch_id",
}
ICEBERG_NAMES = {
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
    "_change_type", "_change_ordinal", "_commit_snapshot_id",
}
# fmt: on
PARTITION_FIELDS = {"period_reference", "publish_time_day"}
_SEGMENT = re.compile(r'\.([A-Za-z_][A-Za-z0-9_]*)|\[("(?:[^"\\]|\\.)*")\]')


def segments(path: str) -> list[str]:
    """The keys a canonical path is made of."""
    keys, pos = [], 1
    while pos < len(path):
        match = _SEGMENT.match(path, pos)
        if path[0] != "$" or not match:
            raise ValueError(f"not a canonical path: {path!r}")
        keys.append(match[1] if match[2] is None else json.loads(match[2]))
        pos = match.end()
    return keys


def plain_name(path: str) -> str:
    """The name a path has when nobody else wants it."""
    joined = "_".join(key or "_" for key in segments(path)).lower()
    name = "".join(char if re.fullmatch("[a-z0-9_]", char) else "_" for char in joined)
    return ("_" + name if name[0].isdigit() else name)[:LONGEST]


def register(existing: dict[str, str], new_paths: Iterable[str]) -> dict[str, str]:
    """The registry with the new paths added in path order; a name never moves."""
    names = dict(existing)
    taken = {*names.values(), *SYSTEM_COLUMNS, *ICEBERG_NAMES}
    for path in sorted(set(new_paths) - set(names), key=str.encode):
        names[path] = _free_name(path, taken)
        taken.add(names[path])
    return names


def _free_name(path: str, taken: set[str]) -> str:
    base = name = plain_name(path)
    digest, digits = hashlib.sha256(path.encode()).hexdigest(), 6
    # Names that begin so are Spark's to give; the hash makes them nobody's.
    while name in taken or name in PARTITION_FIELDS or (name == base and name.startswith("__")):
        name = f"{base[: LONGEST - 1 - digits]}_{digest[:digits]}"
        digits += 1
    return name
