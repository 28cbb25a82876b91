"""Metadata of tables is read once, what a hit costs does not grow, and what is kept is bounded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from leanops.adapters.iceberg import local
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.domain.table.definitions import STANDARDIZED
from tests.unit.adapters.batches.tables import catalog_in, event


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setattr(local, "READ_SNAPSHOTS", 12)
    monkeypatch.setattr(local, "WRITTEN_SNAPSHOTS", 12)
    with catalog_in(tmp_path) as catalog:
        yield catalog


class Metadata:
    """Stands in for a table's metadata, and counts the looks at its snapshots."""

    def __init__(self, snapshots: int) -> None:
        self.count, self.looks = snapshots, 0

    @property
    def snapshots(self) -> list[int]:
        self.looks += 1
        return [0] * self.count


def test_a_hit_looks_at_no_snapshot_of_any_table() -> None:
    kept: Any = local.Remembered(100)
    tables = [Metadata(3) for _ in range(5)]
    for at, one in enumerate(tables):
        kept.put((str(at),), "place", one)
    looks = [one.looks for one in tables]
    assert [kept.find((str(at),), "place") for at in range(5)] == tables
    assert kept.find(("0",), "another place") is None
    assert [one.looks for one in tables] == looks


def test_those_used_last_are_kept_and_at_least_one() -> None:
    kept: Any = local.Remembered(10)
    for name in ("a", "b"):
        kept.put((name,), "place", Metadata(3))
    assert kept.find(("a",), "place")
    kept.put(("c",), "place", Metadata(3))
    assert [bool(kept.find((name,), "place")) for name in "abc"] == [True, False, True]
    for _ in range(3):
        kept.put(("c",), "place", Metadata(4))
    assert [bool(kept.find((name,), "place")) for name in "abc"] == [True, False, True], "the same one counts once"
    assert kept.take(("a",))
    assert kept.take(("a",)) is None
    kept.put(("d",), "place", Metadata(3))
    assert [bool(kept.find((name,), "place")) for name in "abcd"] == [False, False, True, True]
    kept.put(("large",), "place", Metadata(1_000))
    assert [bool(kept.find((name,), "place")) for name in ("c", "d", "large")] == [False, False, True]


def test_what_was_committed_is_not_read_again_and_what_nobody_reads_is_forgotten(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, convert = list[str](), SqlCatalog._convert_orm_to_iceberg

    def noted(self: SqlCatalog, row: Any) -> Any:
        read.append(row.table_name)
        return convert(self, row)

    monkeypatch.setattr(SqlCatalog, "_convert_orm_to_iceberg", noted)
    tables = IcebergCatalog(catalog)
    for name in ("db.a", "db.b"):
        tables.create(name, STANDARDIZED)
        for version in range(3):
            tables.append(name, [event("k", version)])
    assert read == []
    for at in range(20):
        tables.create(f"db.unread{at}", STANDARDIZED)
    written: Any = catalog
    assert sum(1 + len(one.snapshots) for _, one in written._written._by_name.values()) <= 12
