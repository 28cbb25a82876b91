"""What commits leave behind: few manifests whose files keep their numbers, and the rows that a dict would hold."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.tasks.stored import Layout, stored_files
from leanops.adapters.iceberg.tasks.written import write_rows
from leanops.domain.table.definitions import STANDARDIZED
from tests.unit.adapters.batches.tables import (
    NAME,
    arrow,
    catalog_in,
    committed,
    created,
    event,
    files_with,
    head_of,
    manifests,
    read_by_us,
    scanned,
    summary_of,
    upsert,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as catalog:
        yield catalog


def numbers(catalog: Catalog, kind: ManifestContent) -> dict[str, int | None]:
    table = catalog.load_table(NAME)
    entries = [entry for manifest in manifests(catalog, kind) for entry in manifest.fetch_manifest_entry(table.io)]
    assert all(entry.sequence_number == entry.file_sequence_number for entry in entries)
    return {entry.data_file.file_path: entry.sequence_number for entry in entries}


def test_manifests_are_merged_when_they_are_many_and_files_keep_their_numbers(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED, commit_manifest_min__count__to__merge="4")
    seen: dict[ManifestContent, dict[str, int | None]] = {kind: {} for kind in ManifestContent}
    counts: dict[ManifestContent, list[int]] = {kind: [] for kind in ManifestContent}
    for turn in range(1, 14):
        upsert(catalog, [event("always", turn), event(f"once {turn:02}", turn)])
        for kind in ManifestContent:
            now = numbers(catalog, kind)
            assert seen[kind].items() <= now.items()
            assert set(now.values()) - set(seen[kind].values()) <= {turn}
            seen[kind] = now
            counts[kind].append(len(manifests(catalog, kind)))
    assert counts[ManifestContent.DATA][:7] == [1, 2, 3, 4, 2, 3, 4]
    assert max(counts[ManifestContent.DATA]) == max(counts[ManifestContent.DELETES]) == 4
    expected = [("always", 13), *((f"once {turn:02}", turn) for turn in range(1, 14))]
    assert scanned(catalog, "record_key", "_batch_seq") == expected
    assert read_by_us(catalog, "record_key", "_batch_seq") == expected
    merged = [manifest for manifest in manifests(catalog, ManifestContent.DELETES) if manifest.existing_files_count]
    assert len(merged) >= 1
    assert all(manifest.added_files_count == 0 for manifest in merged)
    assert summary_of(catalog.load_table(NAME), head_of(catalog) or 0)["total-delete-files"] == "12"


def test_twenty_manifests_of_a_kind_are_left_where_the_table_says_nothing(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    counts = []
    for turn in range(22):
        committed(catalog, head_of(catalog), files_with(catalog, str(turn)))
        counts.append(len(manifests(catalog, ManifestContent.DATA)))
    assert counts == [*range(1, 21), 2, 3]
    assert len(scanned(catalog, "record_key")) == 22


def test_a_manifest_that_outweighs_the_others_is_left_alone(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED, commit_manifest_min__count__to__merge="3")
    layout = Layout.of(catalog.load_table(NAME))
    rows = arrow(layout, [event(str(day), day=day) for day in range(40)])
    committed(catalog, None, write_rows(layout.io(), layout, [rows]))
    (large,) = manifests(catalog, ManifestContent.DATA)
    for turn in range(9):
        committed(catalog, head_of(catalog), files_with(catalog, f"n{turn}"))
    paths = {manifest.manifest_path for manifest in manifests(catalog, ManifestContent.DATA)}
    assert large.manifest_path in paths
    assert len(paths) <= 3
    assert len(scanned(catalog, "record_key")) == 49


def test_manifests_stay_apart_where_the_table_says_so(catalog: Catalog) -> None:
    created(
        catalog, STANDARDIZED, commit_manifest_min__count__to__merge="2", **{"commit_manifest__merge_enabled": "false"}
    )
    for turn in range(5):
        committed(catalog, head_of(catalog), files_with(catalog, str(turn)))
    assert len(manifests(catalog, ManifestContent.DATA)) == 5


def test_files_of_an_earlier_partitioning_are_deleted_from_and_their_manifests_stay_apart(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED, commit_manifest_min__count__to__merge="2")
    for key in "abc":
        upsert(catalog, [event(key, 1)])
    with catalog.load_table(NAME).update_spec() as change:
        change.remove_field("publish_time_day")
    for turn in range(2, 6):
        upsert(catalog, [event("a", turn), event("b", turn), event(f"n{turn}", turn)])
    for kind in ManifestContent:
        assert {manifest.partition_spec_id for manifest in manifests(catalog, kind)} == {0, 1}
    expected = [("a", 5), ("b", 5), ("c", 1), *((f"n{turn}", turn) for turn in range(2, 6))]
    assert scanned(catalog, "record_key", "_batch_seq") == expected
    assert read_by_us(catalog, "record_key", "_batch_seq") == expected
    table = catalog.load_table(NAME)
    partitions = {(file.spec_id, len(file.partition)) for file in stored_files(table, head_of(catalog), ())}
    assert partitions == {(0, 2), (1, 1)}


def test_entries_of_files_that_were_removed_before_are_dropped_by_a_merge(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED, commit_manifest_min__count__to__merge="2")
    for key in "abc":
        upsert(catalog, [event(key, 1)])
    IcebergCatalog(catalog).delete(NAME, {"record_key": "b"})
    for key in "defg":
        upsert(catalog, [event(key, 1)])
    table = catalog.load_table(NAME)
    entries = [
        entry
        for manifest in manifests(catalog, ManifestContent.DATA)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    ]
    assert ManifestEntryStatus.DELETED not in {entry.status for entry in entries}
    assert [key for (key,) in scanned(catalog, "record_key")] == list("acdefg")


KEYS, PLACES = st.sampled_from("abcdefgh"), st.tuples(st.sampled_from(["p1", "p2"]), st.integers(0, 1))
BATCHES = st.lists(st.dictionaries(KEYS, PLACES, max_size=5), min_size=1, max_size=8)


@settings(deadline=None, max_examples=15)
@given(batches=BATCHES, most=st.integers(1, 4))
def test_any_batches_leave_what_a_dict_would_hold(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[str, tuple[str, int]]], most: int
) -> None:
    expected: dict[str, tuple[int, str]] = {}
    with catalog_in(tmp_path_factory.mktemp("home")) as catalog:
        created(catalog, STANDARDIZED, commit_manifest_min__count__to__merge=str(most))
        for turn, batch in enumerate(batches):
            upsert(catalog, [event(key, turn, period, day) for key, (period, day) in batch.items()])
            expected |= {key: (turn, period) for key, (period, _) in batch.items()}
        rows = sorted((key, turn, period) for key, (turn, period) in expected.items())
        assert read_by_us(catalog, "record_key", "_batch_seq", "period_reference") == rows
        assert scanned(catalog, "record_key", "_batch_seq", "period_reference") == rows
        table = catalog.load_table(NAME)
        totals = summary_of(table, head_of(catalog) or 0)
        live = int(totals["total-records"]) - int(totals["total-position-deletes"])
        assert live == len(expected)
        files = stored_files(table, head_of(catalog), ())
        assert int(totals["total-data-files"]) == len(files)
        assert int(totals["total-records"]) == sum(file.rows for file in files)
