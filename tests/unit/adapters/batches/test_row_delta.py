"""Commits: one exact head or none, summaries that add up, few manifests, and nothing removed in doubt."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.table import Table

from leanops.adapters.iceberg.batches.row_delta import commit_on_any_head, commit_row_delta
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.local import LocalCatalog, NothingCommittedError
from leanops.adapters.iceberg.tasks.stored import Layout, stored_files
from leanops.adapters.iceberg.tasks.written import write_deletes
from leanops.domain.errors import CommitRefusedError, CommitUnknownError, PermanentError
from leanops.domain.table.definitions import STANDARDIZED
from tests.support.builders import Stalling
from tests.unit.adapters.batches.tables import (
    NAME,
    avros,
    catalog_in,
    committed,
    created,
    event,
    files_with,
    head_of,
    read_by_us,
    scanned,
    summary_of,
    upsert,
    uuid_of,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as catalog:
        yield catalog


def test_a_row_delta_adds_rows_and_deletes_in_one_snapshot_with_an_exact_summary(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    first = upsert(catalog, [event("a", 1), event("b", 1), event("c", 1, day=1)], **{"leanops.batch-id": "b1"})
    second = upsert(catalog, [event("a", 2), event("c", 2, day=1), event("d", 2)], **{"leanops.batch-id": "b2"})
    table = catalog.load_table(NAME)
    sizes = {name: sum(f["file_size_in_bytes"] for f in found) for name, found in _by_snapshot(table).items()}
    assert summary_of(table, first) == {
        "operation": "overwrite",
        "leanops.batch-id": "b1",
        "added-files-size": str(sizes[first]),
        "added-data-files": "2",
        "added-records": "3",
        "changed-partition-count": "2",
        "total-data-files": "2",
        "total-delete-files": "0",
        "total-records": "3",
        "total-files-size": str(sizes[first]),
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    assert summary_of(table, second) == {
        "operation": "overwrite",
        "leanops.batch-id": "b2",
        "added-files-size": str(sizes[second]),
        "added-data-files": "2",
        "added-records": "3",
        "added-delete-files": "2",
        "added-position-delete-files": "2",
        "added-position-deletes": "2",
        "changed-partition-count": "2",
        "total-data-files": "4",
        "total-delete-files": "2",
        "total-records": "6",
        "total-files-size": str(sizes[first] + sizes[second]),
        "total-position-deletes": "2",
        "total-equality-deletes": "0",
    }
    assert scanned(catalog, "record_key", "_batch_seq") == [("a", 2), ("b", 1), ("c", 2), ("d", 2)]
    view = IcebergCatalog(catalog).load(NAME)
    assert view is not None
    assert [(one.operation, one.added_records, one.batch_id) for one in view.ancestors()] == [
        ("overwrite", 3, "b2"),
        ("overwrite", 3, "b1"),
    ]


def _by_snapshot(table: Table) -> dict[int, list[dict[str, Any]]]:
    entries = table.inspect.entries().to_pylist()
    return {
        number: [entry["data_file"] for entry in entries if entry["snapshot_id"] == number]
        for number in {entry["snapshot_id"] for entry in entries}
    }


def test_totals_go_on_from_a_summary_that_another_tool_wrote(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    totals = {"total-records": "1000", "total-data-files": "7", "total-position-deletes": "40", "engine-name": "spark"}
    IcebergCatalog(catalog).mark(NAME, {"leanops.batch-id": "b1"})
    table = catalog.load_table(NAME)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    snapshot.summary.additional_properties.update(totals)
    stalled: Any = Loaded(catalog, table)
    files = files_with(catalog, "a", "b")
    summary = summary_of(table, committed(stalled, snapshot.snapshot_id, files))
    assert {key: summary[key] for key in totals if key in summary} == {
        "total-records": "1002",
        "total-data-files": "8",
        "total-position-deletes": "40",
    }


class Loaded:
    """A catalog that gives a table as it is in memory."""

    def __init__(self, catalog: Catalog, table: Table) -> None:
        self._table = table

    def load_table(self, name: str) -> Table:
        return self._table


def test_an_empty_batch_is_a_commit_with_its_summary_on_an_empty_table_and_on_a_full_one(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    first = committed(catalog, None, [], note="nothing yet")
    assert read_by_us(catalog, "record_key") == []
    upsert(catalog, [event("a", 1)])
    last = committed(catalog, head_of(catalog), [], note="nothing new")
    table = catalog.load_table(NAME)
    assert head_of(catalog) == last
    for number, note, records in ((first, "nothing yet", "0"), (last, "nothing new", "1")):
        summary = summary_of(table, number)
        assert (summary["operation"], summary["note"], summary["total-records"]) == ("overwrite", note, records)
        assert "added-records" not in summary
    assert scanned(catalog, "record_key") == [("a",)]


def test_a_commit_on_a_head_that_is_not_the_newest_is_refused_before_anything_is_written(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    upsert(catalog, [event("a", 1)])
    base = head_of(catalog)
    committed(catalog, base, files_with(catalog, "b"))
    before = avros(catalog)
    for stale in (base, None):
        with pytest.raises(CommitRefusedError, match=r"db\.t was changed by another writer"):
            committed(catalog, stale, files_with(catalog, "b"))
    assert avros(catalog) == before
    assert scanned(catalog, "record_key") == [("a",), ("b",)]


@pytest.mark.parametrize("filled", [False, True], ids=["the first commit of all", "a later one"])
def test_of_two_commits_on_one_head_the_second_is_refused_and_leaves_no_manifests(
    catalog: Catalog, filled: bool
) -> None:
    created(catalog, STANDARDIZED)
    if filled:
        upsert(catalog, [event("a", 1)])
    base = head_of(catalog)
    ours, theirs = files_with(catalog, "ours"), files_with(catalog, "theirs")
    late: Any = Stalling(catalog, lambda: committed(catalog, base, theirs), at=NAME)
    with pytest.raises(CommitRefusedError, match=r"db\.t was changed by another writer"):
        committed(late, base, ours)
    assert ("theirs",) in scanned(catalog, "record_key")
    assert ("ours",) not in scanned(catalog, "record_key")
    table = catalog.load_table(NAME)
    known = {Path(entry.manifest_list).name for entry in table.metadata.snapshots}
    known |= {Path(row["path"]).name for row in table.inspect.all_manifests().to_pylist()}
    assert avros(catalog) == known


def test_a_commit_whose_metadata_cannot_be_written_leaves_nothing_and_is_no_unknown_one(tmp_path: Path) -> None:
    is_full = False

    def sync(_folder: Path) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    catalog = LocalCatalog("leanops", tmp_path, sync)
    created(catalog, STANDARDIZED)
    upsert(catalog, [event("a", 1)])
    files, before, base = files_with(catalog, "b"), avros(catalog), head_of(catalog)
    is_full = True
    with pytest.raises(NothingCommittedError, match="No space left"):
        committed(catalog, base, files)
    assert (avros(catalog), head_of(catalog)) == (before, base)
    is_full = False
    committed(catalog, base, files)
    assert scanned(catalog, "record_key") == [("a",), ("b",)]
    catalog.engine.dispose()


def test_another_change_of_the_metadata_is_no_conflict(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    alter = IcebergCatalog(catalog).alter
    late: Any = Stalling(catalog, lambda: alter(NAME, {"late": ("string", "$.late")}), at=NAME)
    committed(late, None, files_with(catalog, "a"))
    assert scanned(catalog, "record_key", "late") == [("a", None)]


def test_a_table_that_is_gone_or_was_made_anew_refuses(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    files = files_with(catalog, "a")

    def recreate() -> None:
        catalog.drop_table(NAME)
        created(catalog, STANDARDIZED)

    late: Any = Stalling(catalog, recreate, at=NAME)
    with pytest.raises(CommitRefusedError, match="another writer"):
        committed(late, None, files)
    catalog.drop_table(NAME)
    with pytest.raises(CommitRefusedError, match=r"db\.t no longer exists"):
        committed(catalog, None, files)


def test_a_newer_format_is_refused(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    table.metadata = table.metadata.model_copy(update={"format_version": 3})
    newer: Any = Loaded(catalog, table)
    with pytest.raises(PermanentError, match="Iceberg format 3"):
        committed(newer, None, [])


def answering(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, failure: Exception, *, taken: bool) -> None:
    """The catalog's next answer to a commit is this failure, whether it has taken the commit or not."""
    commit = catalog.commit_table

    def answer(*arguments: Any) -> None:
        monkeypatch.setattr(catalog, "commit_table", commit)
        if taken:
            commit(*arguments)
        raise failure

    monkeypatch.setattr(catalog, "commit_table", answer)


LOST = [CommitStateUnknownException("504"), ConnectionError("reset"), ValueError("half an answer")]


@pytest.mark.parametrize("taken", [False, True], ids=["not taken", "taken"])
@pytest.mark.parametrize("failure", LOST, ids=[type(failure).__name__ for failure in LOST])
def test_a_lost_answer_leaves_every_file_where_it_is(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, failure: Exception, taken: bool
) -> None:
    created(catalog, STANDARDIZED)
    upsert(catalog, [event("a", 1)])
    files, before = files_with(catalog, "b"), avros(catalog)
    answering(catalog, monkeypatch, failure, taken=taken)
    with pytest.raises(CommitUnknownError, match=r"db\.t: the catalog did not confirm"):
        committed(catalog, head_of(catalog), files)
    assert len(avros(catalog) - before) == 2
    assert scanned(catalog, "record_key") == [("a",), ("b",)][: 1 + taken]


def test_a_refusal_of_a_commit_that_is_there_is_none(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    created(catalog, STANDARDIZED)
    answering(catalog, monkeypatch, CommitFailedException("the first try was repeated, and found itself"), taken=True)
    assert committed(catalog, None, files_with(catalog, "a")) == head_of(catalog)
    assert scanned(catalog, "record_key") == [("a",)]


def test_a_refusal_that_cannot_be_checked_proves_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    created(catalog, STANDARDIZED)
    files, loads, load = files_with(catalog, "a"), iter((True, True)), catalog.load_table

    def load_once(name: Any) -> Table:
        if next(loads, False):
            return load(name)
        raise ConnectionError("reset")

    answering(catalog, monkeypatch, CommitFailedException("conflict"), taken=False)
    monkeypatch.setattr(catalog, "load_table", load_once)
    with pytest.raises(CommitUnknownError):
        committed(catalog, None, files)
    monkeypatch.setattr(catalog, "load_table", load)
    assert len(avros(catalog)) == 2


def test_a_commit_that_the_catalog_forbids_leaves_no_manifests(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(catalog, STANDARDIZED)
    answering(catalog, monkeypatch, ForbiddenError("403"), taken=False)
    with pytest.raises(ForbiddenError):
        committed(catalog, None, files_with(catalog, "a"))
    assert avros(catalog) == set()


def test_a_snapshot_that_cannot_be_written_leaves_no_manifests(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    whole, broken = files_with(catalog, "a"), files_with(catalog, "b")
    broken[0].spec_id = 77
    with pytest.raises(KeyError):
        commit_row_delta(
            catalog, NAME, uuid=uuid_of(catalog), base=None, data_files=whole, delete_files=broken, summary={}
        )
    assert avros(catalog) == set()


def test_an_append_goes_on_top_of_whatever_came_meanwhile(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    ours, theirs = files_with(catalog, "ours"), files_with(catalog, "theirs")
    late: Any = Stalling(catalog, lambda: committed(catalog, None, theirs), at=NAME)
    heads: list[int | None] = []
    snapshot_id = commit_on_any_head(
        late, NAME, ours, (), {"leanops.batch-ids": "b"}, lambda table: heads.append(table.metadata.current_snapshot_id)
    )
    table = catalog.load_table(NAME)
    assert len(heads) == 2
    assert heads[0] is None
    assert heads[1] == table.metadata.snapshots[0].snapshot_id
    summary = summary_of(table, snapshot_id)
    assert (summary["operation"], summary["added-records"], summary["total-records"]) == ("append", "1", "2")
    assert summary["leanops.batch-ids"] == "b"
    assert scanned(catalog, "record_key") == [("ours",), ("theirs",)]


def test_a_guard_refuses_an_append_once_and_for_all(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    calls: list[Table] = []

    def refuse(table: Table) -> None:
        calls.append(table)
        raise CommitRefusedError("this batch is there already")

    with pytest.raises(CommitRefusedError, match="there already"):
        commit_on_any_head(catalog, NAME, files_with(catalog, "a"), (), {}, refuse)
    assert len(calls) == 1
    assert head_of(catalog) is None
    assert avros(catalog) == set()


def test_an_append_gives_up_after_many_conflicts(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    created(catalog, STANDARDIZED)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _seconds: None)
    files, heads = files_with(catalog, "a"), []

    def conflict(*_: Any) -> None:
        raise CommitFailedException("conflict")

    monkeypatch.setattr(catalog, "commit_table", conflict)
    with pytest.raises(CommitRefusedError, match=r"db\.t was changed by other writers 30 times"):
        commit_on_any_head(catalog, NAME, files, (), {}, lambda table: heads.append(table))
    assert len(heads) == 30
    assert avros(catalog) == set()


def test_a_lost_answer_to_an_append_is_not_tried_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    created(catalog, STANDARDIZED)
    files = files_with(catalog, "a")
    answering(catalog, monkeypatch, CommitStateUnknownException("504"), taken=True)
    with pytest.raises(CommitUnknownError):
        commit_on_any_head(catalog, NAME, files, (), {})
    assert scanned(catalog, "record_key") == [("a",)]


def test_old_metadata_files_are_cleaned_up_by_a_commit(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED, write_metadata_previous__versions__max="2")
    for _ in range(5):
        committed(catalog, head_of(catalog), [])
    folder = Path(catalog.load_table(NAME).location().removeprefix("file://"), "metadata")
    assert len(list(folder.glob("*.metadata.json"))) == 3


def test_many_files_are_deleted_from_by_partition_and_read_back_right(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    keys = [f"{number:02}" for number in range(25)]
    files = [file for key in keys for file in files_with(catalog, key, key + "!")]
    committed(catalog, None, files)
    upsert(catalog, [event(key, 1) for key in keys])
    table = catalog.load_table(NAME)
    summary = summary_of(table, head_of(catalog) or 0)
    assert (summary["added-delete-files"], summary["added-position-deletes"]) == ("1", "25")
    expected = sorted([*((key, 1) for key in keys), *((key + "!", 0) for key in keys)])
    assert scanned(catalog, "record_key", "_batch_seq") == expected
    assert read_by_us(catalog, "record_key", "_batch_seq") == expected


def test_a_row_may_be_deleted_and_nothing_added(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    base = upsert(catalog, [event(key, 1) for key in "abc"])
    table = catalog.load_table(NAME)
    (file,) = stored_files(table, base, ())
    deletes = write_deletes(table.io, Layout.of(table), [(file, np.array([0, 2]))])
    snapshot_id = commit_row_delta(
        catalog, NAME, uuid=uuid_of(catalog), base=base, data_files=[], delete_files=deletes, summary={}
    )
    summary = summary_of(catalog.load_table(NAME), snapshot_id)
    assert (summary["operation"], summary["total-records"], summary["total-position-deletes"]) == (
        "overwrite",
        "3",
        "2",
    )
    assert scanned(catalog, "record_key") == [("b",)]
