"""The catalog of a home: a SQLite file beside the warehouse, whose commits survive a power cut."""

import ctypes
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

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
        sa.event.listen(self.engine, "connect", _sync_every_commit)
        # The connection that looked for the tables was opened before.
        self.engine.dispose()

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """The table a row of the catalog is about."""
        name, location = (
            (orm_table.table_namespace or "", orm_table.table_name or ""),
            orm_table.metadata_location or "",
        )
        metadata = self._read.find(name, location)
        if metadata is None:
            metadata = self._written.take((location,)) or super()._convert_orm_to_iceberg(orm_table).metadata
            self._read.put(name, location, metadata)
        identifier = (*Catalog.identifier_to_tuple(name[0]), name[1])
        return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        """The last file of a commit, after which PyIceberg writes the row."""
        try:
            super()._write_metadata(metadata, io, metadata_path)
            self._sync(self._warehouse)
        except OSError as failure:
            raise NothingCommittedError(failure.errno, failure.strerror, failure.filename) from failure
        self._written.put((metadata_path,), metadata_path, metadata)


def _sync_every_commit(connection: sqlite3.Connection, _: object) -> None:
    # A build of SQLite may do less by default, and with a write-ahead log the last commits would be lost.
    connection.execute("PRAGMA synchronous=FULL").close()
