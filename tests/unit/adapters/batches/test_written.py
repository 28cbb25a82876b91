"""What tasks write: data files with ids, bounds and the right partition, and deletes that name each position once."""

import pickle
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from leanops.adapters.iceberg.batches.row_delta import commit_on_any_head
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.tasks.stored import (
    FILE_PATH_ID,
    GROUP_BYTES,
    POSITION_ID,
    Layout,
    StoredFile,
    stored_files,
)
from leanops.adapters.iceberg.tasks.written import remove_files, write_deletes, write_rows
from leanops.domain.table.definitions import ERRORS, STANDARDIZED, TableDefinition
from tests.unit.adapters.batches.tables import DAY, NAME, arrow, catalog_in, created, event, read_by_us, scanned

EPOCH = date(1970, 1, 1)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as catalog:
        yield catalog


def written(table: Table, rows: list[dict[str, Any]], *sort_by: str) -> list[DataFile]:
    layout = Layout.of(table)
    return write_rows(table.io, layout, [arrow(layout, rows)], sort_by)


def footer(table: Table, file: DataFile) -> pq.FileMetaData:
    with table.io.new_input(file.file_path).open() as stream:
        return pq.read_metadata(stream)


def content(table: Table, file: DataFile) -> pa.Table:
    with table.io.new_input(file.file_path).open() as stream:
        return pq.read_table(stream)


def files_of(table: Table) -> list[Path]:
    return sorted(Path(table.location().removeprefix("file://"), "data").rglob("*.parquet"))


def test_no_rows_make_no_files(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    assert written(table, []) == []
    assert write_deletes(table.io, Layout.of(table), []) == []
    assert files_of(table) == []


def test_each_partition_has_a_file_of_its_own_sorted_and_described(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    rows = [event("c"), event("b", period="2026-04"), event("a"), event("d", day=1), event("b")]
    files = written(table, rows, "record_key")
    day = (DAY.date() - EPOCH).days
    keys = {tuple(file.partition[at] for at in range(2)): content(table, file)["record_key"] for file in files}
    assert {partition: found.to_pylist() for partition, found in keys.items()} == {
        ("2026-03", day): ["a", "b", "c"],
        ("2026-03", day + 1): ["d"],
        ("2026-04", day): ["b"],
    }
    for file in files:
        assert (file.content, file.file_format, file.spec_id) == (DataFileContent.DATA, FileFormat.PARQUET, 0)
        assert (file.sort_order_id, file.equality_ids, file.key_metadata) == (None, None, None)
        assert file.file_size_in_bytes == len(table.io.new_input(file.file_path))
        assert file.record_count == footer(table, file).num_rows


def test_rows_without_a_sort_order_stay_as_they_came(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    (file,) = written(table, [event("c"), event("a"), event("b")])
    assert content(table, file)["record_key"].to_pylist() == ["c", "a", "b"]


def test_a_file_has_every_column_with_its_id_and_a_page_index_and_nothing_of_arrow(catalog: Catalog) -> None:
    IcebergCatalog(catalog).create(NAME, ERRORS)
    IcebergCatalog(catalog).alter(NAME, {"late": ("int", "$.late")})
    table = catalog.load_table(NAME)
    (file,) = written(table, [{"error_id": "e", "detected_ts": DAY, "failures": [{"rule": "r"}]}])
    described = footer(table, file)
    found = described.schema.to_arrow_schema()
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in found}
    assert ids == {field.name: field.field_id for field in table.schema().fields}
    element = found.field("failures").type.value_field
    nested = table.schema().find_field("failures").field_type
    assert int(element.metadata[b"PARQUET:field_id"]) == nested.element_id
    members = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in element.type}
    assert members == {field.name: field.field_id for field in nested.element_type.fields}
    column = described.row_group(0).column(0)
    assert (column.compression, column.has_offset_index, column.has_column_index) == ("ZSTD", True, True)
    assert list(described.metadata) == [GROUP_BYTES]
    assert content(table, file).to_pylist()[0]["late"] is None


def test_only_measured_columns_have_bounds_and_they_are_cut(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    (file,) = written(table, [event("k" * 90, 2) | {"topic_name": "orders"}, event("é" * 90, 9)])
    number = {field.name: field.field_id for field in table.schema().fields}
    low, high = file.lower_bounds, file.upper_bounds
    key = number["record_key"]
    assert from_bytes(StringType(), low[key]) == "k" * 64
    assert from_bytes(StringType(), high[key]) == "é" * 63 + "ê"
    seq = number["_batch_seq"]
    assert [from_bytes(LongType(), side[seq]) for side in (low, high)] == [2, 9]
    assert number["topic_name"] not in {*low, *high, *file.value_counts}
    assert (file.value_counts[key], file.null_value_counts[key]) == (2, 0)
    assert file.null_value_counts[number["message_id"]] == 2
    assert number["message_id"] not in low


def test_a_text_too_long_for_parquets_statistics_leaves_its_column_without_bounds(catalog: Catalog) -> None:
    definition = TableDefinition({"k": "string", "n": "long"}, measured=("k", "n"))
    table = created(catalog, definition, write_parquet_row__group__limit="1")
    (file,) = written(table, [{"k": "a", "n": 1}, {"k": "z" * 5000, "n": 2}, {"k": None, "n": None}])
    assert footer(table, file).num_row_groups == 3
    assert [set(side) for side in (file.lower_bounds, file.upper_bounds)] == [{2}, {2}]


def test_large_partitions_are_cut_into_files_of_the_size_the_table_asks_for(catalog: Catalog) -> None:
    target = 20_000
    table = created(catalog, STANDARDIZED, write_target__file__size__bytes=str(target))
    random = np.random.default_rng(1)
    keys = [random.bytes(40).hex() for _ in range(3000)]
    files = written(table, [event(key) for key in keys], "record_key")
    assert len(files) > 3
    assert all(file.file_size_in_bytes < 2 * target for file in files)
    assert all(file.file_size_in_bytes > target / 2 for file in files[:-1])
    parts = [content(table, file)["record_key"].to_pylist() for file in files]
    assert [key for part in parts for key in part] == sorted(keys)
    assert len({file.file_path for file in files}) == len(files)
    commit_on_any_head(catalog, NAME, files, (), {})
    assert read_by_us(catalog, "record_key") == [(key,) for key in sorted(keys)]


def test_row_groups_are_as_large_as_the_table_says(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED, write_parquet_row__group__limit="10")
    (file,) = written(table, [event(f"{number:03}") for number in range(25)], "record_key")
    found = footer(table, file)
    assert [found.row_group(at).num_rows for at in range(found.num_row_groups)] == [10, 10, 5]


def test_file_names_hold_a_fresh_uuid_in_the_folder_of_the_partition(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    (first,), (second,) = written(table, [event("a", period="a/b c")]), written(table, [event("a", period="a/b c")])
    folder = f"{table.location()}/data/period_reference={quote_plus('a/b c')}/publish_time_day=2026-03-01"
    names = [file.file_path.removeprefix(folder + "/") for file in (first, second)]
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet", name) for name in names)
    assert names[0] != names[1]


@pytest.mark.parametrize("protocol", [4, pickle.HIGHEST_PROTOCOL])
def test_descriptions_survive_pickling(catalog: Catalog, protocol: int) -> None:
    table = created(catalog, STANDARDIZED)
    files = written(table, [event("a"), event("b", period=None)])
    again = pickle.loads(pickle.dumps(files, protocol))
    assert [(file._data, file.spec_id) for file in again] == [(file._data, file.spec_id) for file in files]
    commit_on_any_head(catalog, NAME, again, (), {})
    assert scanned(catalog, "record_key") == [("a",), ("b",)]


def test_rows_in_other_types_are_cast_and_unknown_columns_refused(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    layout = Layout.of(table)
    rows = pa.table(
        {
            "record_key": pa.array(["a"]).dictionary_encode(),
            "topic_name": pa.array(["t"], pa.large_string()),
            "publish_time": pa.array([DAY], pa.timestamp("ms", "UTC")),
            "_batch_seq": pa.array([1], pa.int32()),
        }
    )
    commit_on_any_head(catalog, NAME, write_rows(table.io, layout, [rows]), (), {})
    assert scanned(catalog, "record_key", "topic_name", "publish_time", "_batch_seq") == [("a", "t", DAY, 1)]
    with pytest.raises(ValueError, match="has no column other, strange"):
        write_rows(table.io, layout, [pa.table({"record_key": ["a"], "strange": [1], "other": [2]})])
    assert len(files_of(table)) == 1


MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
PERIODS = st.one_of(st.none(), st.sampled_from(["2026-03", "", "a/b", "é=%2F", "null", ".."]))


@settings(deadline=None, max_examples=25)
@given(rows=st.lists(st.tuples(PERIODS, st.one_of(st.none(), MOMENTS)), min_size=1, max_size=12))
def test_every_row_is_in_a_file_of_its_partition(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str | None, datetime | None]]
) -> None:
    with catalog_in(tmp_path_factory.mktemp("home")) as catalog:
        table = created(catalog, STANDARDIZED)
        events = [
            {"record_key": str(at), "period_reference": period, "publish_time": moment, "topic_name": "t"}
            for at, (period, moment) in enumerate(rows)
        ]
        files = written(table, events, "record_key")
        found = {}
        for file in files:
            day = file.partition[1]
            place = file.partition[0], None if day is None else EPOCH + timedelta(days=day)
            assert place not in found
            found[place] = content(table, file)["record_key"].to_pylist()
    expected: dict[Any, list[str]] = {}
    for at, (period, moment) in enumerate(rows):
        expected.setdefault((period, moment and moment.date()), []).append(str(at))
    assert found == {place: sorted(keys) for place, keys in expected.items()}


def stored(catalog: Catalog, files: int, rows: int = 3) -> list[StoredFile]:
    """The files of a table that got them one by one."""
    table = created(catalog, STANDARDIZED)
    added = [file for at in range(files) for file in written(table, [event(f"{at:03}-{row}") for row in range(rows)])]
    commit_on_any_head(catalog, NAME, added, (), {})
    table = catalog.load_table(NAME)
    return stored_files(table, table.metadata.current_snapshot_id, ())


def deletes(catalog: Catalog, dead: list[tuple[StoredFile, list[int]]]) -> list[DataFile]:
    table = catalog.load_table(NAME)
    return write_deletes(table.io, Layout.of(table), [(file, np.array(at, dtype=np.int64)) for file, at in dead])


def test_few_files_get_a_delete_file_each_with_bounds_in_full(catalog: Catalog) -> None:
    first, second = stored(catalog, 2)
    found = deletes(catalog, [(second, [2, 0, 2]), (first, [1]), (second, [0]), (first, [])])
    table = catalog.load_table(NAME)
    named = {file.path: at for file, at in ((first, [1]), (second, [0, 2]))}
    assert len(found) == 2
    for file in found:
        rows = content(table, file)
        (path,) = set(rows["file_path"].to_pylist())
        assert rows["pos"].to_pylist() == named.pop(path)
        assert (file.content, file.record_count, file.spec_id) == (DataFileContent.POSITION_DELETES, len(rows), 0)
        assert tuple(file.partition[at] for at in range(2)) == first.partition
        assert [from_bytes(StringType(), side[FILE_PATH_ID]) for side in (file.lower_bounds, file.upper_bounds)] == [
            path,
            path,
        ]
        ends = [from_bytes(LongType(), side[POSITION_ID]) for side in (file.lower_bounds, file.upper_bounds)]
        assert ends == [rows["pos"][0].as_py(), rows["pos"][-1].as_py()]
        schema = footer(table, file).schema.to_arrow_schema()
        assert [(field.name, field.type, field.nullable) for field in schema] == [
            ("file_path", pa.string(), False),
            ("pos", pa.int64(), False),
        ]
        assert [int(field.metadata[b"PARQUET:field_id"]) for field in schema] == [2147483546, 2147483545]
        assert file.file_path.endswith("-deletes.parquet")
        assert pickle.loads(pickle.dumps(file)).spec_id == 0


def test_many_files_of_a_partition_share_one_delete_file_sorted_by_file_and_position(catalog: Catalog) -> None:
    files = stored(catalog, 21)
    (found,) = deletes(catalog, [(file, [2, 0]) for file in reversed(files)])
    rows = content(catalog.load_table(NAME), found)
    pairs = list(zip(rows["file_path"].to_pylist(), rows["pos"].to_pylist(), strict=True))
    assert pairs == [(path, at) for path in sorted(file.path for file in files) for at in (0, 2)]
    paths = sorted(file.path for file in files)
    assert from_bytes(StringType(), found.lower_bounds[FILE_PATH_ID]) == paths[0]
    assert from_bytes(StringType(), found.upper_bounds[FILE_PATH_ID]) == paths[-1]
    assert found.record_count == 42


def test_a_position_that_the_file_does_not_have_is_refused(catalog: Catalog) -> None:
    (file,) = stored(catalog, 1)
    for position in (-1, 3):
        with pytest.raises(ValueError, match="has 3 rows, not one at"):
            deletes(catalog, [(file, [position])])
    assert len(files_of(catalog.load_table(NAME))) == 1


class FullDisk:
    """A FileIO that takes so many files and then no more."""

    def __init__(self, io: FileIO, files: int) -> None:
        self._io, self._left = io, files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def new_output(self, path: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise OSError("no space left")
        return self._io.new_output(path)


def test_a_write_that_fails_leaves_no_file_behind(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    layout = Layout.of(table)
    rows = arrow(layout, [event("a"), event("b", day=1), event("c", day=2)])
    full: Any = FullDisk(table.io, 2)
    with pytest.raises(OSError, match="no space left"):
        write_rows(full, layout, [rows])
    assert files_of(table) == []


def test_files_are_removed_as_far_as_they_are_there(catalog: Catalog) -> None:
    table = created(catalog, STANDARDIZED)
    files = written(table, [event("a"), event("b", day=1)])
    remove_files(table.io, [files[0], "file:///nowhere/x.parquet", files[1].file_path, files[1]])
    assert files_of(table) == []
