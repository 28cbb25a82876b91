"""The rows in the files of a table: those that no delete file names, or those at some positions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PYARROW_PARQUET_FIELD_ID_KEY

from leanops.adapters.iceberg.tasks.stored import GROUP_BYTES, NO_POSITIONS, Layout, Positions, StoredFile, arrow_type
from leanops.domain.errors import PermanentError

POSITION = "_pos"
ROWS_OF_KEYS, ROWS_OF_PAYLOADS = 50_000, 256
"""How many rows are read at once of a file that does not say: without payload, and with one of a megabyte each."""
_LARGEST_GROUP = 128 << 20
_PIECE_BYTES = 1 << 20
"""Rows that are read a few at a time are handed on together once they are so many bytes."""


class DeadRows:
    """The positions that delete files name; each of those files is read once."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._by_delete: dict[str, Mapping[str, Positions]] = {}

    def of(self, file: StoredFile) -> Positions:
        """The positions of a file that are deleted, perhaps some of them twice."""
        named = [self._read(delete.path).get(file.path, NO_POSITIONS) for delete in file.deletes]
        return np.concatenate(named) if named else NO_POSITIONS

    def _read(self, path: str) -> Mapping[str, Positions]:
        if path not in self._by_delete:
            with self._io.new_input(path).open() as source:
                parquet = pq.ParquetFile(source, read_dictionary=["file_path"])
                rows = parquet.read(["file_path", "pos"], use_threads=False)
            self._by_delete[path] = _by_file(rows)
        return self._by_delete[path]


def _by_file(rows: pa.Table) -> Mapping[str, Positions]:
    if not rows.num_rows:
        return {}
    named = rows["file_path"].unify_dictionaries().combine_chunks()
    codes, positions = named.indices.to_numpy(), rows["pos"].to_numpy().astype(np.int64)
    order = np.argsort(codes, kind="stable")
    files, starts = np.unique(codes[order], return_index=True)
    parts = np.split(positions[order], starts[1:])
    return {named.dictionary[int(code)].as_py(): part for code, part in zip(files, parts, strict=True)}


def live_rows(
    io: FileIO,
    layout: Layout,
    file: StoredFile,
    columns: Sequence[str],
    positions: bool = False,
    dead: DeadRows | None = None,
    key: str | None = None,
) -> pa.Table:
    """The rows of a file that are not deleted, in the current schema's types; `_pos` is their place in the file."""
    rows = pa.concat_tables(live_pieces(io, layout, file, columns, dead=dead, key=key))
    return rows if positions else rows.drop_columns([POSITION])


def live_pieces(
    io: FileIO,
    layout: Layout,
    file: StoredFile,
    columns: Sequence[str],
    *,
    dead: DeadRows | None = None,
    key: str | None = None,
    at_once: int = ROWS_OF_KEYS,
) -> Iterator[pa.Table]:
    """The rows of a file that are not deleted, with their places, in pieces; of a file of unknown make `at_once` rows.

    Every file has the key: rows that seem to have none would all look new.
    """
    killed = (dead or DeadRows(io)).of(file)
    with _opened(io, layout, file, columns) as opened:
        if key is not None and opened.wanted.get(key, (None,))[0] is None:
            raise PermanentError(f"{file.path} has no column {key}, which another tool must have renamed or dropped")
        yield from opened.pieces(_without(opened.total, killed) if len(killed) else None, at_once)


def chosen_pieces(
    io: FileIO, layout: Layout, file: StoredFile, columns: Sequence[str], positions: Positions
) -> Iterator[pa.Table]:
    """The rows of a file at these positions, dead or not, in the order of the file; only their row groups are read."""
    with _opened(io, layout, file, columns) as opened:
        chosen = np.zeros(opened.total, dtype=np.bool_)
        chosen[positions] = True
        yield from opened.pieces(chosen, ROWS_OF_PAYLOADS)


@dataclass(frozen=True)
class _Opened:
    """A file, and where in it the columns are that are wanted."""

    parquet: pq.ParquetFile
    wanted: Mapping[str, tuple[str | None, pa.DataType]]
    """Each column, by the name the table has for it: the name that the file has, if it has the column, and its type."""

    @property
    def total(self) -> int:
        """All rows of the file, dead or not."""
        return int(self.parquet.metadata.num_rows)

    def pieces(self, wanted: npt.NDArray[np.bool_] | None, at_once: int) -> Iterator[pa.Table]:
        """The rows that are wanted, or all rows if `wanted` is None, with their places; at least one piece."""
        nothing = self.rows(None, 0).append_column(POSITION, pa.nulls(0, pa.int64()))
        yield nothing
        end = 0
        for group in range(self.parquet.metadata.num_row_groups):
            start, size = end, self.parquet.metadata.row_group(group).num_rows
            end = start + size
            if wanted is not None and not wanted[start:end].any():
                continue
            for rows in self._read(group, size, at_once):
                places = np.arange(start, start + len(rows))
                start += len(rows)
                piece = rows.append_column(POSITION, pa.array(places))
                yield piece if wanted is None else piece.filter(pa.array(wanted[places]))

    def _read(self, group: int, size: int, at_once: int) -> Iterator[pa.Table]:
        """A row group, all at once if who wrote it says that it is small."""
        noted = (self.parquet.metadata.metadata or {}).get(GROUP_BYTES)
        is_small = noted is not None and int(noted) <= _LARGEST_GROUP
        if not self.held:
            yield self.rows(None, size)
            return
        step = size if is_small else at_once
        batches, read = list[pa.RecordBatch](), 0
        for batch in self.parquet.iter_batches(step, row_groups=[group], columns=self.held, use_threads=False):
            batches.append(batch)
            read += batch.nbytes
            if read >= _PIECE_BYTES:
                yield self._together(batches)
                batches, read = [], 0
        if batches:
            yield self._together(batches)

    def _together(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        return self.rows(pa.Table.from_batches(batches), sum(map(len, batches)))

    @property
    def held(self) -> list[str]:
        """Those of the columns that the file has, by the names it has for them."""
        return [name for name, _ in self.wanted.values() if name is not None]

    def rows(self, stored: pa.Table | None, total: int) -> pa.Table:
        """What was read of them under the names and in the types of the table; NULL in what the file lacks."""
        arrays = []
        for name, kind in self.wanted.values():
            if stored is None or name is None:
                arrays.append(pa.nulls(total, kind))
            else:
                # Iceberg has no finer unit than microseconds here, so nothing that it promises can be lost.
                is_safe = not pa.types.is_timestamp(kind)
                arrays.append(stored[name] if stored[name].type == kind else stored[name].cast(kind, safe=is_safe))
        return pa.table(arrays, names=list(self.wanted))


@contextmanager
def _opened(io: FileIO, layout: Layout, file: StoredFile, columns: Sequence[str]) -> Iterator[_Opened]:
    with io.new_input(file.path).open() as source, pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as parquet:
        names, fields = _names_by_id(file, parquet.schema_arrow), map(layout.schema.find_field, columns)
        wanted = {field.name: (names.get(field.field_id), arrow_type(field.field_type)) for field in fields}
        yield _Opened(parquet, wanted)


def _without(total: int, killed: Positions) -> npt.NDArray[np.bool_]:
    alive = np.ones(total, dtype=np.bool_)
    alive[killed] = False
    return alive


def _names_by_id(file: StoredFile, schema: pa.Schema) -> dict[int, str]:
    names = {
        int(column.metadata[PYARROW_PARQUET_FIELD_ID_KEY]): column.name
        for column in schema
        if column.metadata and PYARROW_PARQUET_FIELD_ID_KEY in column.metadata
    }
    if not names and len(schema):
        raise PermanentError(
            f"{file.path} was written without Iceberg's field ids; rewrite it with a tool that has them"
        )
    return names
