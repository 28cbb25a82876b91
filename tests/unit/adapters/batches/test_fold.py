"""Folding: the same rows in few files, whoever reads them, and what is worth it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent

from leanops.adapters.iceberg.batches.fold import FoldUnit, fold_unit, fold_units, lightest
from leanops.adapters.iceberg.batches.row_delta import commit_row_delta
from leanops.adapters.iceberg.batches.stored import DeleteFile, Layout, StoredFile, stored_files
from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.errors import CommitRefusedError
from leanops.domain.table.definitions import STANDARDIZED
from tests.unit.adapters.batches.tables import (
    NAME,
    catalog_in,
    created,
    event,
    head_of,
    manifests,
    read_by_us,
    scanned,
    summary_of,
    upsert,
    uuid_of,
)

RULES = TaskRules(fold_files=4)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as catalog:
        created(catalog, STANDARDIZED)
        yield catalog


def files_of(catalog: Catalog) -> list[StoredFile]:
    table = catalog.load_table(NAME)
    return stored_files(table, table.metadata.current_snapshot_id, ("record_key",))


def units_of(catalog: Catalog, rules: TaskRules = RULES) -> list[FoldUnit]:
    return fold_units(Layout.of(catalog.load_table(NAME)), "record_key", files_of(catalog), rules)


def folded(catalog: Catalog, rules: TaskRules = RULES) -> int:
    """Fold once; how many files went."""
    base, units = head_of(catalog), units_of(catalog, rules)
    written = [fold_unit(unit) for unit in units]
    removed = {path for unit in units for path in unit.removed}
    commit_row_delta(
        catalog,
        NAME,
        uuid=uuid_of(catalog),
        base=base,
        data_files=[file for one in written for file in one.files],
        delete_files=[file for one in written for file in one.deletes],
        removed=removed,
        summary={"leanops.kind": "fold"},
    )
    return len(removed)


def live_by_totals(catalog: Catalog) -> int:
    table, head = catalog.load_table(NAME), head_of(catalog)
    assert head is not None
    summary = summary_of(table, head)
    return int(summary["total-records"]) - int(summary["total-position-deletes"])


def test_small_files_become_one_without_their_dead_rows_and_their_deletes(catalog: Catalog) -> None:
    for turn in range(5):
        upsert(catalog, [event("always", turn), event(f"once {turn}", turn)])
    before = scanned(catalog, "record_key", "_batch_seq")
    assert folded(catalog) == 5 + 4
    (file,) = files_of(catalog)
    assert (file.rows, file.deletes) == (6, ())
    assert (file.bounds["record_key"]) == ("always", "once 4")
    assert scanned(catalog, "record_key", "_batch_seq") == read_by_us(catalog, "record_key", "_batch_seq") == before
    head = head_of(catalog)
    assert head is not None
    summary = summary_of(catalog.load_table(NAME), head)
    assert (summary["operation"], summary["leanops.kind"]) == ("replace", "fold")
    assert (summary["added-records"], summary["deleted-records"], summary["removed-position-deletes"]) == (
        *("6", "10"),
        "4",
    )
    assert live_by_totals(catalog) == 6
    assert units_of(catalog) == []


def test_many_deletes_of_a_large_file_become_one_and_the_file_stays(catalog: Catalog) -> None:
    upsert(catalog, [event(f"k{number:03}") for number in range(100)])
    (large,) = files_of(catalog)
    # Every correction goes into another partition, so that nothing but its deletes are many.
    for turn in range(5):
        upsert(catalog, [event(f"k{turn:03}", 1, period=f"2026-0{turn + 4}")])
    before = scanned(catalog, "record_key", "_batch_seq")
    (unit,) = units_of(catalog)
    assert (unit.files, [file.path for file in unit.kept], len(unit.removed)) == ((), [large.path], 5)
    folded(catalog)
    (same,) = [file for file in files_of(catalog) if file.path == large.path]
    assert [delete.rows for delete in same.deletes] == [5]
    assert scanned(catalog, "record_key", "_batch_seq") == read_by_us(catalog, "record_key", "_batch_seq") == before
    assert live_by_totals(catalog) == 100


def test_deletes_that_also_name_files_that_stay_are_written_anew_for_these(catalog: Catalog) -> None:
    upsert(catalog, [event(f"k{number:03}") for number in range(300)])
    for turn in range(25):
        upsert(catalog, [event(f"s{turn:02}", turn)])
    # More data files than get a delete file each: all of them share one.
    upsert(catalog, [event(f"s{turn:02}", 99) for turn in range(25)] + [event("k000", 99)])
    before = scanned(catalog, "record_key", "_batch_seq")
    (unit,) = units_of(catalog)
    assert len(unit.kept) == 1
    folded(catalog)
    assert scanned(catalog, "record_key", "_batch_seq") == read_by_us(catalog, "record_key", "_batch_seq") == before
    assert live_by_totals(catalog) == len(before) == 325


@pytest.mark.parametrize("seed", range(2))
def test_files_stay_few_and_rows_right_over_many_batches(catalog: Catalog, seed: int) -> None:
    chance, held, most, written = random.Random(seed), dict[str, int](), 0, 0
    for turn in range(80):
        keys = {f"k{chance.randrange(150):03}" for _ in range(chance.randint(1, 5))}
        upsert(catalog, [event(key, turn) for key in sorted(keys)])
        held |= dict.fromkeys(keys, turn)
        if units := units_of(catalog):
            written += sum(file.rows for unit in units for file in unit.files)
            folded(catalog)
        most = max(most, len(files_of(catalog)))
        assert live_by_totals(catalog) == len(held)
    assert scanned(catalog, "record_key", "_batch_seq") == sorted(held.items())
    assert read_by_us(catalog, "record_key", "_batch_seq") == sorted(held.items())
    assert most <= 12
    # A row is written anew a few times, not with every batch.
    assert written < 80 * 5 * 6
    assert max(len(manifests(catalog, kind)) for kind in ManifestContent) <= 20


def test_a_fold_on_another_head_is_refused(catalog: Catalog) -> None:
    for turn in range(5):
        upsert(catalog, [event("always", turn)])
    base, (unit,) = head_of(catalog), units_of(catalog)
    written = fold_unit(unit)
    upsert(catalog, [event("always", 9)])
    with pytest.raises(CommitRefusedError):
        commit_row_delta(
            catalog,
            NAME,
            uuid=uuid_of(catalog),
            base=base,
            data_files=written.files,
            delete_files=written.deletes,
            removed=unit.removed,
            summary={},
        )
    assert scanned(catalog, "record_key", "_batch_seq") == [("always", 9)]


def test_a_file_the_table_does_not_have_cannot_be_removed(catalog: Catalog) -> None:
    upsert(catalog, [event("always")])
    there = head_of(catalog)
    with pytest.raises(ValueError, match="does not have 1 of the files"):
        commit_row_delta(
            catalog,
            NAME,
            uuid=uuid_of(catalog),
            base=there,
            data_files=[],
            delete_files=[],
            removed={"elsewhere.parquet"},
            summary={},
        )
    assert head_of(catalog) == there


def stored(rows: int, size: int = 1, spec_id: int = 0, deletes: tuple[DeleteFile, ...] = ()) -> StoredFile:
    return StoredFile(f"{rows}-{size}-{random.random()}", rows, size, spec_id, ("2026-03", 1), deletes=deletes)


def test_what_is_worth_folding(catalog: Catalog) -> None:
    layout = Layout.of(catalog.load_table(NAME))

    def chosen(*files: StoredFile, rules: TaskRules = RULES) -> list[list[int]]:
        return [[file.rows for file in unit.files] for unit in fold_units(layout, "record_key", files, rules)]

    few = [stored(10)] * 3
    assert chosen(*few) == []
    assert chosen(*few, stored(10)) == [[10, 10, 10, 10]]
    assert chosen(*few, stored(10_000)) == []
    assert chosen(*few, stored(10, spec_id=7)) == []
    # As much as a task can hold, twice what it reads of a batch; not one file alone.
    assert chosen(*[stored(30)] * 4, rules=TaskRules(fold_files=4, task_rows=40)) == [[30, 30]]
    assert chosen(*[stored(1, size=30)] * 4, rules=TaskRules(fold_files=4, task_bytes=30)) == [[1, 1]]
    assert chosen(*[stored(50)] * 4, rules=TaskRules(fold_files=4, task_rows=40)) == []


def test_the_lightest_end_before_one_that_outweighs_them() -> None:
    assert lightest([5, 1, 1, 2, 9], lambda number: number) == [1, 1, 2, 5, 9]
    assert lightest([1, 1, 5, 9], lambda number: number) == [1, 1]
    assert lightest([1, 100], lambda number: number) == [1, 100]
    assert lightest([], lambda number: number) == []
