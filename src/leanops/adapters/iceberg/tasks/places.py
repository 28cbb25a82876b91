"""The rows of a table as tasks read them: piece by piece, or those of some keys or positions alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from leanops.adapters.iceberg.tasks.held import joined
from leanops.adapters.iceberg.tasks.rows import POSITION, ROWS_OF_KEYS, DeadRows, chosen_pieces, live_pieces
from leanops.adapters.iceberg.tasks.stored import Layout, Positions, StoredFile, arrow_type
from leanops.domain.errors import RetryableError
from leanops.transforms.cast import VERSION_DIGITS
from leanops.transforms.older import RAW_FILE, RAW_ROW

FILE = "_file"
"""The number of the file that a stored row is in."""
_LATER = {"_version": pa.decimal128(*VERSION_DIGITS), "_payload_hash": pa.int64()}


@dataclass(frozen=True)
class Place:
    """A table as a task needs it: how to read and write it, and which of its files count."""

    layout: Layout
    files: tuple[StoredFile, ...] = ()


NOWHERE = Place(Layout(location="", io_properties={}, schema=Schema(), specs={}, spec_id=0, properties={}))
"""In place of a table that has no rows, and may not be there."""


def pieces(place: Place, columns: Sequence[str], at_once: int = ROWS_OF_KEYS) -> Iterator[pa.Table]:
    """These columns of all rows, and where each of them is; at least one piece."""
    io, layout = place.layout.io(), place.layout
    there, dead = _there(layout, columns), DeadRows(io)
    yield no_rows(place, columns)
    for file in place.files:
        for rows in live_pieces(io, layout, file, there, dead=dead, at_once=at_once):
            yield _completed(_placed(rows, file.path), columns)


def chosen_rows(place: Place, columns: Sequence[str], chosen: Mapping[str, Positions]) -> Iterator[pa.Table]:
    """These columns of some rows, given by file and position, in this order; rows may be dead."""
    io, layout = place.layout.io(), place.layout
    there, files = _there(layout, columns), {file.path: file for file in place.files}
    if gone := chosen.keys() - files.keys():
        raise RetryableError(f"{next(iter(gone))} is no longer a file of its table; the next cycle plans again")
    yield no_rows(place, columns)
    for path, positions in chosen.items():
        for rows in chosen_pieces(io, layout, files[path], there, positions):
            yield _completed(_placed(rows, path), columns)


def no_rows(place: Place, columns: Sequence[str]) -> pa.Table:
    """These columns without a row."""
    layout = place.layout
    kinds = {field.name: arrow_type(field.field_type) for field in layout.schema.fields}
    nothing = pa.table({name: pa.nulls(0, kinds[name]) for name in _there(layout, columns)})
    return _completed(_placed(nothing.append_column(POSITION, pa.nulls(0, pa.int64())), ""), columns)


def stored_rows(target: Place, key: str, keys: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table | None:
    """The stored rows of these keys, and of each the number of its file and its position there."""
    io, layout = target.layout.io(), target.layout
    bounds, dead, pieces = pc.min_max(keys).as_py(), DeadRows(io), list[pa.Table]()
    there, wanted = _there(layout, columns), keys.combine_chunks()
    for number, file in enumerate(target.files):
        lower, upper = file.bounds.get(key, (None, None))
        is_beyond = bounds["min"] is None or (upper is not None and bounds["min"] > upper)
        if is_beyond or (lower is not None and bounds["max"] < lower):
            continue
        for rows in live_pieces(io, layout, file, there, dead=dead, key=key):
            rows = rows.filter(pc.is_in(rows.column(key), value_set=wanted))
            pieces.append(rows.append_column(FILE, pa.array(np.full(len(rows), number))))
    return _completed(joined(pieces), columns) if pieces else None


def _there(layout: Layout, columns: Iterable[str]) -> list[str]:
    known = {field.name for field in layout.schema.fields}
    return [name for name in columns if name in known]


def _completed(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows with NULL in what a table, made by an earlier version or as it was earlier, does not have yet."""
    for name in columns:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), _LATER.get(name, pa.string())))
    return rows


def _placed(rows: pa.Table, path: str) -> pa.Table:
    """Rows with the file that they are from beside their position in it."""
    names = [RAW_ROW if name == POSITION else name for name in rows.column_names]
    file = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array([path]))
    return rows.rename_columns(names).append_column(RAW_FILE, file)
