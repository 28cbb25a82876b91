"""The whole emulation as a user runs it, against DuckDB's floor on 1 M and the reference system's 40 minutes."""

import json
import statistics
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.data import raw_table
from bench.floor import run_floor
from bench.rows import Row, row, say

REFERENCE_S = 40 * 60
LIMIT_S = 150
FULL_SIZE = 1_000_000


def measure(folder: Path, events: int) -> list[Row]:
    """`leanops emulate full` in a fresh home and a process of its own, from its start to its verdict."""
    home = folder / "emulation"
    leanops = Path(sys.executable).with_name("leanops")
    command = [leanops, "emulate", "full", "--home", home, "--events", str(events)]
    say(f"a full emulation of {events:,} events")
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"bench: the emulation ended with {done.returncode}\n{done.stdout[-2_000:]}")
    sizes = _tell(json.loads((home / "emulation.json").read_text()), seconds)
    size = "1 M + 50 K + 5 K" if events == FULL_SIZE else " + ".join(f"{count:,}" for count in sizes)
    return [
        row(f"full emulation, {size} / DuckDB floor on 1 M", seconds, _floor(folder), 17.0),
        row(f"full emulation, {size} / 40 minutes", seconds, REFERENCE_S, LIMIT_S / REFERENCE_S),
    ]


def _floor(folder: Path) -> float:
    """Seconds of the floor on the standard data, in one file as a flush writes it; the median of three."""
    raw = folder / "raw.parquet"
    pq.write_table(raw_table(FULL_SIZE, seed=1), raw, compression="zstd")
    times = [run_floor([str(raw)], folder / "floor.parquet") for _ in range(3)]
    say(f"DuckDB floor: {', '.join(f'{seconds:.1f}' for seconds in times)} s")
    return statistics.median(times)


def _tell(emulation: dict[str, Any], seconds: float) -> list[int]:
    """Seconds and rows of every step and phase; gives the events of each day."""
    for phase, steps in groupby(emulation["steps"], lambda step: step["phase"]):
        of_phase = list(steps)
        for step in of_phase:
            say(f"  {phase:<7} {step['what']:<28} {_figures(step['rows'], step['seconds'])}")
        say(f"{phase:<7} together {'':<21} {_figures(0, sum(step['seconds'] for step in of_phase))}")
    sizes = list(emulation["events"].values())
    summary = f"{sum(sizes):,} events, verified, in {seconds:.1f} s, {sum(sizes) / seconds:,.0f} a second"
    say(f"{summary}; 40 minutes are {REFERENCE_S / seconds:.1f} times as long")
    return sizes


def _figures(rows: int, seconds: float) -> str:
    rate = f"{rows:>11,} rows {rows / seconds:>9,.0f} rows/s" if rows else ""
    return f"{seconds:>7.1f} s {rate}".rstrip()
