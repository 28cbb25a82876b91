"""What a table holds: its layout, its live files at a snapshot, and the rows in them that no delete file names."""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import IcebergType, NestedField, StringType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_int

from leanops.domain.errors import PermanentError, RetryableError

FILE_PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The field ids that Iceberg reserves for the two columns of a position-delete file."""
GROUP_BYTES = b"leanops.row-group-bytes"
"""Where our data files say how much memory their largest row group takes: a few bytes that are stored may be many."""
_REMEMBERED_ENTRIES = 20_000
"""Of some kilobytes each."""
_OF_FILES = ("py-io-impl", "s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.")
"""How the properties begin that PyIceberg's FileIO reads."""
Positions = npt.NDArray[np.int64]
Listed = TypeVar("Listed")
NO_POSITIONS: Positions = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Layout:
    """All a task needs to read and write the files of a table; small, and without the table's history."""

    location: str
    io_properties: Mapping[str, str] = field(repr=False)
    """How files are reached; of the catalog's properties no others. May hold credentials, so they are never shown."""
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    spec_id: int
    properties: Mapping[str, str]

    @classmethod
    def of(cls, table: Table, snapshot_id: int | None = None) -> "Layout":
        """The layout of a table as it is, or with the columns of a snapshot: a swap gives field ids to others."""
        metadata: Any = table.metadata
        schema_id = None if snapshot_id is None else _snapshot(table, snapshot_id).schema_id
        return cls(
            location=metadata.location,
            io_properties={key: value for key, value in table.io.properties.items() if key.startswith(_OF_FILES)},
            schema=table.schema() if schema_id is None else table.schemas()[schema_id],
            specs=dict(table.specs()),
            spec_id=metadata.default_spec_id,
            properties=dict(metadata.properties),
        )

    def io(self) -> FileIO:
        return load_file_io(dict(self.io_properties), self.location)

    @property
    def spec(self) -> PartitionSpec:
        """How new rows are partitioned."""
        return self.specs[self.spec_id]

    @property
    def file_bytes(self) -> int:
        """About how large the table wants its data files."""
        default = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
        return self.number(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, default)

    def number(self, name: str, default: int) -> int:
        """A property of the table."""
        return property_as_int(dict(self.properties), name, default) or default


@lru_cache(1_000)
def arrow_type(kind: IcebergType) -> pa.DataType:
    """The type of a column as rows have it in memory."""
    return plain(schema_to_pyarrow(kind, include_field_ids=False))


@dataclass(frozen=True)
class DeleteFile:
    """A live position-delete file."""

    path: str
    rows: int


@dataclass(frozen=True)
class StoredFile:
    """A live data file, as its manifest describes it."""

    path: str
    """To the byte as in the manifest: delete files name it so."""
    rows: int
    size: int
    spec_id: int
    partition: tuple[Any, ...]
    """As in the manifest: a day is a number."""
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Column → (not above any value, not below any); timestamps are microseconds, texts may be cut. Absent: unknown."""
    deletes: tuple[DeleteFile, ...] = ()
    """Those that may name it."""


def stored_files(table: Table, snapshot_id: int | None, measured: Sequence[str]) -> list[StoredFile]:
    """The live data files at a snapshot, with the bounds of these columns; none where there is no snapshot."""
    _check_format(table)
    if snapshot_id is None:
        return []
    contents: dict[ManifestContent, list[ManifestEntry]] = {kind: [] for kind in ManifestContent}
    manifests = manifests_of(table, _snapshot(table, snapshot_id))
    for manifest, entries in zip(manifests, _entries(table, manifests), strict=True):
        contents[manifest.content] += entries
    data = contents[ManifestContent.DATA]
    deletes = _Deletes(_name(table), contents[ManifestContent.DELETES], {entry.data_file.file_path for entry in data})
    columns = _columns(table, measured)
    return [_stored(table, entry.data_file, columns, deletes.naming(entry)) for entry in data]


def appended_files(table: Table, start: int | None, end: int, measured: Sequence[str] = ()) -> list[StoredFile]:
    """The files that appends added after `start` up to `end`, deleted or not; without a start those alive at `end`."""
    if start is None:
        return stored_files(table, end, measured)
    _check_format(table)
    appends = {
        snapshot.snapshot_id: snapshot
        for snapshot in _between(table, start, end)
        if snapshot.summary is not None and snapshot.summary.operation == Operation.APPEND
    }
    manifests = [
        manifest
        for snapshot in appends.values()
        for manifest in manifests_of(table, snapshot)
        if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id
    ]
    columns = _columns(table, measured)
    return [
        _stored(table, entry.data_file, columns, ())
        for entries in _entries(table, manifests)
        for entry in entries
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id in appends
    ]


def plain(kind: pa.DataType) -> pa.DataType:
    """The same type without 64-bit offsets; what is known of nested fields stays."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(plain(member.type)) for member in kind])
    return kind


class Remembered(Generic[Listed]):
    """What the files read last list, manifests or lists of them: they never change, and to open one takes 2 ms."""

    def __init__(self, most: int) -> None:
        self._most, self._held, self._lock = most, 0, threading.Lock()
        self._by_path: OrderedDict[str, list[Listed]] = OrderedDict()

    def listed(self, path: str, read: Callable[[], list[Listed]]) -> list[Listed]:
        """What a file lists, which nobody may change."""
        with self._lock:
            if path in self._by_path:
                self._by_path.move_to_end(path)
                return self._by_path[path]
        listed = read()
        with self._lock:
            self._held += 0 if path in self._by_path else len(listed) + 1
            self._by_path[path] = listed
            while self._held > self._most:
                self._held -= len(self._by_path.popitem(last=False)[1]) + 1
        return listed


_entries_read: Remembered[ManifestEntry] = Remembered(_REMEMBERED_ENTRIES)
_manifests_read: Remembered[ManifestFile] = Remembered(_REMEMBERED_ENTRIES)


def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot, which nobody may change."""
    return _manifests_read.listed(snapshot.manifest_list, lambda: snapshot.manifests(table.io))


class _Deletes:
    """Which delete files may name a data file: those of its partition that are not older, and whose bounds allow it."""

    def __init__(self, name: str, entries: Iterable[ManifestEntry], live: set[str]) -> None:
        self._by_path: dict[str, list[_Delete]] = defaultdict(list)
        self._by_partition: dict[tuple[int, tuple[Any, ...]], list[_Delete]] = defaultdict(list)
        for entry in entries:
            _check_delete(name, entry.data_file)
            delete = _Delete(entry)
            if delete.lower == delete.upper and delete.lower in live:
                self._by_path[delete.lower].append(delete)
            else:
                self._by_partition[_place(entry.data_file)].append(delete)

    def naming(self, entry: ManifestEntry) -> tuple[DeleteFile, ...]:
        path = entry.data_file.file_path
        own = (delete for delete in self._by_path.get(path, ()) if delete.place == _place(entry.data_file))
        shared = (delete for delete in self._by_partition.get(_place(entry.data_file), ()) if delete.may_name(path))
        number = entry.sequence_number or 0
        return tuple(delete.file for kind in (own, shared) for delete in kind if delete.number >= number)


class _Delete:
    """A position-delete file, and what its bounds say about the data files it names."""

    def __init__(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        self.file = DeleteFile(file.file_path, file.record_count)
        self.place, self.number = _place(file), entry.sequence_number or 0
        self.lower, self.upper = _bound(file.lower_bounds, ""), _bound(file.upper_bounds, chr(0x10FFFF))

    def may_name(self, path: str) -> bool:
        # Another tool may have cut the upper bound without raising it.
        return self.lower <= path and (path <= self.upper or path.startswith(self.upper))


def _bound(bounds: Mapping[int, bytes] | None, otherwise: str) -> str:
    encoded = (bounds or {}).get(FILE_PATH_ID)
    return otherwise if encoded is None else str(from_bytes(StringType(), encoded))


def _place(file: DataFile) -> tuple[int, tuple[Any, ...]]:
    return file.spec_id, _partition(file)


def _partition(file: DataFile) -> tuple[Any, ...]:
    return tuple(file.partition[at] for at in range(len(file.partition)))


def _stored(
    table: Table, file: DataFile, columns: Sequence[NestedField], deletes: tuple[DeleteFile, ...]
) -> StoredFile:
    if file.file_format != FileFormat.PARQUET:
        raise PermanentError(f"{_name(table)} has files that are not Parquet; rewrite them, then try again")
    sides = file.lower_bounds or {}, file.upper_bounds or {}
    bounds = {
        column.name: (_decoded(column, sides[0]), _decoded(column, sides[1]))
        for column in columns
        if all(column.field_id in side for side in sides)
    }
    return StoredFile(
        path=file.file_path,
        rows=file.record_count,
        size=file.file_size_in_bytes,
        spec_id=file.spec_id,
        partition=_partition(file),
        bounds=bounds,
        deletes=deletes,
    )


def _decoded(column: NestedField, bounds: Mapping[int, bytes]) -> Any:
    kind: Any = column.field_type
    return from_bytes(kind, bounds[column.field_id])


def _check_format(table: Table) -> None:
    if table.format_version > 2:
        raise PermanentError(f"{_name(table)} has Iceberg format {table.format_version}; only format 2 is supported")


def _check_delete(name: str, file: DataFile) -> None:
    if file.content == DataFileContent.EQUALITY_DELETES:
        raise PermanentError(f"{name} has equality deletes of another tool; compact the table, then try again")
    if file.file_format != FileFormat.PARQUET:
        raise PermanentError(f"{name} has delete files that are not Parquet; compact the table, then try again")


def _columns(table: Table, names: Sequence[str]) -> list[NestedField]:
    return [column for column in table.schema().fields if column.name in set(names)]


def _entries(table: Table, manifests: Sequence[ManifestFile]) -> list[list[ManifestEntry]]:
    """The live entries of each manifest; an object store is asked for several at once."""

    def entries(manifest: ManifestFile) -> list[ManifestEntry]:
        return _entries_read.listed(manifest.manifest_path, lambda: manifest.fetch_manifest_entry(table.io))

    return list(ExecutorFactory.get_or_create().map(entries, manifests))


def _snapshot(table: Table, snapshot_id: int) -> Snapshot:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise RetryableError(f"{_name(table)}: snapshot {snapshot_id} is no longer kept; the next cycle plans again")
    return snapshot


def _between(table: Table, start: int, end: int) -> list[Snapshot]:
    """The ancestors of `end` after `start`, which itself may be expired."""
    snapshots = [_snapshot(table, end)] if end != start else []
    while snapshots and snapshots[-1].parent_snapshot_id != start:
        parent = snapshots[-1].parent_snapshot_id
        if parent is None:
            raise RetryableError(f"{_name(table)}: snapshot {start} is not before {end}; the next cycle plans again")
        snapshots.append(_snapshot(table, parent))
    return snapshots


def _name(table: Table) -> str:
    return ".".join(table.name())
