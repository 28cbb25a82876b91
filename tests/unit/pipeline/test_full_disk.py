"""A full disk, met at any file: its topic says so, what was written is removed, and with room all of it is done."""

import errno
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFile

from leanops.domain.table.outcome import Outcome
from leanops.usecases.cycle.run import run_cycle
from tests.oracle.streams import SCHEMA, make_stream, split
from tests.support.verify import assert_tables, replayed
from tests.support.world import PII_KEY, World

FULL = "the disk is full (No space left on device); make room, and the next try goes on from here"


class Disk:
    """Takes so many files and then no more, or all of them."""

    def __init__(self) -> None:
        self.left: int | None = None

    def take(self) -> None:
        """A file is about to be written."""
        if self.left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.left is not None:
            self.left -= 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Where tasks write data and deletes, and the driver manifests and metadata."""
    disk, create = Disk(), PyArrowFile.create

    def guarded(self: PyArrowFile, overwrite: bool = False) -> Any:
        disk.take()
        return create(self, overwrite)

    monkeypatch.setattr(PyArrowFile, "create", guarded)
    return disk


def data_files(world: World) -> tuple[set[str], set[str]]:
    """The Parquet files in the folders of the topic's tables, and those that a snapshot of one names."""
    there, named = set[str](), set[str]()
    databases = world.databases
    tables = databases.standardized_table("orders"), databases.curated_table("orders")
    for name in (*tables, databases.parse_errors, databases.errors):
        table = world.embedded.catalog.load_table(name)
        folder = Path(table.location().removeprefix("file://"))
        there |= {f"file://{path}" for path in folder.rglob("*.parquet")}
        for snapshot in table.snapshots():
            for manifest in snapshot.manifests(table.io):
                named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return there, named


def test_a_full_disk_loses_and_doubles_nothing_whatever_file_it_is_met_at(world: World, disk: Disk) -> None:
    world.add("orders", json.dumps(SCHEMA))
    rows = make_stream(Random(7), 360)
    batches = iter(split(rows, set(range(20, len(rows), 20))))
    world.publish("orders", next(batches))
    world.cycle()
    refused, whole = list[str](), 0
    for files, rows in enumerate(batches):
        world.publish("orders", rows)
        disk.left = 3 * files
        (result,) = run_cycle(world.platform(), ["orders"])
        disk.left = None
        if result.outcome == Outcome.FAILED:
            refused.append(result.reason or "")
        else:
            whole += 1
        world.wait_for_leases()
        world.settle()
    assert len(refused) > 5
    assert set(refused) == {FULL}
    assert whole > 3
    assert_tables(world, "orders", replayed(world, "orders", SCHEMA, pii_key=PII_KEY))
    there, named = data_files(world)
    assert there - named == set(), "no file is left that no table has"
