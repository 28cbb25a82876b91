"""Fixtures: one Spark application for all tests of a run, and a world of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.runtimes.embedded import Embedded, create_home
from tests.support.world import World

SETTINGS = """
[spark]
master = "local[2]"
driver_memory = "2g"
java_options = "-XX:+UseSerialGC"
"""


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    home = create_home(tmp_path_factory.mktemp("embedded") / "home")
    (home / "leanops.toml").write_text(SETTINGS)
    runtime = Embedded(home)
    yield runtime
    runtime.close()


@pytest.fixture
def world(embedded: Embedded, tmp_path: Path) -> Iterator[World]:
    """A world whose tasks run in this process: the same tasks, files and commits, without Spark."""
    made = World(embedded, tmp_path, in_process=True)
    yield made
    made.close()


@pytest.fixture
def spark_world(embedded: Embedded, tmp_path: Path) -> Iterator[World]:
    """A world whose tasks run on Spark."""
    made = World(embedded, tmp_path)
    yield made
    made.close()
