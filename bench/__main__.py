"""`make bench`: the rows of the bar that exist so far, each with its ratio, written to bench/results/latest.json."""

import argparse
import json
import os
import platform as machine
import statistics
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.data import TOPIC_SCHEMA, raw_table
from bench.floor import run_floor
from bench.period import bytes_ratio
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.deploy_schema import deploy_schema
from leanops.usecases.run_cycle import run_cycle
from leanops.usecases.topics import add_topic

RESULTS = Path(__file__).parent / "results" / "latest.json"
SNAPSHOTS = 300
Row = dict[str, Any]


def main() -> int:
    """Run every row; exit 1 if one misses its bar."""
    options = argparse.ArgumentParser(prog="make bench", description=main.__doc__)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3, help="measured rounds, after one that only warms up")
    options.add_argument("--keep", action="store_true", help="do not write the results file")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="leanops-bench-") as folder:
        rows = _Bench(Path(folder), chosen.events).run(chosen.rounds)
    _print(rows)
    if not chosen.keep:
        report = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": _machine(), "rows": rows}
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(row["passed"] for row in rows) else 1


@dataclass(frozen=True)
class _Round:
    """Seconds of each work in one round, on one topic."""

    standardize: float
    curate: float
    floor: float
    corrections: float
    new_rows: float

    @property
    def load(self) -> float:
        """Both layers of the first load."""
        return self.standardize + self.curate


class _Bench:
    """One home, one Spark application, a fresh topic for every round; README.md says what is measured and why."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.runtime = Embedded(create_home(folder / "home"))

    def run(self, rounds: int) -> list[Row]:
        """One round that warms up, then the measured ones; of each work the median counts, of the floor too."""
        _say("making the standard data")
        data = {
            "load": raw_table(self.count, seed=1),
            # A tenth of the events are corrections themselves; these aim at keys that surely exist.
            "corrections": raw_table(self.count // 20, seed=2, corrected=self.count // 2),
            "new": [raw_table(500, seed=10 + number, first_key=10**8 * (1 + number)) for number in range(3)],
        }
        found = [self._round(f"orders-{number}", data) for number in range(rounds + 1)][1:]
        ratio, ours, theirs = self._period
        self.runtime.close()

        def median(work: str) -> float:
            return statistics.median(getattr(one, work) for one in found)

        load = median("load")
        return [
            _row("1 M events RAW to Standardized / DuckDB floor", median("standardize"), median("floor"), 6.0),
            _row("curating 1 M / standardizing it", median("curate"), median("standardize"), 1.0),
            _row("50 K corrections into 1 M, both layers / first load", median("corrections"), load, 1 / 3),
            _row("500 new rows into 1 M, both layers / first load", median("new_rows"), load, 1 / 10),
            {**_row("period total, MB read / unpartitioned copy", ours, theirs, 1 / 10), "ratio": round(ratio, 4)},
        ]

    def _round(self, topic: str, data: dict[str, Any]) -> _Round:
        standardize, curate = self._load(topic, data["load"])
        floor = run_floor(self._raw_files(topic), self.folder / "floor.parquet")
        if topic == "orders-1":
            # Before the corrections: the bytes are read past Iceberg, which would apply deletes.
            self._period = bytes_ratio(self.runtime, f"iceberg_curated_db.{_table(topic)}", "2025-06")
        self._age(topic)
        corrections = sum(self._append_and_cycle(topic, data["corrections"]))
        new = [sum(self._append_and_cycle(topic, rows)) for rows in data["new"]]
        found = _Round(standardize, curate, floor, corrections, statistics.median(new))
        _say(
            f"{topic}: standardize {standardize:.1f} s, curate {curate:.1f} s, floor {floor:.1f} s, "
            f"corrections {corrections:.1f} s, 500 rows {', '.join(f'{seconds:.1f}' for seconds in new)} s"
        )
        return found

    def _age(self, topic: str) -> None:
        """Give every table of the topic a history: the bars hold on tables that have one."""
        databases = self.runtime.platform.rules.databases
        names = (
            databases.raw_table(topic),
            databases.standardized_table(topic),
            databases.curated_table(_table(topic)),
        )
        spark = self.runtime.spark()
        for name in names:
            table = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
                spark._jsparkSession, f"leanops.{name}"
            )
            history = table.newTransaction()
            for _ in range(SNAPSHOTS):
                history.newFastAppend().commit()
            history.commitTransaction()

    def _load(self, topic: str, events: Any) -> tuple[float, float]:
        add_topic(self.runtime.platform, topic)
        schema = json.dumps({**TOPIC_SCHEMA, "table_name": _table(topic)})
        deploy_schema(self.runtime.platform, topic, schema, "bench", "bench")
        return self._append_and_cycle(topic, events)

    def _append_and_cycle(self, topic: str, events: Any) -> tuple[float, float]:
        self._raw(topic).append(events)
        result = run_cycle(self.runtime.platform, [topic])[0]
        if result.outcome != "done":
            sys.exit(f"bench: {topic} ended {result.outcome}: {result.reason}")
        seconds = [result.layers[layer].seconds or 0.0 for layer in ("standardized", "curated")]
        return seconds[0], seconds[1]

    def _raw(self, topic: str) -> Any:
        return self.runtime.catalog.load_table(self.runtime.platform.rules.databases.raw_table(topic))

    def _raw_files(self, topic: str) -> list[str]:
        return [task.file.file_path.removeprefix("file://") for task in self._raw(topic).scan().plan_files()]


def _table(topic: str) -> str:
    return topic.replace("-", "_")


def _row(work: str, ours: float, theirs: float, bar: float) -> Row:
    ratio = ours / theirs
    return {
        "work": work,
        "ours_s": round(ours, 2),
        "theirs_s": round(theirs, 2),
        "ratio": round(ratio, 3),
        "bar": round(bar, 3),
        "passed": ratio <= bar,
    }


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{machine.system()} {machine.machine()}, Python {machine.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}"


def _print(rows: list[Row]) -> None:
    print(f"\n{'work':54} {'ours':>8} {'theirs':>8} {'ratio':>7} {'bar':>6}")
    for row in rows:
        figures = f"{row['ours_s']:8.2f} {row['theirs_s']:8.2f} {row['ratio']:7.3f} {row['bar']:6.3f}"
        print(f"{row['work']:54} {figures}  {'pass' if row['passed'] else 'FAIL'}")


def _say(text: str) -> None:
    print(f"bench: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
