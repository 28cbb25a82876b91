"""The rows that a task holds: cut into tables of some size, and put aside in a file where they are too many."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import IO, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Place = tuple[int, int]
"""Where in a file a table begins, and how long it is."""


class Spool:
    """Tables to go through more than once: in memory while they are small together, then in a file without a name."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._held: list[pa.Table | Place] = []
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, table: pa.Table) -> None:
        """Put a table behind the others."""
        self._size += table.nbytes
        if self._size > self._most and self._file is None:
            self._file = tempfile.TemporaryFile(dir=_scratch())  # noqa: SIM115 - closed with the spool
            self._held = [self._put_aside(self._file, held) for held in self]
        self._held.append(table if self._file is None else self._put_aside(self._file, table))

    def __iter__(self) -> Iterator[pa.Table]:
        return (held if isinstance(held, pa.Table) else self._read(*held) for held in self._held)

    def __len__(self) -> int:
        return len(self._held)

    @staticmethod
    def _put_aside(file: IO[bytes], table: pa.Table) -> Place:
        start, data = file.seek(0, os.SEEK_END), packed(table)
        file.write(data)
        return start, len(data)

    def _read(self, start: int, size: int) -> pa.Table:
        assert self._file is not None
        self._file.seek(start)
        return unpacked(self._file.read(size))


def _scratch() -> str | None:
    """Where Spark's workers put what does not fit into memory; elsewhere the usual folder."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def packed(table: pa.Table) -> bytes:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.Table:
    """The table that was packed."""
    return pa.ipc.open_stream(data).read_all()


def part_numbers(texts: pa.ChunkedArray, parts: int) -> npt.NDArray[np.int64]:
    """The part of each text, one of N: equal texts have the same part, in whatever process it is computed."""
    hashes = (crc32(text.encode()) if text else 0 for text in texts.to_pylist())
    return np.fromiter(hashes, np.int64, len(texts)) % parts


def split(rows: pa.Table, texts: pa.ChunkedArray, parts: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each part that there are any of."""
    numbers = part_numbers(texts, parts)
    counts, start = np.bincount(numbers, minlength=parts), 0
    ordered = rows.take(pa.array(np.argsort(numbers, kind="stable")))
    for part in np.flatnonzero(counts).tolist():
        yield part, ordered.slice(start, counts[part])
        start += counts[part]


def cut(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """The same rows in tables of at most N bytes, or of one row that is larger."""
    if rows.nbytes <= most:
        yield rows
        return
    ends, start = np.cumsum(_row_bytes(rows)), 0
    while start < len(rows):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield rows.slice(start, end - start)
        start = end


def _row_bytes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """About how many bytes each row takes in memory."""
    texts = [column for column in rows.columns if pa.types.is_string(column.type)]
    others = rows.nbytes - sum(column.nbytes for column in texts)
    sizes = np.full(len(rows), others // max(1, len(rows)) + 1, dtype=np.int64)
    for column in texts:
        sizes += pc.binary_length(column).fill_null(0).to_numpy() + 4
    return sizes


class Pile:
    """Tables that are put together, in their order, into the fewest of N bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._held: list[pa.Table] = []

    def add(self, piece: pa.Table) -> Iterator[pa.Table]:
        """Put a table on top; gives those that are full by now."""
        for part in cut(piece, self._most):
            if self._size and self._size + part.nbytes > self._most:
                yield from self.rest()
            self._held.append(part)
            self._size += part.nbytes

    def rest(self) -> Iterator[pa.Table]:
        """What is left of the pile."""
        if self._held:
            whole = joined(self._held)
            self._held, self._size = [], 0
            yield whole


def together(pieces: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """The same rows in the fewest tables of N bytes that keep their order; none without a piece."""
    pile = Pile(most)
    for piece in pieces:
        yield from pile.add(piece)
    yield from pile.rest()


def joined(tables: Iterable[pa.Table]) -> pa.Table:
    """All rows in one table, with NULL in the columns that some of them lack."""
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries()
