"""Folding: the same rows in few files, whoever reads them, and what is worth it."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.row_delta import commit_row_delta
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks import written
from leanops.adapters.iceberg.tasks.fold import FoldUnit, fold_unit, fold_units, lightest
from leanops.adapters.iceberg.tasks.stored import DeleteFile, Layout, StoredFile, stored_files
from leanops.domain.errors import CommitRefusedError, CommitUnknownError, RetryableError, UnbalancedBatchError
from leanops.domain.table.definitions import STANDARDIZED
from leanops.ports.engine import Fold, Target
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


def test_a_fold_of_other_rows_than_its_files_have_is_given_up(catalog: Catalog) -> None:
    for number in range(4):
        upsert(catalog, [event(f"k{number}", number)])
    (unit,) = units_of(catalog)
    assert len(fold_unit(unit).files) == 1
    claimed = replace(unit, files=(replace(unit.files[0], rows=2), *unit.files[1:]))
    with pytest.raises(UnbalancedBatchError, match="hold 4 rows, not 5"):
        fold_unit(claimed)


def folded(catalog: Catalog, rules: TaskRules = RULES) -> int:
    """Fold once; how many files went."""
    base, units = head_of(catalog), units_of(catalog, rules)
    parts = [fold_unit(unit) for unit in units]
    removed = {path for unit in units for path in unit.removed}
    commit_row_delta(
        catalog,
        NAME,
        uuid=uuid_of(catalog),
        base=base,
        data_files=[file for one in parts for file in one.files],
        delete_files=[file for one in parts for file in one.deletes],
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
    chance, held, most, rows = random.Random(seed), dict[str, int](), 0, 0
    for turn in range(80):
        keys = {f"k{chance.randrange(150):03}" for _ in range(chance.randint(1, 5))}
        upsert(catalog, [event(key, turn) for key in sorted(keys)])
        held |= dict.fromkeys(keys, turn)
        if units := units_of(catalog):
            rows += sum(file.rows for unit in units for file in unit.files)
            folded(catalog)
        most = max(most, len(files_of(catalog)))
        assert live_by_totals(catalog) == len(held)
    assert scanned(catalog, "record_key", "_batch_seq") == sorted(held.items())
    assert read_by_us(catalog, "record_key", "_batch_seq") == sorted(held.items())
    assert most <= 12
    # A row is written anew a few times, not with every batch.
    assert rows < 80 * 5 * 6
    assert max(len(manifests(catalog, kind)) for kind in ManifestContent) <= 20


def test_a_fold_on_another_head_is_refused(catalog: Catalog) -> None:
    for turn in range(5):
        upsert(catalog, [event("always", turn)])
    base, (unit,) = head_of(catalog), units_of(catalog)
    folded = fold_unit(unit)
    upsert(catalog, [event("always", 9)])
    with pytest.raises(CommitRefusedError):
        commit_row_delta(
            catalog,
            NAME,
            uuid=uuid_of(catalog),
            base=base,
            data_files=folded.files,
            delete_files=folded.deletes,
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
    # A lone small one goes with the others; three of them are too few to be worth all the others.
    assert chosen(stored(1), *[stored(10)] * 4) == [[1, 10, 10, 10, 10]]
    assert chosen(*[stored(1)] * 3, *[stored(100)] * 3) == []
    # As much as a task can hold, twice what it reads of a batch.
    assert chosen(*[stored(30)] * 4, rules=TaskRules(fold_files=4, task_rows=40)) == [[30, 30]]
    assert chosen(*[stored(1, size=30)] * 4, rules=TaskRules(fold_files=4, task_bytes=30)) == [[1, 1]]
    # What a task would not read of a batch stays as it is.
    assert chosen(*[stored(50)] * 4, rules=TaskRules(fold_files=4, task_rows=40)) == []
    assert chosen(*[stored(1, size=50)] * 4, rules=TaskRules(fold_files=4, task_bytes=40)) == []
    # Two files of more than half the size that the table asks for would be two again.
    large = replace(layout, properties={**layout.properties, "write.target-file-size-bytes": "100"})
    assert fold_units(large, "record_key", [stored(1, size=51)] * 4, RULES) == []
    assert len(fold_units(large, "record_key", [stored(1, size=50)] * 4, RULES)) == 1


@pytest.mark.parametrize(
    ("weights", "least", "chosen"),
    [
        ([5, 1, 1, 2, 9], 3, [1, 1, 2, 5, 9]),
        ([1, 1, 5, 9], 2, [1, 1]),
        ([1, 1, 5, 9, 9], 3, [1, 1, 5, 9, 9]),
        ([1, 1, 5, 9], 3, []),
        ([1, 100], 2, []),
        ([0, 0, 7], 2, [0, 0]),
        ([3], 2, []),
        ([], 2, []),
    ],
)
def test_the_lightest_are_many_of_similar_weight(weights: list[int], least: int, chosen: list[int]) -> None:
    assert lightest(weights, lambda number: number, least) == chosen


@pytest.mark.parametrize("rows", [1, 10, 39, 40, 41, 55, 79])
def test_a_row_is_written_anew_a_few_times_even_where_files_are_as_large_as_a_task_can_hold(
    catalog: Catalog, rows: int
) -> None:
    layout, rules = Layout.of(catalog.load_table(NAME)), TaskRules(fold_files=4, task_rows=40)
    files, times = list[StoredFile](), dict[str, int]()
    for _ in range(200):
        files.append(stored(rows))
        for unit in fold_units(layout, "record_key", files, rules):
            gone = {file.path for file in unit.files}
            one = stored(sum(file.rows for file in unit.files))
            times[one.path] = 1 + max(times.get(path, 0) for path in gone)
            files = [one, *(file for file in files if file.path not in gone)]
    assert max(times.values(), default=0) <= 6
    assert len([file for file in files if file.rows < 20]) <= 7


def fold_of(catalog: Catalog) -> Fold:
    head = head_of(catalog)
    return Fold(Target(NAME, uuid_of(catalog), head, "errors"), "record_key", {"leanops.kind": "fold"})


def test_a_partition_that_cannot_be_folded_leaves_the_others_to_be(catalog: Catalog) -> None:
    for turn in range(4):
        upsert(catalog, [event("a", turn, period="2026-03"), event("b", turn, period="2026-04")])

    class Half(InProcess):
        def run(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            _, second = super().run(function, items)
            return [RetryableError("the disk is full"), second]

    (failed,) = TaskEngine(catalog, Half(), RULES).fold([fold_of(catalog)])
    assert str(failed) == "the disk is full"
    partitions = Counter(file.partition for file in files_of(catalog))
    assert sorted(partitions.values()) == [1, 4]
    assert scanned(catalog, "record_key", "_batch_seq") == [("a", 3), ("b", 3)]


def test_a_fold_that_is_not_confirmed_keeps_its_files(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in range(5):
        upsert(catalog, [event("always", turn)])
    real = Table._do_commit

    def lost(*args: Any) -> None:
        real(*args)
        raise OSError("the line is dead")

    monkeypatch.setattr(Table, "_do_commit", lost)
    (unknown,) = TaskEngine(catalog, InProcess(), RULES).fold([fold_of(catalog)])
    assert isinstance(unknown, CommitUnknownError)
    assert scanned(catalog, "record_key", "_batch_seq") == [("always", 4)]
    assert len(files_of(catalog)) == 1


def test_a_table_that_moved_before_it_was_folded_stays_as_it_is(catalog: Catalog) -> None:
    for turn in range(5):
        upsert(catalog, [event("always", turn)])
    fold = fold_of(catalog)
    upsert(catalog, [event("always", 9)])
    there = parquet_files(catalog)
    (refused,) = TaskEngine(catalog, InProcess(), RULES).fold([fold])
    assert isinstance(refused, CommitRefusedError)
    assert parquet_files(catalog) == there


def test_nothing_is_left_of_a_fold_whose_deletes_cannot_be_written(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turn in range(5):
        upsert(catalog, [event("always", turn)])
    (unit,), there = units_of(catalog), parquet_files(catalog)

    def full(*_: object) -> None:
        assert len(parquet_files(catalog)) == len(there) + 1
        raise OSError("the disk is full")

    monkeypatch.setattr(written, "write_deletes", full)
    with pytest.raises(OSError, match="the disk is full"):
        fold_unit(unit)
    assert parquet_files(catalog) == there


def parquet_files(catalog: Catalog) -> set[Path]:
    return set(Path(catalog.load_table(NAME).location().removeprefix("file://")).rglob("*.parquet"))
