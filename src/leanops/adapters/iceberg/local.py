"""The catalog of a home: a SQLite file beside the warehouse, whose commits survive a power cut."""

import ctypes
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)

READ_SNAPSHOTS, WRITTEN_SNAPSHOTS = 20_000, 5_000
"""How many snapshots are remembered of tables that were read, and of commits: who makes one loads the table again soon.

Each takes some 6 KB.
"""


def sync_filesystem(folder: Path) -> None:
    """Return when everything written to the folder's file system is on disk; raises OSError where it is not."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if _syncfs is None:
            os.sync()
        elif _syncfs(handle) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(handle)


class NothingCommittedError(OSError):
    """What a commit needs could not be written, so it was not tried."""


class Remembered:
    """The metadata used last, at least one, and others up to so many snapshots together; under names of any kind."""

    def __init__(self, most: int) -> None:
        self._most, self._held, self._lock = most, 0, threading.Lock()
        self._by_name: OrderedDict[tuple[str, ...], tuple[str, TableMetadata]] = OrderedDict()

    def find(self, name: tuple[str, ...], location: str) -> TableMetadata | None:
        """What is under a name, if it is the metadata at this location."""
        with self._lock:
            known = self._by_name.get(name)
            if known is None or known[0] != location:
                return None
            self._by_name.move_to_end(name)
            return known[1]

    def put(self, name: tuple[str, ...], location: str, metadata: TableMetadata) -> None:
        """Remember metadata under a name, instead of what was there."""
        with self._lock:
            self._remove(name)
            self._by_name[name] = location, metadata
            self._held += _weight(metadata)
            while self._held > self._most and len(self._by_name) > 1:
                self._remove(next(iter(self._by_name)))

    def take(self, name: tuple[str, ...]) -> TableMetadata | None:
        """What is under a name, and no longer is."""
        with self._lock:
            return self._remove(name)

    def _remove(self, name: tuple[str, ...]) -> TableMetadata | None:
        _, metadata = self._by_name.pop(name, ("", None))
        self._held -= _weight(metadata) if metadata else 0
        return metadata


def _weight(metadata: TableMetadata) -> int:
    """A table without a snapshot has something to remember, too."""
    return 1 + len(metadata.snapshots)


class LocalCatalog(SqlCatalog):
    """PyIceberg's SQL catalog in a folder; what a row points at is on disk before the row is.

    One sync a commit covers its data files, manifests and metadata, and the names of new folders. Metadata files are
    never changed, so those of the tables used last are read once, and those written here not at all.
    """

    def __init__(self, name: str, home: Path, sync: Callable[[Path], None] = sync_filesystem) -> None:
        self._warehouse, self._sync = home / "warehouse", sync
        self._warehouse.mkdir(parents=True, exist_ok=True)
        self._read, self._written = Remembered(READ_SNAPSHOTS), Remembered(WRITTEN_SNAPSHOTS)
        super().__init__(name, uri=f"sqlite:///{home}/catalog.db?timeout=30", warehouse=f"file://{self._warehouse}")
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        is_ours, is_table = IcebergTables.catalog_name == name, self._iceberg_type_filter()
        self._all = sa.select(*columns).where(is_ours if is_table is None else sa.and_(is_ours, is_table))
        self._one = self._all.where(columns[0] == sa.bindparam("namespace"), columns[1] == sa.bindparam("table"))
        sa.event.listen(self.engine, "connect", _sync_every_commit)
        # The connection that looked for the tables was opened before.
        self.engine.dispose()

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table as it is now; raises NoSuchTableError."""
        (location,) = self.locations([identifier])
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(Catalog.identifier_to_tuple(identifier))}")
        return self.table_at(identifier, location)

    def locations(self, identifiers: Sequence[str | Identifier]) -> list[str | None]:
        """Where the metadata of each of these tables is now, asked for at once; None where there is no such table."""
        names = [_name(identifier) for identifier in identifiers]
        # Statements that are made once: to make one takes longer than to run it.
        query, of = (
            (self._one, dict(zip(("namespace", "table"), names[0], strict=True)))
            if len(names) == 1
            else (self._all, {})
        )
        with self.engine.connect() as connection:
            found = {(row[0], row[1]): row[2] for row in connection.execute(query, of)}
        return [found.get(name) for name in names]

    def table_at(self, identifier: str | Identifier, location: str) -> Table:
        """A table by the metadata at a location."""
        name = _name(identifier)
        metadata = self._read.find(name, location)
        if metadata is None:
            metadata = self._written.take((location,)) or self._metadata_at(location)
            self._read.put(name, location, metadata)
        io = self._load_file_io(metadata.properties, location)
        return Table(Catalog.identifier_to_tuple(identifier), metadata, location, io, self)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """The table a row of the catalog is about."""
        return self.table_at(f"{orm_table.table_namespace}.{orm_table.table_name}", orm_table.metadata_location or "")

    def _metadata_at(self, location: str) -> TableMetadata:
        return FromInputFile.table_metadata(load_file_io(self.properties, location).new_input(location))

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        """The last file of a commit, after which PyIceberg writes the row."""
        try:
            super()._write_metadata(metadata, io, metadata_path)
            self._sync(self._warehouse)
        except OSError as failure:
            raise NothingCommittedError(failure.errno, failure.strerror, failure.filename) from failure
        self._written.put((metadata_path,), metadata_path, metadata)


def _name(identifier: str | Identifier) -> tuple[str, str]:
    """A table's namespace and its own name."""
    return Catalog.namespace_to_string(Catalog.namespace_from(identifier)), Catalog.table_name_from(identifier)


def _sync_every_commit(connection: sqlite3.Connection, _: object) -> None:
    # A build of SQLite may do less by default, and with a write-ahead log the last commits would be lost.
    connection.execute("PRAGMA synchronous=FULL").close()
