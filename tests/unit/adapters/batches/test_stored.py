"""What tasks read: live files with their bounds and deletes, and rows in the types of the current schema."""

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from leanops.adapters.iceberg.batches.row_delta import commit_on_any_head, commit_row_delta
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.tasks.rows import DeadRows, live_rows
from leanops.adapters.iceberg.tasks.stored import (
    FILE_PATH_ID,
    DeleteFile,
    Layout,
    Remembered,
    StoredFile,
    appended_files,
    stored_files,
)
from leanops.adapters.iceberg.tasks.written import write_deletes, write_rows
from leanops.domain.errors import PermanentError, RetryableError
from leanops.domain.table.definitions import ERRORS, STANDARDIZED, TableDefinition
from tests.unit.adapters.batches.tables import (
    DAY,
    NAME,
    arrow,
    catalog_in,
    created,
    event,
    read_by_us,
    scanned,
    upsert,
    uuid_of,
)

DAYS = (DAY.date() - date(1970, 1, 1)).days


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as catalog:
        yield catalog


def head(catalog: Catalog, *measured: str) -> list[StoredFile]:
    table = catalog.load_table(NAME)
    return stored_files(table, table.metadata.current_snapshot_id, measured)


def added_to(catalog: Catalog, rows: list[dict[str, Any]]) -> list[DataFile]:
    """Files of these rows, appended."""
    layout = Layout.of(catalog.load_table(NAME))
    files = write_rows(layout.io(), layout, [arrow(layout, rows)])
    commit_on_any_head(catalog, NAME, files, (), {})
    return files


def foreign(catalog: Catalog, rows: pa.Table, partition: Record | None = None) -> None:
    """Appends a Parquet file as another tool wrote it."""
    table = catalog.load_table(NAME)
    path = f"{table.location()}/data/{len(head(catalog))}-foreign.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
    )
    file.spec_id = 0
    commit_on_any_head(catalog, NAME, [file], (), {})


def numbered(columns: dict[str, tuple[int, pa.Array]]) -> pa.Table:
    """A table whose columns carry field ids."""
    fields = [
        pa.field(name, values.type, metadata={b"PARQUET:field_id": str(number).encode()})
        for name, (number, values) in columns.items()
    ]
    return pa.table([values for _, values in columns.values()], schema=pa.schema(fields))


def test_a_layout_survives_pickling_shows_no_credentials_and_opens_files(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    layout = Layout.of(table)
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout
    assert again.spec == table.spec()
    assert "warehouse" in table.io.properties
    assert layout.io_properties == {}
    assert "sqlite" not in repr(layout)
    upsert(catalog, [event("a")])
    (file,) = head(catalog)
    assert live_rows(again.io(), again, file, ["record_key"]).to_pylist() == [{"record_key": "a"}]


def test_a_table_without_a_snapshot_has_no_files(catalog: Catalog) -> None:
    assert stored_files(created(catalog, STANDARDIZED), None, ()) == []


def test_a_file_is_described_as_its_manifest_has_it(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    upsert(catalog, [event("b", 7), event("a" * 90, 3)])
    (file,) = head(catalog, "record_key", "_batch_seq", "publish_time", "message_id", "no such column", "topic_name")
    (known,) = catalog.load_table(NAME).inspect.files().to_pylist()
    assert (file.path, file.rows, file.size) == (known["file_path"], 2, known["file_size_in_bytes"])
    assert (file.spec_id, file.partition, file.deletes) == (0, ("2026-03", DAYS), ())
    micros = int(DAY.timestamp()) * 1_000_000
    assert file.bounds == {"record_key": ("a" * 64, "b"), "_batch_seq": (3, 7), "publish_time": (micros, micros)}


def test_a_snapshot_shows_the_files_and_deletes_it_had(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    first = upsert(catalog, [event("a", 1), event("b", 1)])
    upsert(catalog, [event("a", 2)])
    table = catalog.load_table(NAME)
    (then,) = stored_files(table, first, ())
    assert (then.rows, then.deletes) == (2, ())
    now = {file.path: file for file in head(catalog)}
    assert len(now) == 2
    assert [len(file.deletes) for file in now.values()] == [0, 1]
    assert len(now[then.path].deletes) == 1


def test_deletes_apply_to_files_of_their_partition_that_are_not_newer(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    upsert(catalog, [event("a", 1), event("b", 1), event("c", 1, period="2026-04"), event("d", 1, day=1)])
    upsert(catalog, [event("a", 2)])
    deleted = {file.partition: file.deletes for file in head(catalog) if file.deletes}
    assert list(deleted) == [("2026-03", DAYS)]
    upsert(catalog, [event("b", 3)])
    by_rows = sorted((file.rows, len(file.deletes)) for file in head(catalog))
    assert by_rows == [(1, 0), (1, 0), (1, 0), (1, 0), (2, 2)]


@pytest.mark.parametrize("bounds", ["cut alike", "cut and raised", "none"])
def test_delete_files_of_other_tools_apply_by_partition_where_their_bounds_are_cut(
    catalog: Catalog, bounds: str
) -> None:
    created(catalog, STANDARDIZED)
    first, second = (added_to(catalog, [event(key), event(key + "2")])[0] for key in "ab")
    (elsewhere,) = added_to(catalog, [event("c", period="2026-04")])
    table = catalog.load_table(NAME)
    layout = Layout.of(table)
    files = {file.path: file for file in head(catalog)}
    (delete,) = write_deletes(table.io, layout, [(files[second.file_path], np.array([1]))])
    cut = second.file_path[:16]
    ends = {"cut alike": (cut, cut), "cut and raised": (cut, cut[:-1] + chr(ord(cut[-1]) + 1)), "none": None}[bounds]
    for at, side in enumerate((10, 11)):
        delete[side] = {FILE_PATH_ID: to_bytes(StringType(), ends[at])} if ends else None
    commit_row_delta(
        catalog,
        NAME,
        uuid=uuid_of(catalog),
        base=table.metadata.current_snapshot_id,
        data_files=[],
        delete_files=[delete],
        summary={},
    )
    deletes = {file.path: file.deletes for file in head(catalog)}
    named = (DeleteFile(delete.file_path, 1),)
    assert deletes == {first.file_path: named, second.file_path: named, elsewhere.file_path: ()}
    assert read_by_us(catalog, "record_key") == [("a",), ("a2",), ("b",), ("c",)]


def test_a_delete_file_that_names_one_path_is_attached_to_that_file_alone(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    for key in "abc":
        upsert(catalog, [event(key, 1)])
    upsert(catalog, [event("b", 2)])
    deleted = [file for file in head(catalog, "record_key") if file.deletes]
    assert [file.bounds["record_key"] for file in deleted] == [("b", "b")]


def test_a_delete_file_that_files_share_is_read_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    created(catalog, STANDARDIZED)
    keys = [f"k{number:02}" for number in range(22)]
    for key in keys:
        added_to(catalog, [event(key, 1), event(key + "!", 1)])
    upsert(catalog, [event(key, 2) for key in keys])
    # The new file may be attached to the delete file of its own commit, which does not name it.
    files = [file for file in head(catalog) if file.rows == 2]
    assert len(files) == 22
    assert len({file.deletes for file in files}) == 1
    io, layout = catalog.load_table(NAME).io, Layout.of(catalog.load_table(NAME))
    opened: list[str] = []
    new_input = io.new_input
    monkeypatch.setattr(io, "new_input", lambda path: opened.append(path) or new_input(path))
    dead = DeadRows(io)
    assert [dead.of(file).tolist() for file in files] == [[0]] * 22
    assert opened == [delete.path for delete in files[0].deletes]
    rows = [live_rows(io, layout, file, ["record_key"], dead=dead) for file in files]
    assert sorted(row["record_key"].to_pylist() for row in rows) == [[key + "!"] for key in keys]


def test_a_manifest_is_read_once_and_forgotten_when_others_need_the_room(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    for key in "abc":
        added_to(catalog, [event(key)])
    table = catalog.load_table(NAME)
    manifests = table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    read: list[str] = []
    remembered: Remembered[ManifestEntry] = Remembered(5)

    def entries(manifest: ManifestFile) -> list[ManifestEntry]:
        path = manifest.manifest_path
        return remembered.listed(path, lambda: read.append(path) or manifest.fetch_manifest_entry(table.io))  # type: ignore[func-returns-value]

    first, second, third = (manifest.manifest_path for manifest in manifests)
    order = [0, 1, 0, 2, 0, 1]
    found = [entries(manifests[at]) for at in order]
    assert read == [first, second, third, second]
    assert found[0] is found[2] is found[4]
    assert found[1] is not found[5]
    assert [entry.data_file.file_path for entry in found[1]] == [entry.data_file.file_path for entry in found[5]]


def test_rows_come_with_their_positions_in_the_file(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    upsert(catalog, [event(key, 1) for key in "abcd"])
    upsert(catalog, [event("b", 2)])
    table = catalog.load_table(NAME)
    (file,) = [file for file in head(catalog) if file.deletes]
    rows = live_rows(table.io, Layout.of(table), file, ["_batch_seq", "record_key"], positions=True)
    assert rows.schema == pa.schema([("_batch_seq", pa.int64()), ("record_key", pa.string()), ("_pos", pa.int64())])
    assert rows.to_pydict() == {"_batch_seq": [1] * 3, "record_key": ["a", "c", "d"], "_pos": [0, 2, 3]}


def test_a_column_added_later_is_null_in_older_files(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    upsert(catalog, [event("a", 1)])
    IcebergCatalog(catalog).alter(NAME, {"late": ("decimal(18,2)", "$.late")})
    upsert(catalog, [event("b", 1) | {"late": Decimal("1.50")}])
    assert read_by_us(catalog, "record_key", "late") == [("a", None), ("b", Decimal("1.50"))]
    table = catalog.load_table(NAME)
    for file in head(catalog):
        rows = live_rows(table.io, Layout.of(table), file, ["late"], positions=True)
        assert rows.schema == pa.schema([("late", pa.decimal128(18, 2)), ("_pos", pa.int64())])
        assert rows.num_rows == 1


TYPES = TableDefinition(
    {"s": "string", "t": "timestamptz", "l": "long", "d": "double", "m": "decimal(20,2)", "n": "timestamptz"}
)


def test_columns_are_found_by_id_and_come_in_the_types_of_the_table(catalog: Catalog) -> None:
    created(catalog, TYPES)
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    rows = {
        "another name": (1, pa.array(["x", None], pa.large_string())),
        "t": (2, pa.array([moment, None], pa.timestamp("ms", "Europe/Berlin"))),
        "l": (3, pa.array([7, None], pa.int32())),
        "d": (4, pa.array([0.5, None], pa.float32())),
        "m": (5, pa.array([Decimal("1.25"), None], pa.decimal128(9, 2))),
        "n": (6, pa.array([moment, None], pa.timestamp("us"))),
        "s": (99, pa.array(["a column that was dropped"] * 2)),
    }
    foreign(catalog, numbered(rows))
    foreign(catalog, numbered({"s": (1, pa.array(["x", None]).dictionary_encode())}))
    table = catalog.load_table(NAME)
    layout = Layout.of(table)
    files = sorted(head(catalog), key=lambda file: file.path)
    found = live_rows(table.io, layout, files[0], list(TYPES.columns))
    assert found.schema.types == [
        *(pa.string(), pa.timestamp("us", "UTC"), pa.int64(), pa.float64(), pa.decimal128(20, 2)),
        pa.timestamp("us", "UTC"),
    ]
    expected = {"s": "x", "t": moment, "l": 7, "d": 0.5, "m": Decimal("1.25"), "n": moment}
    assert found.to_pylist() == [expected, dict.fromkeys(expected)]
    coded = live_rows(table.io, layout, files[1], ["s", "l"])
    assert coded.to_pydict() == {"s": ["x", None], "l": [None, None]}
    assert coded.schema.types == [pa.string(), pa.int64()]


def test_bounds_of_a_column_that_was_widened_are_read(catalog: Catalog) -> None:
    created(catalog, TableDefinition({"i": "int", "f": "float"}, measured=("i", "f")))
    added_to(catalog, [{"i": 1, "f": 0.5}, {"i": 3, "f": 1.5}])
    IcebergCatalog(catalog).alter(NAME, {}, {"i": "long", "f": "double"})
    (file,) = head(catalog, "i", "f")
    assert file.bounds == {"i": (1, 3), "f": (0.5, 1.5)}
    assert read_by_us(catalog, "i", "f") == [(1, 0.5), (3, 1.5)]


def test_the_failures_of_error_rows_come_back_as_they_were(catalog: Catalog) -> None:
    created(catalog, ERRORS)
    failure = {"rule": "cast_failed", "column": "c", "path": "$.a", "message": "is not a valid INT", "value": None}
    row = {"error_id": "e1", "topic_name": "orders", "detected_ts": DAY, "failures": [failure, failure]}
    added_to(catalog, [row, row | {"error_id": "e2", "failures": None}, row | {"error_id": "e3", "failures": []}])
    assert [found[1] for found in read_by_us(catalog, "error_id", "failures")] == [[failure, failure], None, []]
    # PyIceberg's scan reads a list that is NULL as one without elements.
    assert [found[1] for found in scanned(catalog, "error_id", "failures")] == [[failure, failure], [], []]


def test_files_without_field_ids_are_refused_instead_of_read_as_nothing(catalog: Catalog) -> None:
    created(catalog, TYPES)
    foreign(catalog, pa.table({"s": ["x"]}))
    with pytest.raises(PermanentError, match="written without Iceberg's field ids"):
        read_by_us(catalog, "s")


def snapshots(table: Table) -> list[int]:
    return [entry.snapshot_id for entry in table.metadata.snapshot_log]


def keys_of(catalog: Catalog, files: list[StoredFile]) -> list[str]:
    table = catalog.load_table(NAME)
    rows = [live_rows(table.io, Layout.of(table), file, ["record_key"]) for file in files]
    return sorted(key for row in rows for key in row["record_key"].to_pylist())


def test_what_was_appended_between_two_snapshots_is_found_whatever_else_happened(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED, commit_manifest_min__count__to__merge="2")
    for key in "abcd":
        added_to(catalog, [event(key)])
    upsert(catalog, [event("c", 5), event("e", 5)])
    added_to(catalog, [event("f")])
    table = catalog.load_table(NAME)
    a, b, _, d, upserted, end = snapshots(table)
    assert keys_of(catalog, appended_files(table, a, d)) == ["b", "c", "d"]
    assert keys_of(catalog, appended_files(table, b, end)) == ["c", "d", "f"]
    assert keys_of(catalog, appended_files(table, d, upserted)) == []
    assert keys_of(catalog, appended_files(table, end, end)) == []
    assert keys_of(catalog, appended_files(table, None, end)) == ["a", "b", "c", "d", "e", "f"]
    (last,) = appended_files(table, upserted, end, ("record_key",))
    assert last.bounds == {"record_key": ("f", "f")}
    theirs = table.incremental_append_scan(from_snapshot_id_exclusive=b, to_snapshot_id_inclusive=end).plan_files()
    assert {task.file.file_path for task in theirs} == {file.path for file in appended_files(table, b, end)}


def test_an_append_is_read_from_a_start_that_has_expired_and_not_from_one_that_never_was(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    for key in "abc":
        added_to(catalog, [event(key)])
    table = catalog.load_table(NAME)
    first, second, end = snapshots(table)
    kept = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id != first]
    table.metadata = table.metadata.model_copy(update={"snapshots": kept})
    assert keys_of(catalog, appended_files(table, first, end)) == ["b", "c"]
    with pytest.raises(RetryableError, match=rf"snapshot {first} is no longer kept"):
        appended_files(table, 1, end)
    with pytest.raises(RetryableError, match="snapshot 1 is no longer kept"):
        stored_files(table, 1, ())
    catalog.load_table(NAME).maintenance.expire_snapshots().by_id(first).commit()
    # PyIceberg takes the name of the parent away with the parent.
    with pytest.raises(RetryableError, match=rf"snapshot {first} is not before {second}"):
        appended_files(catalog.load_table(NAME), first, second)


def test_equality_deletes_newer_formats_and_other_file_formats_are_refused(catalog: Catalog) -> None:
    created(catalog, STANDARDIZED)
    (file,) = added_to(catalog, [event("a")])
    table = catalog.load_table(NAME)
    for content, kind, told in (
        (DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, "has equality deletes of another tool; compact"),
        (DataFileContent.POSITION_DELETES, FileFormat.AVRO, "has delete files that are not Parquet; compact"),
    ):
        delete = DataFile.from_args(
            content=content,
            file_path=f"{file.file_path}.{kind.value}",
            file_format=kind,
            partition=file.partition,
            record_count=1,
            file_size_in_bytes=1,
        )
        delete.spec_id = 0
        base = table.metadata.current_snapshot_id
        snapshot_id = commit_row_delta(
            catalog, NAME, uuid=uuid_of(catalog), base=base, data_files=[], delete_files=[delete], summary={}
        )
        with pytest.raises(PermanentError, match=told):
            stored_files(catalog.load_table(NAME), snapshot_id, ())
        catalog.load_table(NAME).manage_snapshots().rollback_to_snapshot(base).commit()
    table.metadata = table.metadata.model_copy(update={"format_version": 3})
    with pytest.raises(PermanentError, match=r"db\.t has Iceberg format 3; only format 2"):
        stored_files(table, table.metadata.current_snapshot_id, ())
