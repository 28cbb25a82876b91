"""Processing: 1 M events through both layers, then corrections and new rows; README.md says what is measured."""

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.data import TOPIC_SCHEMA, raw_table
from bench.floor import run_floor
from bench.period import bytes_ratio
from bench.rows import Row, row, say
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic

SNAPSHOTS = 300


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


class Cycles:
    """One home, one Spark application, a fresh topic for every round; README.md says what is measured and why."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.runtime = Embedded(create_home(folder / "home"))

    def run(self, rounds: int) -> list[Row]:
        """One round that warms up, then the measured ones; of each work the median counts, of the floor too."""
        say("making the standard data")
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
            row("1 M events RAW to Standardized / DuckDB floor", median("standardize"), median("floor"), 6.0),
            row("curating 1 M / standardizing it", median("curate"), median("standardize"), 1.0),
            row("50 K corrections into 1 M, both layers / first load", median("corrections"), load, 1 / 3),
            row("500 new rows into 1 M, both layers / first load", median("new_rows"), load, 1 / 10),
            {**row("period total, MB read / unpartitioned copy", ours, theirs, 1 / 10), "ratio": round(ratio, 4)},
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
        say(
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
        deploy_schema(self.runtime.platform, topic, schema, "bench")
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
