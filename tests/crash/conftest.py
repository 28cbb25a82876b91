"""Says which stall points this run tries; most of it needs no Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.runtimes.embedded import Embedded
from tests.crash.stalls.stalls import EVERY, first_point, is_whole_run
from tests.support.world import World


def pytest_report_header() -> str:
    if is_whole_run():
        return "stall points: all"
    return f"stall points: every {EVERY}rd, from {first_point()} (STALLS=all runs all)"


@pytest.fixture
def world(embedded: Embedded, tmp_path: Path) -> Iterator[World]:
    """A world whose batches are worked on in this process: the same tasks, files and commits, without Spark."""
    made = World(embedded, tmp_path, in_process=True)
    yield made
    made.close()


@pytest.fixture
def spark_world(embedded: Embedded, tmp_path: Path) -> Iterator[World]:
    made = World(embedded, tmp_path)
    yield made
    made.close()
