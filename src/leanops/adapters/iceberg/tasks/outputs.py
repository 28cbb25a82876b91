"""What a task writes beside the rows of a table: dead positions, versions, and error rows."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from leanops.adapters.iceberg.tasks.held import together
from leanops.adapters.iceberg.tasks.places import FILE, Place
from leanops.adapters.iceberg.tasks.rows import POSITION, DeadRows, live_pieces
from leanops.adapters.iceberg.tasks.stored import Layout, Positions, StoredFile
from leanops.adapters.iceberg.tasks.written import remove_files, write_both, write_rows
from leanops.domain.table.batch import Batch
from leanops.ports.engine import Versions, Written
from leanops.transforms.older import NEWEST
from leanops.transforms.quarantine import error_rows, first_copies


def write_files(unit: Any, rows: Iterable[pa.Table], stored: pa.Table | None, replaced: Iterable[pa.Array]) -> Written:
    """Write new rows, and then the positions of those they replace, which may be known only when all are written."""
    layout = unit.target.layout
    files, deletes = write_both(
        layout.io(),
        layout,
        together(rows, unit.memory),
        (unit.work.key,),
        lambda: _dead(unit.target.files, stored, replaced),
    )
    added, replaced_rows = (sum(file.record_count for file in written) for written in (files, deletes))
    return Written(added=added, replaced=replaced_rows, files=tuple(files), deletes=tuple(deletes))


def _dead(
    files: Sequence[StoredFile], stored: pa.Table | None, replaced: Iterable[pa.Array]
) -> list[tuple[StoredFile, Positions]]:
    """The files with the positions of those of the stored rows that are replaced."""
    if stored is None:
        return []
    rows = pa.chunked_array([numbers.cast(pa.int64()) for numbers in replaced], pa.int64())
    old = stored.select([FILE, POSITION]).take(rows)
    numbers, positions = old.column(FILE).to_numpy(), old.column(POSITION).to_numpy()
    return [(files[number], positions[numbers == number]) for number in np.unique(numbers)]


def write_versions(io: FileIO, layout: Layout, versions: pa.Table) -> tuple[Versions, ...]:
    """Write down versions for whoever looks for those of some keys, perhaps with the newest ones of earlier batches."""
    is_known = NEWEST in versions.column_names
    elsewhere = len(versions) - versions.column(NEWEST).null_count if is_known else None
    return tuple(Versions(path, len(versions), elsewhere) for path in write_note(io, layout, versions))


def write_note(io: FileIO, layout: Layout, rows: pa.Table) -> tuple[str, ...]:
    """Write down, for tasks that come later, rows that belong to no table; nothing where there are none."""
    if not len(rows):
        return ()
    path = f"{layout.location}/data/note-{uuid4()}.parquet"
    try:
        with io.new_output(path).create(overwrite=True) as stream:
            pq.write_table(rows, stream)
    except BaseException:
        remove_files(io, [path])
        raise
    return (path,)


def whole_file(io: FileIO, path: str) -> pa.Table:
    """All rows of a file that is read once, and whose rows are all alive."""
    with io.new_input(path).open() as source:
        return pq.ParquetFile(source).read(use_threads=False)


def completed(
    unit: Any, written: Written, bad: pa.Table, superseded: pa.Table | None = None, failed: pa.Table | None = None
) -> Written:
    """Note what later tasks need, and write the error rows that are not stored yet; all of it, or nothing is left.

    They may need superseded versions, or the keys whose newest version failed.
    """
    layout = unit.target.layout
    io = layout.io()
    try:
        if superseded is not None:
            written = replace(written, superseded=write_versions(io, layout, superseded))
        if failed is not None:
            written = replace(written, failed=write_note(io, layout, failed))
        return replace(written, errors=_write_errors(unit, bad))
    except BaseException:
        remove_files(io, (*written.files, *written.deletes, *notes_of(written)))
        raise


def notes_of(written: Written) -> tuple[str, ...]:
    """The files that belong to no table."""
    return (*(named.path for named in written.superseded), *written.failed)


def _write_errors(unit: Any, bad: pa.Table) -> tuple[Any, ...]:
    if not len(bad):
        return ()
    io, errors = unit.errors.layout.io(), unit.errors
    rows, dead = error_rows(bad, unit.work.batch, unit.work.raw), DeadRows(io)
    for file in errors.files:
        for known in live_pieces(io, errors.layout, file, ["error_id"], dead=dead):
            is_known = pc.is_in(rows.column("error_id"), value_set=known.column("error_id").combine_chunks())
            rows = rows.filter(pc.invert(is_known))
    return tuple(write_rows(io, errors.layout, [rows]))


def distinct_errors(errors: Place, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The error rows that several tasks wrote for one batch, each id once: two tasks may refuse the same message."""
    io = errors.layout.io()
    rows = pa.concat_tables([whole_file(io, file.file_path) for file in files])
    distinct = rows.take(first_copies(rows))
    if len(distinct) == len(rows):
        return tuple(files)
    written = write_rows(io, errors.layout, [distinct])
    remove_files(io, files)
    return tuple(written)


def stamped(rows: pa.Table, batch: Batch) -> pa.Table:
    number = pa.repeat(pa.scalar(batch.batch_seq, pa.int64()), len(rows))
    return rows.append_column("_batch_seq", number).append_column("_batch_id", always(batch.batch_id, len(rows)))


def always(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)
