"""1 M events through both layers, then corrections, new rows and a rebuild; README.md says what is measured."""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.data import aging, raw_table
from bench.floor import run_floor
from bench.hub import Hub, table_of
from bench.period import bytes_ratio
from bench.rows import Row, row, say


@dataclass(frozen=True)
class _Round:
    """Seconds of each work in one round, on one topic."""

    standardize: float
    curate: float
    floor: float
    load: float
    corrections: float
    new_rows: float
    rebuild: float


def measure(folder: Path, count: int, rounds: int) -> list[Row]:
    """One round that warms up, then the measured ones; of each work the median counts, of the floor too."""
    say("making the standard data")
    data = {
        "load": raw_table(count, seed=1),
        # A tenth of the events are corrections themselves; these aim at keys that surely exist.
        "corrections": raw_table(count // 20, seed=2, corrected=count // 2),
        "new": [raw_table(500, seed=10 + number, first_key=10**8 * (1 + number)) for number in range(3)],
        "aging": aging(200, count),
    }
    hub = Hub(folder / "cycles")
    found = [_round(hub, f"orders-{number}", data, folder) for number in range(rounds + 1)][1:]
    curated = hub.platform.rules.databases.curated_table(table_of("orders-period"))
    _load(hub, "orders-period", data["load"])
    # Never corrected: the bytes are read past Iceberg, which would apply deletes.
    ratio, ours, theirs = bytes_ratio(hub.runtime, curated, "2025-06")
    hub.runtime.close()

    def median(work: str) -> float:
        return statistics.median(getattr(one, work) for one in found)

    load = median("load")
    return [
        row("1 M events RAW to Standardized / DuckDB floor", median("standardize"), median("floor"), 2.5),
        row("curating 1 M / standardizing it", median("curate"), median("standardize"), 0.7),
        row("50 K corrections into 1 M, both layers / first load", median("corrections"), load, 0.25),
        row("500 random new keys into 1 M, both layers / first load", median("new_rows"), load, 0.08),
        row("rebuild of 1 M, both layers / first load", median("rebuild"), load, 1.3),
        {**row("period total, MB read / unpartitioned copy", ours, theirs, 1 / 10), "ratio": round(ratio, 4)},
    ]


def _round(hub: Hub, topic: str, data: dict[str, Any], folder: Path) -> _Round:
    standardize, curate, load = _load(hub, topic, data["load"])
    floor = run_floor(hub.raw_files(topic), folder / "floor.parquet")
    hub.age(topic, data["aging"])
    corrections = _more(hub, topic, data["corrections"])
    new = [_more(hub, topic, rows) for rows in data["new"]]
    rebuild = hub.rebuild(topic)
    say(
        f"{topic}: standardize {standardize:.1f} s, curate {curate:.1f} s, load {load:.1f} s, floor {floor:.1f} s, "
        f"corrections {corrections:.1f} s, 500 rows {', '.join(f'{seconds:.2f}' for seconds in new)} s, "
        f"rebuild {rebuild:.1f} s"
    )
    return _Round(standardize, curate, floor, load, corrections, statistics.median(new), rebuild)


def _load(hub: Hub, topic: str, events: Any) -> tuple[float, float, float]:
    """Seconds of either layer, and of the whole cycle."""
    hub.add(topic)
    hub.land(topic, events)
    (result,), seconds = hub.cycle(topic)
    standardize, curate = (result.layers[layer].seconds or 0.0 for layer in ("standardized", "curated"))
    return standardize, curate, seconds


def _more(hub: Hub, topic: str, events: Any) -> float:
    hub.land(topic, events)
    return hub.cycle(topic)[1]
