"""`leanops emulate` as a person runs it: whole, phase by phase, and over tables that somebody spoilt."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leanops.runtimes.embedded import Embedded

LEANOPS = Path(sys.executable).parent / "leanops"
PROBLEMS = 3
pytestmark = pytest.mark.slow


def leanops(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LEANOPS, *words],
        env=os.environ | {"LEANOPS_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def assert_verified(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "verified" in ran.stdout


def ask(home: Path, statement: str) -> list[dict[str, Any]]:
    ran = leanops(home, "sql", "--json", statement)
    assert ran.returncode == 0, ran.stderr
    rows: list[dict[str, Any]] = json.loads(ran.stdout)
    return rows


@pytest.mark.parametrize("seed", ["1", "2"])
def test_fifty_thousand_events_are_verified(tmp_path: Path, seed: str) -> None:
    ran = leanops(tmp_path / "home", "emulate", "full", "--events", "50000", "--topics", "4", "--seed", seed)
    assert_verified(ran)
    moved = "select sum(cross_period)::int as moved from ops_db.job_run_history"
    assert ask(tmp_path / "home", moved)[0]["moved"] > 0


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small story of which each phase was a command of its own."""
    home = tmp_path_factory.mktemp("stepped") / "home"
    for words in (
        ("clean", "--topics", "2", "--seed", "3"),
        ("day1", "--events", "4000"),
        ("schema",),
        ("day2", "--events", "200"),
        ("day4", "--events", "20"),
    ):
        ran = leanops(home, "emulate", *words)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    return home


def test_phases_one_by_one_end_as_the_whole_does(stepped: Path, tmp_path: Path) -> None:
    whole = tmp_path / "home"
    assert_verified(leanops(whole, "emulate", "full", "--events", "4000", "--topics", "2", "--seed", "3"))
    assert_verified(leanops(stepped, "emulate", "verify"))
    for table in ("iceberg_curated_db.orders", "iceberg_curated_db.payments", "iceberg_curated_db.errors"):
        rows = f"select topic_name, message_id, publish_time, ingestion_ts from {table} order by all"
        assert ask(stepped, rows) == ask(whole, rows)
        assert ask(stepped, rows)


def test_a_row_that_is_gone_is_named_and_the_command_says_that_it_found_problems(stepped: Path) -> None:
    (first,) = ask(stepped, "select min(message_id) as message from iceberg_curated_db.errors")
    runtime = Embedded(stepped)
    try:
        runtime.catalog.load_table("iceberg_curated_db.errors").delete(f"message_id = '{first['message']}'")
    finally:
        runtime.close()
    ran = leanops(stepped, "emulate", "verify")
    assert ran.returncode == PROBLEMS, ran.stdout + ran.stderr
    assert f"{first['message']} is missing" in ran.stdout
