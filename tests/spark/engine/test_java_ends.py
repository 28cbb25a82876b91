"""Spark's Java killed under a process that goes on, and what a killed process leaves in its home."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from leanops.runtimes.embedded import create_home
from tests.support.places import ROOT
from tests.support.sparkling import SETTINGS


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = create_home(tmp_path_factory.mktemp("ends") / "home")
    (made / "leanops.toml").write_text(SETTINGS)
    return made


@pytest.fixture(scope="module")
def worker(home: Path) -> "subprocess.CompletedProcess[str]":
    """A process of its own: the Java of the other tests stays alive."""
    command = [sys.executable, "-m", "tests.spark.engine.ending_worker", str(home)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, umask=0o022, timeout=600, check=False)


def test_the_next_cycle_starts_a_new_java(worker: "subprocess.CompletedProcess[str]", home: Path) -> None:
    (first, killed, again) = json.loads(worker.stdout)["cycles"]
    assert (first, again) == (["done", None, 2], ["done", None, 2])
    outcome, reason, read = killed
    assert (outcome, read) == ("failed", 0)
    assert reason.startswith("Spark's Java was killed, by somebody or because the machine ran out of memory")
    assert (
        "driver_memory (now 2g; set it in leanops.toml or LEANOPS_SPARK_DRIVER_MEMORY); the next try starts" in reason
    )
    assert reason.endswith(f"its trace is in {home}/logs/failures.log")
    assert "Traceback" not in worker.stderr


def test_whatever_spark_writes_is_for_the_owner_of_the_home_alone(
    worker: "subprocess.CompletedProcess[str]", home: Path
) -> None:
    assert [file for file in home.rglob("*.parquet") if "standardized" in str(file)]
    warehouse = [str(path) for path in (home / "warehouse").rglob("*") if path.stat().st_mode & 0o077]
    assert warehouse == []
    scratch = [str(path) for path in (home / "scratch").rglob("*") if path.stat().st_mode & 0o077]
    assert scratch == []


def test_scratch_of_a_process_that_ended_is_removed_at_the_start(
    worker: "subprocess.CompletedProcess[str]",
) -> None:
    said = json.loads(worker.stdout)
    assert sorted(said["scratch"]) == sorted([said["own"], "of-nobody-known"])
