"""The work of one task: read files, judge their rows, write others. It needs nothing but its description."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from leanops.adapters.iceberg.batches.rows import POSITION, DeadRows, chosen_rows, live_rows
from leanops.adapters.iceberg.batches.stored import Layout, Positions, StoredFile
from leanops.adapters.iceberg.batches.written import remove_files, write_both, write_rows
from leanops.domain.errors import RetryableError
from leanops.domain.payload.fast_flatten import Layout as Shape
from leanops.domain.payload.fast_flatten import learn
from leanops.domain.payload.flatten import Kind, ParseError, flat
from leanops.domain.table.batch import Batch
from leanops.ports.engine import CurateWork, StandardizeWork, Versions, Written
from leanops.transforms import curate, standardize
from leanops.transforms.cast import VERSION_DIGITS
from leanops.transforms.flatten import RAW_COLUMNS, FlattenPlan, Telling, flattened, observed_kinds
from leanops.transforms.judge import Source, sources_of
from leanops.transforms.older import PLACE, RAW_FILE, RAW_ROW
from leanops.transforms.quarantine import error_rows, first_copies

SAMPLE = 500
"""Payloads that show what shape to expect where no batch came before."""
CHUNK_ROWS, CHUNK_BYTES = 50_000, 64 << 20
"""How much of RAW is flattened at a time."""
NOTHING = Telling(frozenset(), 0)
"""The driver needs none of the paths."""
FILE = "_file"
"""The number of the file that a stored row is in."""
_LATER = {"_version": pa.decimal128(*VERSION_DIGITS), "_payload_hash": pa.int64()}


@dataclass(frozen=True)
class Place:
    """A table as a task needs it: how to read and write it, and which of its files count."""

    layout: Layout
    files: tuple[StoredFile, ...] = ()


@dataclass(frozen=True)
class Unit:
    """What one task works on: a batch or a part of one."""

    work: Any
    source: Place
    target: Place
    errors: Place


def standardize_unit(unit: Unit, secret: bytes | None) -> Written:
    """RAW files → files of Standardized."""
    work: StandardizeWork = unit.work
    raw = read_rows(unit.source, RAW_COLUMNS, places=True)
    plan = flatten_plan(work, secret, work.expected or sampled_kinds(raw, work.batch))
    if not len(raw):
        return Written()
    cells = cells_of(raw, plan)
    kinds = kinds_of(work, cells)
    return replace(judge_cells(unit, cells, plan, kinds), kinds=kinds)


def spread(unit: Unit, plan: FlattenPlan, parts: int) -> Iterator[tuple[int, bytes]]:
    """RAW files → cells in so many parts, all events of a key in one of them; and under `parts` the kinds of paths."""
    raw = read_rows(unit.source, RAW_COLUMNS, places=True)
    if not len(raw):
        return
    cells = cells_of(raw, plan)
    yield parts, pickle.dumps(kinds_of(unit.work, cells))
    cells = cells.drop_columns(["observed"])
    # Copies of a message that is no event meet by its id.
    keys = pc.if_else(cells.column("rule").is_null(), cells.column("record_key"), cells.column("message_id"))
    numbers = np.fromiter((crc32(key.encode()) if key else 0 for key in keys.to_pylist()), np.int64) % parts
    for part in np.unique(numbers).tolist():
        yield part, _packed(cells.filter(pa.array(numbers == part)))


def gathered(unit: Unit, plan: FlattenPlan, kinds: Mapping[str, set[Kind]], packed: Iterable[bytes]) -> Written:
    """The cells of one part → files of Standardized."""
    cells = [pa.ipc.open_stream(one).read_all() for one in packed]
    return judge_cells(unit, pa.concat_tables(cells), plan, kinds) if cells else Written()


def _packed(cells: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, cells.schema) as writer:
        writer.write_table(cells)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def flatten_plan(work: StandardizeWork | CurateWork, secret: bytes | None, expected: Mapping[str, Kind]) -> FlattenPlan:
    """How the payloads of a batch become cells."""
    keys = work.keys
    return FlattenPlan(
        expected=dict(expected),
        limits=work.batch.limits,
        key_path=keys.idempotency_key,
        period_paths=keys.period_paths,
        version_path=keys.version,
        version_format=keys.version_format,
        key_secret=secret if keys.pii else None,
        telling=_telling(work) if isinstance(work, StandardizeWork) else NOTHING,
    )


def _telling(work: StandardizeWork) -> Telling:
    return Telling(work.known, work.batch.column_limits.columns)


def sampled(unit: Unit) -> dict[str, set[Kind]]:
    """The paths of some events of a unit, each with its kind."""
    raw = read_rows(replace(unit.source, files=unit.source.files[:1]), ("json_payload",))
    return {path: {kind} for path, kind in sampled_kinds(raw, unit.work.batch).items()}


def sampled_kinds(raw: pa.Table, batch: Batch) -> dict[str, Kind]:
    """The shape of some payloads; one of another shape gets its cells too, only more slowly."""
    payloads = []
    for payload in raw.column("json_payload").slice(0, SAMPLE).to_pylist():
        with suppress(ParseError):
            payloads.append(flat(payload or "", batch.limits))
    return dict(list(learn(payloads).items())[: batch.column_limits.columns])


def cells_of(raw: pa.Table, plan: FlattenPlan) -> pa.Table:
    """The cells of RAW rows, and where each of them is; there must be rows."""
    shape = Shape(plan.expected, plan.limits)
    each = max(1, raw.nbytes // len(raw))
    chunks = raw.combine_chunks().to_batches(max_chunksize=max(1, min(CHUNK_ROWS, CHUNK_BYTES // each)))
    cells = pa.Table.from_batches([flattened(chunk, shape, plan) for chunk in chunks])
    for name in PLACE:
        cells = cells.append_column(name, raw.column(name))
    return cells


def kinds_of(work: StandardizeWork, cells: pa.Table) -> dict[str, set[Kind]]:
    """The paths of flattened events with the kinds they had, as many as can matter."""
    return _telling(work).bounded(observed_kinds(cells.column("observed").drop_null().to_pylist()))


def judge_cells(unit: Unit, cells: pa.Table, plan: FlattenPlan, kinds: Mapping[str, set[Kind]]) -> Written:
    """Flattened events → files of Standardized; nothing where the table lacks columns for their paths."""
    work: StandardizeWork = unit.work
    columns = work.columns(kinds)
    if columns.added:
        return Written(kinds=kinds, lacks_columns=True)
    io = unit.target.layout.io()
    events = cells.filter(cells.column("rule").is_null())
    stored = stored_rows(io, unit.target, work.key, events.column(work.key), standardize.STORED)
    positions = dict(zip(plan.expected, plan.columns, strict=True))
    done = standardize.standardized(cells, stored, columns, positions)
    rows = stamped(done.rows, work.batch).append_column("topic_name", _always(work.batch.topic, len(done.rows)))
    written = write_files(io, unit, rows, stored, done.replaced)
    noted = done.superseded if work.is_curated_next else None
    return completed(unit, replace(written, read=len(cells), counts=done.counts), done.bad, noted)


def curate_unit(unit: Unit, secret: bytes | None) -> Written:
    """Standardized files → files of Curated."""
    work: CurateWork = unit.work
    batch, schema = work.batch, work.schema
    sources, columns = judged_columns(unit)
    changed = read_rows(unit.source, (*columns, "_batch_seq"))
    number = changed.column("_batch_seq")
    changed = changed.filter(
        pc.and_(pc.greater(number, batch.source_from or 0), pc.less_equal(number, batch.source_to))
    )
    io = unit.target.layout.io()
    stored = stored_rows(io, unit.target, work.key, changed.column(work.key), curate.STORED)
    done = curate.curated(changed, stored, schema, sources, secret)
    written = write_files(io, unit, curated_rows(done.rows, batch), stored, done.replaced)
    return completed(unit, replace(written, read=len(changed), counts=done.counts), done.bad)


def judged_columns(unit: Any) -> tuple[list[Source], tuple[str, ...]]:
    """Where a schema finds its columns in Standardized, and all columns that are read of a row to judge it."""
    work, layout = unit.work, unit.source.layout
    names = {field.name: str(field.field_type) for field in layout.schema.fields}
    sources = sources_of(work.schema, work.paths, names)
    payload = [source.standardized_name for source in sources if source.standardized_name]
    return sources, tuple(dict.fromkeys((*curate.READ, *payload)))


def curated_rows(rows: pa.Table, batch: Batch) -> pa.Table:
    """Rows of Curated with what is the same in all of a batch."""
    version = pa.repeat(pa.scalar(batch.schema_version, pa.int32()), len(rows))
    return stamped(rows, batch).append_column("_schema_version", version)


def read_rows(place: Place, columns: Sequence[str], *, places: bool = False) -> pa.Table:
    """These columns of all rows, and where each of them is if that is asked for."""
    io, layout = place.layout.io(), place.layout
    there, dead, nothing = _there(layout, columns), DeadRows(io), _no_rows(layout, columns)
    parts = [nothing.drop_columns([POSITION])]
    if places:
        parts = [_placed(nothing, "")]
    for file in place.files:
        rows = live_rows(io, layout, file, there, positions=places, dead=dead)
        parts.append(_placed(rows, file.path) if places else rows)
    return _completed(pa.concat_tables(parts).unify_dictionaries(), columns)


def read_chosen(place: Place, columns: Sequence[str], chosen: Mapping[str, Positions]) -> pa.Table:
    """These columns of some rows, given by file and position, with their places; rows may be dead."""
    io, layout = place.layout.io(), place.layout
    there, files = _there(layout, columns), {file.path: file for file in place.files}
    if gone := chosen.keys() - files.keys():
        raise RetryableError(f"{next(iter(gone))} is not a file of its table any more; the next cycle plans again")
    parts = [_placed(_no_rows(layout, columns), "")]
    for path, positions in chosen.items():
        parts.append(_placed(chosen_rows(io, layout, files[path], there, positions), path))
    return _completed(pa.concat_tables(parts).unify_dictionaries(), columns)


def _there(layout: Layout, columns: Sequence[str]) -> list[str]:
    known = {field.name for field in layout.schema.fields}
    return [name for name in columns if name in known]


def _no_rows(layout: Layout, columns: Sequence[str]) -> pa.Table:
    kinds = {field.name: layout.arrow_type(field) for field in layout.schema.fields}
    nothing = pa.table({name: pa.nulls(0, kinds[name]) for name in _there(layout, columns)})
    return nothing.append_column(POSITION, pa.nulls(0, pa.int64()))


def _completed(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows with NULL in what a table made by an earlier version does not have yet."""
    for name in columns:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), _LATER[name]))
    return rows


def _placed(rows: pa.Table, path: str) -> pa.Table:
    """Rows with the file that they are from beside their position in it."""
    names = [RAW_ROW if name == POSITION else name for name in rows.column_names]
    file = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array([path]))
    return rows.rename_columns(names).append_column(RAW_FILE, file)


def stored_rows(io: FileIO, target: Place, key: str, keys: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table | None:
    """The stored rows of these keys, and of each the number of its file and its position there."""
    bounds, dead, found = pc.min_max(keys).as_py(), DeadRows(io), []
    there = _there(target.layout, columns)
    for number, file in enumerate(target.files):
        lower, upper = file.bounds.get(key, (None, None))
        is_beyond = bounds["min"] is None or (upper is not None and bounds["min"] > upper)
        if is_beyond or (lower is not None and bounds["max"] < lower):
            continue
        rows = live_rows(io, target.layout, file, there, positions=True, dead=dead, key=key)
        rows = rows.filter(pc.is_in(rows.column(key), value_set=keys.combine_chunks()))
        found.append(rows.append_column(FILE, pa.array(np.full(len(rows), number))))
    return _completed(pa.concat_tables(found), columns) if found else None


def write_files(io: FileIO, unit: Any, rows: pa.Table, stored: pa.Table | None, replaced: pa.Array) -> Written:
    """Write new rows, and the positions of those they replace."""
    layout = unit.target.layout
    dead = []
    if stored is not None and len(replaced):
        old = stored.select([FILE, POSITION]).take(replaced)
        numbers, positions = old.column(FILE).to_numpy(), old.column(POSITION).to_numpy()
        dead = [(unit.target.files[number], positions[numbers == number]) for number in np.unique(numbers)]
    files, deletes = write_both(io, layout, rows, (unit.work.key,), dead)
    added, replaced_rows = (sum(file.record_count for file in one) for one in (files, deletes))
    return Written(added=added, replaced=replaced_rows, files=tuple(files), deletes=tuple(deletes))


def write_versions(io: FileIO, layout: Layout, versions: pa.Table) -> tuple[Versions, ...]:
    """Write down versions for whoever looks for those of some keys; the file belongs to no table."""
    if not len(versions):
        return ()
    path = f"{layout.location}/data/versions-{uuid4()}.parquet"
    try:
        with io.new_output(path).create(overwrite=True) as stream:
            pq.write_table(versions, stream)
    except BaseException:
        remove_files(io, [path])
        raise
    return (Versions(path, len(versions)),)


def completed(unit: Any, written: Written, bad: pa.Table, superseded: pa.Table | None = None) -> Written:
    """Note superseded versions, and write the error rows that are not stored yet; all of it, or nothing is left."""
    layout = unit.target.layout
    io = layout.io()
    try:
        if superseded is not None:
            written = replace(written, superseded=write_versions(io, layout, superseded))
        return replace(written, errors=_write_errors(unit, bad))
    except BaseException:
        remove_files(io, (*written.files, *written.deletes, *(named.path for named in written.superseded)))
        raise


def _write_errors(unit: Any, bad: pa.Table) -> tuple[Any, ...]:
    if not len(bad):
        return ()
    io, errors = unit.errors.layout.io(), unit.errors
    rows, dead = error_rows(bad, unit.work.batch, unit.work.raw), DeadRows(io)
    for file in errors.files:
        known = live_rows(io, errors.layout, file, ["error_id"], dead=dead).column("error_id")
        rows = rows.filter(pc.invert(pc.is_in(rows.column("error_id"), value_set=known.combine_chunks())))
    return tuple(write_rows(io, errors.layout, rows)) if len(rows) else ()


def distinct_errors(errors: Place, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The error rows that several tasks wrote for one batch, each id once: two tasks may refuse the same message."""
    io = errors.layout.io()
    rows = pa.concat_tables([_whole_file(io, file) for file in files])
    distinct = rows.take(first_copies(rows))
    if len(distinct) == len(rows):
        return tuple(files)
    written = write_rows(io, errors.layout, distinct)
    remove_files(io, files)
    return tuple(written)


def _whole_file(io: FileIO, file: DataFile) -> pa.Table:
    with io.new_input(file.file_path).open() as source:
        return pq.read_table(source, use_threads=False)


def stamped(rows: pa.Table, batch: Batch) -> pa.Table:
    number = pa.repeat(pa.scalar(batch.batch_seq, pa.int64()), len(rows))
    return rows.append_column("_batch_seq", number).append_column("_batch_id", _always(batch.batch_id, len(rows)))


def _always(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)
