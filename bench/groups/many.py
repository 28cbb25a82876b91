"""Many topics with few rows each, against the least that PyIceberg needs; README.md says what is measured."""

import statistics
import time
from pathlib import Path
from typing import Any

from bench.data import RAW_SCHEMA, raw_table
from bench.hub import Hub
from bench.rows import Row, row, say

TOPICS, ROWS = 200, 200
LIMIT_S = 43.0


def measure(folder: Path, rounds: int) -> list[Row]:
    """Some cycles that warm up, then the measured ones, each beside a loop over the same rows."""
    hub = Hub(folder / "many")
    topics = [f"topic-{number:03d}" for number in range(TOPICS)]
    for topic in topics:
        hub.add(topic)
    found = [_round(hub, topics, number) for number in range(rounds + 2)][2:]
    hub.runtime.close()
    ours, theirs = (statistics.median(one[at] for one in found) for at in range(2))
    name = f"{TOPICS} topics x {ROWS} rows, both layers"
    return [row(f"{name} / bare PyIceberg loop", ours, theirs, 4.0), row(f"{name} / {LIMIT_S} s", ours, LIMIT_S, 1.0)]


def _round(hub: Hub, topics: list[str], number: int) -> tuple[float, float]:
    for at, topic in enumerate(topics):
        # What comes in a quarter of an hour is of one day; keys may have come before, corrections are of three periods.
        hub.land(topic, raw_table(ROWS, seed=1_000 * (number + 1) + at, corrected=(number + 1) * ROWS, months=3))
    ours = hub.cycle(*topics)[1]
    theirs = _bare(hub, topics, number)
    say(f"round {number}: cycle {ours:.1f} s, bare loop {theirs:.1f} s")
    return ours, theirs


def _bare(hub: Hub, topics: list[str], number: int) -> float:
    """Seconds to read the new rows of RAW and to append them to two fresh tables, topic after topic."""
    catalog, namespace = hub.runtime.catalog, f"bare_{number}"
    catalog.create_namespace(namespace)
    names = [[f"{namespace}.{kind}_{at}" for kind in "ab"] for at in range(len(topics))]
    pairs = [[catalog.create_table(name, RAW_SCHEMA).name() for name in pair] for pair in names]
    started = time.perf_counter()
    for topic, pair in zip(topics, pairs, strict=True):
        rows = _newest(hub.raw(topic))
        for name in pair:
            catalog.load_table(name).append(rows)
    return time.perf_counter() - started


def _newest(raw: Any) -> Any:
    """The rows that the last snapshot of RAW added."""
    head = raw.current_snapshot()
    return raw.incremental_append_scan(
        from_snapshot_id_exclusive=head.parent_snapshot_id, to_snapshot_id_inclusive=head.snapshot_id
    ).to_arrow()
