"""The work of one task: read files, judge their rows, write others. It needs nothing but its description."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from leanops.adapters.iceberg.batches.stored import DeadRows, Layout, StoredFile, live_rows
from leanops.adapters.iceberg.batches.written import remove_files, write_deletes, write_rows
from leanops.domain.payload.fast_flatten import Layout as Shape
from leanops.domain.payload.fast_flatten import learn
from leanops.domain.payload.flatten import Kind, ParseError, flat
from leanops.domain.table.batch import Batch
from leanops.ports.engine import CurateWork, StandardizeWork, Written
from leanops.transforms import curate, standardize
from leanops.transforms.cast import VERSION_DIGITS
from leanops.transforms.flatten import RAW_COLUMNS, FlattenPlan, Telling, flattened, observed_kinds
from leanops.transforms.judge import sources_of
from leanops.transforms.quarantine import error_rows, first_copies

SAMPLE = 500
"""Payloads that show what shape to expect where no batch came before."""
CHUNK_ROWS, CHUNK_BYTES = 50_000, 64 << 20
"""How much of RAW is flattened at a time."""
_FILE, _POSITION = "_file", "_pos"
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
    raw = _read(unit.source, RAW_COLUMNS)
    plan = flatten_plan(work, secret, work.expected or sampled_kinds(raw, work))
    if not len(raw):
        return Written()
    cells = pa.Table.from_batches(list(flattened_chunks(raw, plan)))
    kinds = kinds_of(work, cells)
    return replace(judge_cells(unit, cells, plan, kinds), kinds=kinds)


def spread(unit: Unit, plan: FlattenPlan, parts: int) -> Iterator[tuple[int, bytes]]:
    """RAW files → cells in so many parts, all events of a key in one of them; and under `parts` the kinds of paths."""
    raw = _read(unit.source, RAW_COLUMNS)
    if not len(raw):
        return
    cells = pa.Table.from_batches(list(flattened_chunks(raw, plan)))
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


def flatten_plan(work: StandardizeWork, secret: bytes | None, expected: Mapping[str, Kind]) -> FlattenPlan:
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
        telling=_telling(work),
    )


def _telling(work: StandardizeWork) -> Telling:
    return Telling(work.known, work.batch.column_limits.columns)


def sampled(unit: Unit) -> dict[str, set[Kind]]:
    """The paths of some events of a unit, each with its kind."""
    raw = _read(replace(unit.source, files=unit.source.files[:1]), ("json_payload",))
    return {path: {kind} for path, kind in sampled_kinds(raw, unit.work).items()}


def sampled_kinds(raw: pa.Table, work: StandardizeWork) -> dict[str, Kind]:
    """The shape of some payloads; one of another shape gets its cells too, only more slowly."""
    payloads = []
    for payload in raw.column("json_payload").slice(0, SAMPLE).to_pylist():
        with suppress(ParseError):
            payloads.append(flat(payload or "", work.batch.limits))
    return dict(list(learn(payloads).items())[: work.batch.column_limits.columns])


def flattened_chunks(raw: pa.Table, plan: FlattenPlan) -> Iterator[pa.RecordBatch]:
    """The cells of RAW rows, some at a time."""
    shape = Shape(plan.expected, plan.limits)
    each = max(1, raw.nbytes // max(1, len(raw)))
    for batch in raw.combine_chunks().to_batches(max_chunksize=max(1, min(CHUNK_ROWS, CHUNK_BYTES // each))):
        yield flattened(batch, shape, plan)


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
    stored = _stored(io, unit.target, work.key, events.column(work.key), standardize.STORED)
    positions = dict(zip(plan.expected, plan.columns, strict=True))
    done = standardize.standardized(cells, stored, columns, positions)
    rows = _stamped(done.rows, work.batch).append_column("topic_name", _always(work.batch.topic, len(done.rows)))
    written = _files(io, unit, rows, stored, done.replaced)
    return replace(
        written, read=len(cells), counts=done.counts, errors=_errors(io, unit, done.bad, work.batch, work.raw)
    )


def curate_unit(unit: Unit, secret: bytes | None) -> Written:
    """Standardized files → files of Curated."""
    work: CurateWork = unit.work
    batch, schema = work.batch, work.schema
    names = {field.name: str(field.field_type) for field in unit.source.layout.schema.fields}
    sources = sources_of(schema, work.paths, names)
    payload = [source.standardized_name for source in sources if source.standardized_name]
    changed = _read(unit.source, tuple(dict.fromkeys((*curate.READ, "_batch_seq", *payload))))
    number = changed.column("_batch_seq")
    changed = changed.filter(
        pc.and_(pc.greater(number, batch.source_from or 0), pc.less_equal(number, batch.source_to))
    )
    io = unit.target.layout.io()
    stored = _stored(io, unit.target, work.key, changed.column(work.key), curate.STORED)
    done = curate.curated(changed, stored, schema, sources, secret)
    rows = _stamped(done.rows, batch).append_column(
        "_schema_version", pa.repeat(pa.scalar(batch.schema_version, pa.int32()), len(done.rows))
    )
    written = _files(io, unit, rows, stored, done.replaced)
    return replace(written, read=len(changed), counts=done.counts, errors=_errors(io, unit, done.bad, batch, work.raw))


def _read(place: Place, columns: Sequence[str]) -> pa.Table:
    """These columns of all rows; NULL in what a table made by an earlier version does not have yet."""
    layout = place.layout
    io, known = layout.io(), {field.name: layout.arrow_type(field) for field in layout.schema.fields}
    there = [name for name in columns if name in known]
    nothing = pa.table({name: pa.nulls(0, known[name]) for name in there})
    dead = DeadRows(io)
    rows = pa.concat_tables([nothing, *(live_rows(io, layout, file, there, dead=dead) for file in place.files)])
    for name in columns:
        if name not in known:
            rows = rows.append_column(name, pa.nulls(len(rows), _LATER[name]))
    return rows


def _stored(io: FileIO, target: Place, key: str, keys: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table | None:
    """The stored rows of these keys, and of each the number of its file and its position there."""
    bounds, dead, found = pc.min_max(keys).as_py(), DeadRows(io), []
    for number, file in enumerate(target.files):
        lower, upper = file.bounds.get(key, (None, None))
        is_beyond = bounds["min"] is None or (upper is not None and bounds["min"] > upper)
        if is_beyond or (lower is not None and bounds["max"] < lower):
            continue
        rows = live_rows(io, target.layout, file, columns, positions=True, dead=dead)
        rows = rows.filter(pc.is_in(rows.column(key), value_set=keys.combine_chunks()))
        found.append(rows.append_column(_FILE, pa.array(np.full(len(rows), number))))
    return pa.concat_tables(found) if found else None


def _files(io: FileIO, unit: Unit, rows: pa.Table, stored: pa.Table | None, replaced: pa.Array) -> Written:
    """Write new rows, and the positions of those they replace."""
    layout = unit.target.layout
    files = write_rows(io, layout, rows, sort_by=(unit.work.key,)) if len(rows) else []
    deletes = []
    if stored is not None and len(replaced):
        old = stored.select([_FILE, _POSITION]).take(replaced)
        numbers, positions = old.column(_FILE).to_numpy(), old.column(_POSITION).to_numpy()
        dead = [(unit.target.files[number], positions[numbers == number]) for number in np.unique(numbers)]
        deletes = write_deletes(io, layout, dead)
    added, replaced_rows = (sum(file.record_count for file in one) for one in (files, deletes))
    return Written(added=added, replaced=replaced_rows, files=tuple(files), deletes=tuple(deletes))


def _errors(io: FileIO, unit: Unit, bad: pa.Table, batch: Batch, raw: str) -> tuple[Any, ...]:
    """Write the error rows that are not stored yet."""
    if not len(bad):
        return ()
    rows, errors, dead = error_rows(bad, batch, raw), unit.errors, DeadRows(io)
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


def _stamped(rows: pa.Table, batch: Batch) -> pa.Table:
    number = pa.repeat(pa.scalar(batch.batch_seq, pa.int64()), len(rows))
    return rows.append_column("_batch_seq", number).append_column("_batch_id", _always(batch.batch_id, len(rows)))


def _always(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)
