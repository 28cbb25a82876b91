"""A worker that stops somewhere, lets another finish what it was doing, and then goes on as if nothing had happened."""

import logging
import os
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlparse

from leanops.domain.errors import LeanOpsError
from tests.support.world import World

LOG = logging.getLogger("stalls")
LOG.setLevel(logging.INFO)
EVERY = 3
"""Outside of a whole run only every third step of an operation is tried: which ones depends on the commit."""
OFTEN = 2
"""How many times a step that comes again and again is a point of its own."""
Point = tuple[str, int]
"""A step by its name, and the how manieth of that name."""
Item = TypeVar("Item")


class Stall:
    """A step function that lets somebody else work once: at its nth call, at a step by its name, or at a point."""

    def __init__(self, where: int | str | Point | None, other: Callable[[], None]) -> None:
        self.where, self.other = where, other
        self.passed: list[str] = []
        self.at: str | None = None

    def __call__(self, name: str) -> None:
        self.passed.append(name)
        here = (len(self.passed), name, (name, self.passed.count(name)))
        if self.where in here and self.at is None:
            self.at = name
            self.other()

    @property
    def points(self) -> list[Point]:
        """The steps that were passed, each of them at most twice."""
        counted = [(name, self.passed[: at + 1].count(name)) for at, name in enumerate(self.passed)]
        return [point for point in counted if point[1] <= OFTEN]


def stalled(stall: Stall, work: Callable[[], Any]) -> bool:
    """Do the work with the stall in it; whether it came so far. Whoever wakes up late may only be refused."""
    try:
        work()
    except LeanOpsError as refused:
        assert stall.at is not None
        LOG.info("%s: %s", stall.at, refused)
    else:
        LOG.info("%s: went on", stall.at or f"all {len(stall.passed)} steps passed")
    return stall.at is not None


def chosen(points: Sequence[Item]) -> Sequence[Item]:
    """The points of this run: all with STALLS=all, else every third, starting where the commit says."""
    return points if is_whole_run() else points[first_point() - 1 :: EVERY]


def is_whole_run() -> bool:
    """Whether every stall point of every operation is tried."""
    return os.environ.get("STALLS") == "all"


def first_point() -> int:
    """Where every third begins; the same for everybody who runs this commit."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return 1 + random.Random(found).randrange(EVERY)


def assert_no_live_file_is_gone(world: World) -> None:
    """Every file that any snapshot of any live table names is there."""
    catalog, databases = world.embedded.catalog, world.databases
    for database in (databases.raw, databases.standardized, databases.curated, databases.ops):
        if catalog.namespace_exists(database):
            for name in catalog.list_tables(database):
                gone = [path for path in _files(catalog.load_table(name)) if not Path(urlparse(path).path).exists()]
                assert gone == [], name


def _files(table: Any) -> set[str]:
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return found
