"""Batches of odd shapes: how much memory a Python worker takes for each; README.md says what is measured."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.data import RAW_SCHEMA, raw_table
from bench.hub import Hub
from bench.rows import Row, row, say

WORKERS = "batches.workers"
"""What is in the command line of Spark's Python workers."""
LIMIT_MB = 1024
_START = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class _Case:
    """Events that land in RAW before one cycle, and the payload columns their schema names."""

    what: str
    tables: Callable[[int], Iterator[pa.Table]]
    columns: tuple[str, ...] = ()


def measure(folder: Path, count: int) -> list[Row]:
    """A topic and a cycle each."""
    hub = Hub(folder / "limits")
    # The workers are there, and have what they import.
    hub.add("warm-up")
    hub.land("warm-up", raw_table(100, seed=1))
    hub.cycle("warm-up")
    found = [_peak(hub, f"case-{number}", case, count) for number, case in enumerate(CASES)]
    hub.runtime.close()
    return [row(f"MB of a worker, {case.what}", peak, LIMIT_MB, 1.0) for case, peak in zip(CASES, found, strict=True)]


def _peak(hub: Hub, topic: str, case: _Case, count: int) -> float:
    """The most that any worker had at once, in MB."""
    hub.add(topic, *case.columns)
    for table in case.tables(count):
        hub.land(topic, table)
    for worker in _workers():
        # From here on the kernel notes the most anew.
        (worker / "clear_refs").write_text("5")
    (result,), seconds = hub.cycle(topic)
    read = result.layers["standardized"].counts["read"]
    peaks = []
    for worker in _workers():
        with suppress(FileNotFoundError):
            (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+)", (worker / "status").read_text(), flags=re.MULTILINE)
            peaks.append(int(kilobytes) / 1024)
    say(f"{case.what}: {read:,} rows in {seconds:.1f} s, {max(peaks):,.0f} MB in {len(peaks)} workers")
    return max(peaks)


def _workers() -> list[Path]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            is_ours = process.stat().st_uid == os.getuid()
            if is_ours and WORKERS in (process / "cmdline").read_text():
                found.append(process)
    return found


def _table(payloads: list[str]) -> pa.Table:
    """RAW rows with these payloads, a second apart."""
    times = [_START + timedelta(seconds=at) for at in range(len(payloads))]
    rows: list[dict[str, Any]] = [
        {
            "message_id": f"{at:012d}",
            "publish_time": moment,
            "topic_name": "orders",
            "json_payload": payload,
            "ingestion_ts": int(moment.timestamp() * 1000) + 1_000,
        }
        for at, (moment, payload) in enumerate(zip(times, payloads, strict=True))
    ]
    return pa.Table.from_pylist(rows, schema=RAW_SCHEMA)


def _many(count: int) -> Iterator[pa.Table]:
    for number in range(5):
        yield raw_table(count, seed=1 + number, first=number * count)


def _one_key(count: int) -> Iterator[pa.Table]:
    yield raw_table(count, seed=1, corrected=1)


def _wide(count: int) -> Iterator[pa.Table]:
    payloads = [
        json.dumps({"_metadata": {"idempotencyKeyResource": f"k{at}"}, **{name: f"{name}-{at}" for name in _WIDE}})
        for at in range(count // 50)
    ]
    yield _table(payloads)


def _long(count: int) -> Iterator[pa.Table]:
    yield _table(
        [
            json.dumps({"_metadata": {"idempotencyKeyResource": f"k{at}"}, "text": f"{at:06d}" * 166_000})
            for at in range(max(1, count // 1_000))
        ]
    )


_WIDE = tuple(f"column_{number:04d}" for number in range(1_000))
CASES = (
    _Case("5 M events", _many),
    _Case("20 K events of 1,000 columns", _wide, _WIDE),
    _Case("1 M versions of one key", _one_key),
    _Case("1,000 payloads of 1 MB", _long, ("text",)),
)
