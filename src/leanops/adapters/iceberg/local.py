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

REMEMBERED_SNAPSHOTS = 20_000
"""Each takes some 6 KB."""
REMEMBERED_WRITES = 100
"""Whoever commits loads the table again soon."""


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


class LocalCatalog(SqlCatalog):
    """PyIceberg's SQL catalog in a folder; what a row points at is on disk before the row is.

    One sync a commit covers its data files, manifests and metadata, and the names of new folders. Metadata files are
    never changed, so those of the tables used last are read once, and those written here not at all.
    """

    def __init__(self, name: str, home: Path, sync: Callable[[Path], None] = sync_filesystem) -> None:
        self._warehouse, self._sync = home / "warehouse", sync
        self._warehouse.mkdir(parents=True, exist_ok=True)
        self._read: OrderedDict[tuple[str, ...], tuple[str, TableMetadata]] = OrderedDict()
        self._written: OrderedDict[str, TableMetadata] = OrderedDict()
        self._reading = threading.Lock()
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
        with self._reading:
            known = self._read.get(name)
            metadata = known[1] if known and known[0] == location else self._written.pop(location, None)
        if metadata is None:
            metadata = super()._convert_orm_to_iceberg(orm_table).metadata
        self._remember(name, location, metadata)
        identifier = (*Catalog.identifier_to_tuple(name[0]), name[1])
        return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)

    def _remember(self, name: tuple[str, ...], location: str, metadata: TableMetadata) -> None:
        with self._reading:
            self._read[name] = location, metadata
            self._read.move_to_end(name)
            while sum(len(known.snapshots) for _, known in self._read.values()) > REMEMBERED_SNAPSHOTS:
                self._read.popitem(last=False)

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        """The last file of a commit, after which PyIceberg writes the row."""
        try:
            super()._write_metadata(metadata, io, metadata_path)
            self._sync(self._warehouse)
        except OSError as failure:
            raise NothingCommittedError(failure.errno, failure.strerror, failure.filename) from failure
        with self._reading:
            self._written[metadata_path] = metadata
            while len(self._written) > REMEMBERED_WRITES:
                self._written.popitem(last=False)


def _sync_every_commit(connection: sqlite3.Connection, _: object) -> None:
    # A build of SQLite may do less by default, and with a write-ahead log the last commits would be lost.
    connection.execute("PRAGMA synchronous=FULL").close()
