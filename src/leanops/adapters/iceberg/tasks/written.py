"""Files written by a task: data files by partition, and position deletes. Nothing here commits."""

import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    PYARROW_PARQUET_FIELD_ID_KEY,
    MetricModeTypes,
    StatisticsCollector,
    _get_parquet_writer_kwargs,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, PartitionSpec, partition_record_value
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import LongType, StringType

from leanops.adapters.iceberg import bounds
from leanops.adapters.iceberg.tasks.stored import (
    FILE_PATH_ID,
    GROUP_BYTES,
    NO_POSITIONS,
    POSITION_ID,
    Layout,
    Positions,
    StoredFile,
    plain,
)
from leanops.domain.errors import PermanentError

_FILES_WITH_OWN_DELETES = 20
"""Up to this number, data files of a partition get a delete file each; more share one, and any compaction conflicts."""
_ROW_GROUP_BYTES = 128 << 20
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
"""A column of such a name is called so in a file, too."""
_UNKNOWN_TO_PYICEBERG = "write.parquet.row-group-size-bytes", "write.parquet.bloom-filter"
_DELETES = pa.schema(
    [
        pa.field(name, kind, nullable=False, metadata={PYARROW_PARQUET_FIELD_ID_KEY: str(number)})
        for name, kind, number in (("file_path", pa.string(), FILE_PATH_ID), ("pos", pa.int64(), POSITION_ID))
    ]
)


def write_rows(io: FileIO, layout: Layout, rows: Iterable[pa.Table], sort_by: Sequence[str] = ()) -> list[DataFile]:
    """Data files with the rows of these tables, each table sorted; columns that the rows lack are NULL."""
    with _attempt(io, layout) as attempt:
        files = _DataFiles(attempt)
        for table in rows:
            if table.num_rows:
                for partition, part in _partitions(layout, _aligned(layout, files.form, table), sort_by):
                    files.write(partition, part)
        return files.closed()


def write_deletes(io: FileIO, layout: Layout, dead: Sequence[tuple[StoredFile, Positions]]) -> list[DataFile]:
    """Delete files that name these positions, each of them once."""
    by_partition: dict[tuple[int, tuple[Any, ...]], dict[str, Positions]] = defaultdict(dict)
    for file, positions in dead:
        files = by_partition[file.spec_id, file.partition]
        named = np.union1d(files.get(file.path, NO_POSITIONS), positions).astype(np.int64)
        if not len(named):
            continue
        if named[0] < 0 or named[-1] >= file.rows:
            raise ValueError(f"{file.path} has {file.rows} rows, not one at {named[0]} or {named[-1]}")
        files[file.path] = named
    with _attempt(io, layout) as attempt:
        return [
            _write_delete(attempt, _key(layout, spec_id, partition), share)
            for (spec_id, partition), files in by_partition.items()
            for share in _shares(files)
        ]


def write_both(
    io: FileIO,
    layout: Layout,
    rows: Iterable[pa.Table],
    sort_by: Sequence[str],
    dead: Callable[[], Sequence[tuple[StoredFile, Positions]]],
) -> tuple[list[DataFile], list[DataFile]]:
    """Data files with these rows, and then delete files that name dead positions; all of them, or none is left."""
    files = write_rows(io, layout, rows, sort_by)
    try:
        return files, write_deletes(io, layout, dead())
    except BaseException:
        remove_files(io, files)
        raise


def remove_files(io: FileIO, files: Iterable[DataFile | str]) -> None:
    """Remove what it can of the files of an attempt that certainly was not committed."""
    for file in files:
        # What cannot be removed is in nobody's way, and maintenance finds it.
        with suppress(Exception):
            io.delete(file if isinstance(file, str) else file.file_path)


class _Form:
    """How the data files of a table are written: Parquet's schema and options, and which metrics are kept."""

    def __init__(self, layout: Layout) -> None:
        bounds.install()
        is_simple = all(column.field_type.is_primitive and _SIMPLE(column.name) for column in layout.schema.fields)
        names = layout.schema if is_simple else sanitize_column_names(layout.schema)
        columns = schema_to_pyarrow(names)
        self.schema = pa.schema([column.with_type(plain(column.type)) for column in columns])
        self.ids = parquet_path_to_id_mapping(names)
        # By the names the properties have, which those in the file may differ from.
        self.metrics: dict[int, StatisticsCollector] = compute_statistics_plan(layout.schema, dict(layout.properties))
        bounded = MetricModeTypes.TRUNCATE, MetricModeTypes.FULL
        self.bounded = [at for at, key in enumerate(self.ids.values()) if self.metrics[key].mode.type in bounded]
        self.file_bytes = layout.file_bytes
        self._group_bytes = layout.number(TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES, _ROW_GROUP_BYTES)
        self._group_rows = layout.number(
            TableProperties.PARQUET_ROW_GROUP_LIMIT, TableProperties.PARQUET_ROW_GROUP_LIMIT_DEFAULT
        )

    def rows_a_group(self, rows: pa.Table) -> int:
        """By the bytes in memory, which are more than those in the file."""
        row_bytes: int = max(1, rows.nbytes // rows.num_rows)
        return max(1, min(self._group_rows, self._group_bytes // row_bytes, self.file_bytes // row_bytes))

    def statistics(self, footer: pq.FileMetaData) -> dict[str, Any]:
        statistics = data_file_statistics_from_parquet_metadata(footer, self.metrics, self.ids)
        for key in self._without_bounds(footer):
            statistics.column_aggregates.pop(key, None)
        return statistics.to_serialized_dict()

    def _without_bounds(self, footer: pq.FileMetaData) -> Iterator[int]:
        """Columns with a row group that has values and no bounds, as Parquet leaves out long texts.

        PyIceberg would give the file the bounds of its other row groups, and readers would skip rows.
        """
        for group in range(footer.num_row_groups):
            for at in self.bounded:
                column = footer.row_group(group).column(at)
                known = column.is_stats_set and (
                    column.statistics.has_min_max or column.statistics.null_count == column.num_values
                )
                if not known:
                    yield self.ids[column.path_in_schema]


@dataclass
class _OpenFile:
    """A Parquet file that is being written."""

    path: str
    stream: Any
    parquet: pq.ParquetWriter

    def abandon(self) -> None:
        """Let go of it: an object store would otherwise keep it when Python forgets the stream."""
        for end in (self.parquet.close, self.stream.close):
            with suppress(Exception):
                end()

    def close(self) -> tuple[pq.FileMetaData, int]:
        """The footer, and the size of the file."""
        self.parquet.close()
        size = self.stream.tell()
        self.stream.close()
        return self.parquet.writer.metadata, size


@dataclass
class _Attempt:
    """The files of one call, whose names nobody else has."""

    io: FileIO
    layout: Layout
    files: list[_OpenFile] = field(default_factory=list)

    @cached_property
    def _options(self) -> dict[str, Any]:
        known = {
            key: value for key, value in self.layout.properties.items() if not key.startswith(_UNKNOWN_TO_PYICEBERG)
        }
        return _get_parquet_writer_kwargs(known)

    def create(self, schema: pa.Schema, partition: PartitionKey | None, kind: str = "") -> _OpenFile:
        folders = load_location_provider(self.layout.location, dict(self.layout.properties))
        path = folders.new_data_location(f"{uuid.uuid4()}{kind}.parquet", partition)
        stream: Any = self.io.new_output(path).create(overwrite=True)
        # Arrow's own copy of the schema would be as large as the rows of a small batch.
        parquet = pq.ParquetWriter(
            stream, schema, store_schema=False, store_decimal_as_integer=True, write_page_index=True, **self._options
        )
        self.files.append(_OpenFile(path, stream, parquet))
        return self.files[-1]


@contextmanager
def _attempt(io: FileIO, layout: Layout) -> Iterator[_Attempt]:
    """Files that are all written, or removed."""
    attempt = _Attempt(io, layout)
    try:
        yield attempt
    except BaseException:
        for file in attempt.files:
            file.abandon()
        remove_files(io, [file.path for file in attempt.files])
        raise


def _aligned(layout: Layout, form: _Form, rows: pa.Table) -> pa.Table:
    """Every column of the table, in its type."""
    kinds = [(column.name, kind) for column, kind in zip(layout.schema.fields, form.schema.types, strict=True)]
    held = set(rows.column_names)
    if unknown := held - {name for name, _ in kinds}:
        raise ValueError(f"the table at {layout.location} has no column {', '.join(sorted(unknown))}")
    arrays = [rows[name].cast(kind) if name in held else pa.nulls(rows.num_rows, kind) for name, kind in kinds]
    return pa.table(arrays, names=[name for name, _ in kinds])


def _partitions(layout: Layout, rows: pa.Table, sort_by: Sequence[str]) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """The rows of each partition, sorted."""
    spec = layout.spec
    values = [_partition_values(layout, spec, at, rows) for at in range(len(spec.fields))]
    codes = _codes(values, rows.num_rows)
    order = _order(rows, codes, sort_by)
    start = 0
    for count in np.bincount(codes):
        part = rows if order is None else rows.take(order.slice(start, count))
        first = start if order is None else order[start].as_py()
        key = _key(layout, layout.spec_id, tuple(column[first].as_py() for column in values))
        _check_partition(layout, spec, key, part)
        yield key, part
        start += int(count)


def _partition_values(layout: Layout, spec: PartitionSpec, at: int, rows: pa.Table) -> pa.ChunkedArray:
    source = layout.schema.find_field(spec.fields[at].source_id)
    return spec.fields[at].transform.pyarrow_transform(source.field_type)(rows[source.name])


def _codes(values: Sequence[pa.ChunkedArray], rows: int) -> npt.NDArray[np.int64]:
    """A number for each row: the same where all values are."""
    codes = np.zeros(rows, dtype=np.int64)
    for column in values:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    return np.unique(codes, return_inverse=True)[1]


def _order(rows: pa.Table, codes: npt.NDArray[np.int64], sort_by: Sequence[str]) -> pa.Array | None:
    """Where the rows come from, partition by partition; None where they may stay."""
    if not sort_by and not codes.any():
        return None
    keys = rows.select(sort_by).rename_columns([f"key{at}" for at in range(len(sort_by))])
    keys = keys.append_column("partition", pa.array(codes))
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in ("partition", *keys.column_names[:-1])])


def _key(layout: Layout, spec_id: int, values: Sequence[Any]) -> PartitionKey:
    spec = layout.specs[spec_id]
    pairs = [PartitionFieldValue(field, value) for field, value in zip(spec.fields, values, strict=True)]
    return PartitionKey(pairs, spec, layout.schema)


def _check_partition(layout: Layout, spec: PartitionSpec, key: PartitionKey, part: pa.Table) -> None:
    """The tuple once more, by the transforms for single values: a file under a wrong one loses its rows."""
    for at, place in enumerate(spec.fields):
        source = layout.schema.find_field(place.source_id)
        transform = place.transform.transform(source.field_type)
        for row in (0, part.num_rows - 1):
            value = partition_record_value(place, part[source.name][row].as_py(), layout.schema)
            if transform(value) != key.partition[at]:
                raise PermanentError(f"rows for {layout.location} got the wrong {place.name}; report this as a defect")


class _DataFiles:
    """The data files of an attempt, one after the other."""

    def __init__(self, attempt: _Attempt) -> None:
        self._attempt = attempt
        self._files: list[DataFile] = []
        self._open: _OpenFile | None = None
        self._partition: PartitionKey | None = None
        self._group_bytes = 0

    @cached_property
    def form(self) -> _Form:
        """How they are written."""
        return _Form(self._attempt.layout)

    def write(self, partition: PartitionKey, rows: pa.Table) -> None:
        """Write rows of a partition; those that come next join them in a file unless it is as large as it should be."""
        if self._partition is not None and self._partition.partition != partition.partition:
            self._close()
        step = self.form.rows_a_group(rows)
        rows = pa.table(rows.columns, schema=self.form.schema)
        for start in range(0, rows.num_rows, step):
            if self._open is None:
                self._open = self._attempt.create(self.form.schema, _folder(partition))
                self._partition, self._group_bytes = partition, 0
            group = rows.slice(start, step)
            self._open.parquet.write_table(group, row_group_size=step)
            self._group_bytes = max(self._group_bytes, group.nbytes)
            if self._open.stream.tell() >= self.form.file_bytes:
                self._close()

    def closed(self) -> list[DataFile]:
        """All of them, none of which is open any more."""
        self._close()
        return self._files

    def _close(self) -> None:
        if self._open is None or self._partition is None:
            return
        self._open.parquet.add_key_value_metadata({GROUP_BYTES: str(self._group_bytes)})
        footer, size = self._open.close()
        described = self.form.statistics(footer)
        self._files.append(_data_file(DataFileContent.DATA, self._open.path, self._partition, size, described))
        self._open = self._partition = None


def _folder(partition: PartitionKey) -> PartitionKey | None:
    return partition if partition.partition_spec.fields else None


def _data_file(
    content: DataFileContent, path: str, partition: PartitionKey, size: int, described: Mapping[str, Any]
) -> DataFile:
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition.partition,
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **described,
    )
    # Not one of the arguments: PyIceberg leaves out what is not stored in a manifest.
    file.spec_id = partition.partition_spec.spec_id
    return file


def _shares(files: Mapping[str, Positions]) -> list[Mapping[str, Positions]]:
    """What goes into one delete file each."""
    if len(files) > _FILES_WITH_OWN_DELETES:
        return [files]
    return [{path: positions} for path, positions in files.items()]


def _write_delete(attempt: _Attempt, partition: PartitionKey, files: Mapping[str, Positions]) -> DataFile:
    paths = sorted(files)
    named = np.repeat(np.arange(len(paths)), [len(files[path]) for path in paths])
    positions = np.concatenate([files[path] for path in paths])
    file = attempt.create(_DELETES, _folder(partition), "-deletes")
    file.parquet.write_table(pa.table([pa.array(paths).take(pa.array(named)), pa.array(positions)], schema=_DELETES))
    footer, size = file.close()
    # Never cut: a reader that finds two equal bounds takes them for the one path that the deletes name.
    bounds = [
        {FILE_PATH_ID: to_bytes(StringType(), path), POSITION_ID: to_bytes(LongType(), int(position))}
        for path, position in ((paths[0], positions.min()), (paths[-1], positions.max()))
    ]
    counts = dict.fromkeys((FILE_PATH_ID, POSITION_ID), len(positions))
    described = {
        "record_count": footer.num_rows,
        "column_sizes": {key: _column_size(footer, at) for at, key in enumerate(counts)},
        "value_counts": counts,
        "null_value_counts": dict.fromkeys(counts, 0),
        "lower_bounds": bounds[0],
        "upper_bounds": bounds[1],
    }
    return _data_file(DataFileContent.POSITION_DELETES, file.path, partition, size, described)


def _column_size(footer: pq.FileMetaData, at: int) -> int:
    return sum(footer.row_group(group).column(at).total_compressed_size for group in range(footer.num_row_groups))
