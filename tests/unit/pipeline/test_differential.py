"""A hundred thousand odd events give the cells, errors and counts that Spark SQL gave before rules of rows left it.

`spark_sql.json` holds what commit a2784a4, the last one with that SQL, made of the same events: for each table a digest
of every group of rows, so that a difference names some dozens of them.
"""

import json
from collections import defaultdict
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

from tests.oracle.rows import RawRow
from tests.oracle.streams import SCHEMA, Limits, make_stream
from tests.support.world import FIRST, World

BEFORE = Path(__file__).with_name("spark_sql.json")
LIMITS = Limits(payload_bytes=4_000, depth=12, keys=80)
EVENTS, BATCHES, GROUPS = 5_000, 3, 64
TOPICS = {f"{kind}-{number}": number for kind in ("shared", "single") for number in range(10)}
"""Ten topics in which keys have many versions, and ten in which every message has a key of its own."""
OF_THEIR_BATCH = frozenset({"_batch_id", "_batch_seq", "batch_id", "detected_ts", "status_ts", "topic_name"})
Digests = dict[str, Any]


def schema_of(topic: str) -> dict[str, Any]:
    """The schema of the streams; single versions have the envelope's key, and no event has one of its own."""
    keys = {"keys": {**SCHEMA["keys"], "idempotency_key": "$.nowhere"}} if topic.startswith("single") else {}
    return {**SCHEMA, **keys, "table_name": topic.replace("-", "_")}


def stream_of(topic: str) -> list[RawRow]:
    rows = make_stream(Random(topic), EVENTS, LIMITS)
    if topic.startswith("single"):
        rows = [replace(row, idempotency_key=f"key of {row.message_id}") for row in rows]
    return [FIRST, *rows]


def run(world: World, topic: str) -> Digests:
    """What becomes of the stream of a topic, in a few batches."""
    world.with_rules(limits={"payload_bytes": LIMITS.payload_bytes, "depth": LIMITS.depth, "keys": LIMITS.keys})
    world.add(topic, json.dumps(schema_of(topic)))
    rows, counts = stream_of(topic), []
    for at in range(BATCHES):
        world.publish(topic, rows[at::BATCHES])
        layers = world.cycle(topics=[topic])[topic].layers
        counts.append({layer: dict(layers[layer].counts) for layer in _compared(topic)})
    databases = world.databases
    standardized, errors = world.standardized(topic), world.errors(databases.parse_errors, topic)
    found = {"counts": counts, "standardized": digests(world, standardized), "parse_errors": digests(world, errors)}
    if topic.startswith("single"):
        found["curated"] = digests(world, world.curated(schema_of(topic)["table_name"]))
        found["errors"] = digests(world, world.errors(databases.errors, topic))
    return found


def _compared(topic: str) -> tuple[str, ...]:
    """The layers that are as before: Curated looks at older versions since."""
    return ("standardized", "curated") if topic.startswith("single") else ("standardized",)


def digests(world: World, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """For each group of messages how many rows it has, and a digest of them; `_rescued` is a mapping, in any order."""
    groups: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        texts = {name: _text(row[name]) for name in row.keys() - OF_THEIR_BATCH}
        texts["_rescued"] = json.loads(row.get("_rescued") or "{}")
        text = json.dumps(texts, sort_keys=True)
        # What a cast says when it fails has other words since.
        text = text.replace(world.databases.raw, "raw").replace("is not a valid ", "is no ")
        groups[str(crc32(row["message_id"].encode()) % GROUPS)].append(text)
    return {
        group: [len(texts), sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]]
        for group, texts in sorted(groups.items())
    }


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None):%Y-%m-%dT%H:%M:%S.%f}"
    return value if isinstance(value, list | dict | None) else repr(value)


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_cells_errors_and_counts_are_those_of_spark_sql(world: World, topic: str) -> None:
    before, found = json.loads(BEFORE.read_text())[topic], run(world, topic)
    for layers, now in zip(before["counts"], found.pop("counts"), strict=True):
        for layer, counts in layers.items():
            assert counts.items() <= now[layer].items(), layer
    for table, groups in found.items():
        assert groups == before[table], table
