"""The work of one task: read files, judge their rows, write others. It needs nothing but its description."""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leanops.adapters.iceberg.tasks.held import Spool, joined, packed, split, together, unpacked
from leanops.adapters.iceberg.tasks.outputs import always, completed, stamped, whole_file, write_files
from leanops.adapters.iceberg.tasks.places import Place, pieces, stored_rows
from leanops.adapters.iceberg.tasks.raw import (
    PARTS_OF_MEMORY,
    cells_of,
    flattened_pieces,
    raw_pieces,
    sampled_of,
    with_kinds,
)
from leanops.adapters.iceberg.tasks.rows import ROWS_OF_PAYLOADS
from leanops.domain.payload.flatten import Kind
from leanops.domain.table.batch import Batch
from leanops.ports.engine import CurateWork, StandardizeWork, Versions, Written
from leanops.transforms import curate, standardize
from leanops.transforms.flatten import FlattenPlan
from leanops.transforms.judge import Source, sources_of
from leanops.transforms.keys import PREFIX, check_distinct
from leanops.transforms.older import NEWEST, idempotency_keys, not_there


@dataclass(frozen=True)
class Unit:
    """What one task works on: a batch or a part of one."""

    work: Any
    source: Place
    target: Place
    errors: Place
    memory: int
    """About how many bytes of rows the task may hold."""
    elsewhere: tuple[Versions, ...] = ()
    """Curated: versions, to see whether the newest ones of their keys are there that came with earlier batches."""


def standardize_unit(unit: Unit, secret: bytes | None) -> Written:
    """RAW files → files of Standardized."""
    flattened = flattened_pieces(unit.work, secret, raw_pieces(unit.source, unit.memory))
    if flattened is None:
        return Written()
    plan, pieces = flattened
    kinds: dict[str, set[Kind]] = {}
    with Spool(unit.memory) as spool:
        for cells in pieces:
            kinds = with_kinds(unit.work, kinds, cells)
            spool.add(cells.drop_columns(["observed"]))
        return replace(judge_cells(unit, spool, plan, kinds), kinds=kinds)


def sampled(unit: Unit) -> dict[str, set[Kind]]:
    """The paths of some events of a unit, each with its kind."""
    raw = next(raw_pieces(replace(unit.source, files=unit.source.files[:1]), unit.memory), None)
    return {} if raw is None else {path: {kind} for path, kind in sampled_of(unit.work, raw).items()}


def spread(unit: Unit, plan: FlattenPlan, parts: int) -> Iterator[tuple[int, bytes]]:
    """RAW files → cells in N parts, all events of a key in one of them; and under `parts` the kinds of paths."""
    kinds: dict[str, set[Kind]] = {}
    for raw in raw_pieces(unit.source, unit.memory):
        cells = cells_of(raw, plan)
        kinds = with_kinds(unit.work, kinds, cells)
        cells = cells.drop_columns(["observed"])
        # Copies of a message that is not an event meet by its id.
        keys = pc.if_else(cells.column("rule").is_null(), cells.column("record_key"), cells.column("message_id"))
        yield from ((part, packed(given)) for part, given in split(cells, keys, parts))
    yield parts, pickle.dumps(kinds)


def gathered(unit: Unit, plan: FlattenPlan, kinds: Mapping[str, set[Kind]], given: Iterable[bytes]) -> Written:
    """The cells of one part → files of Standardized."""
    with Spool(unit.memory) as spool:
        for cells in together(map(unpacked, given), unit.memory // PARTS_OF_MEMORY):
            spool.add(cells)
        return judge_cells(unit, spool, plan, kinds) if len(spool) else Written()


def judge_cells(unit: Unit, spool: Spool, plan: FlattenPlan, kinds: Mapping[str, set[Kind]]) -> Written:
    """Flattened events → files of Standardized; nothing where the table lacks columns for their paths."""
    work: StandardizeWork = unit.work
    columns = work.columns(kinds)
    if columns.added:
        return Written(kinds=kinds, lacks_columns=True)
    positions = dict(zip(plan.expected, plan.columns, strict=True))
    read, arrived, refused = 0, list[pa.Table](), list[pa.Table]()
    for cells in spool:
        events, bad = standardize.arrivals(cells, columns.columns, positions, read, refuses=bool(columns.refused))
        arrived.append(events)
        refused.append(bad)
        read += len(cells)
    events, bad = joined(arrived), joined(refused)
    stored = stored_rows(unit.target, work.key, events.column(work.key), standardize.STORED)
    if stored is not None:
        check_distinct(stored.column(work.key), "Standardized", f"leanops rebuild {work.batch.topic}")
    judged = standardize.judge(events, stored)

    def rows() -> Iterator[pa.Table]:
        first = 0
        for cells in spool:
            won = standardize.rows_of(cells, judged.winners, columns.columns, positions, first)
            yield stamped(won, work.batch).append_column("topic_name", always(work.batch.topic, len(won)))
            first += len(cells)

    written = write_files(unit, rows(), stored, [judged.replaced])
    counts = {**judged.counts, "parse_errors": len(bad)}
    noted = judged.superseded if work.is_curated_next else None
    return completed(unit, replace(written, read=read, counts=counts), bad, noted)


def curate_unit(unit: Unit, secret: bytes | None) -> Written:
    """Standardized files → files of Curated."""
    work: CurateWork = unit.work
    sources, columns = judged_columns(unit)
    keys = list[pa.Table]()
    with Spool(unit.memory) as spool:
        for rows in together(_changed(unit, columns), unit.memory // PARTS_OF_MEMORY):
            spool.add(rows)
            keys.append(rows.select([work.key]))
        changed = joined(keys).column(work.key)
        rebuild = f"leanops rebuild {work.batch.topic}"
        check_distinct(changed, "Standardized", rebuild)
        elsewhere = _elsewhere(unit)
        others = idempotency_keys(elsewhere.column("record_key"))
        looked_up = pa.chunked_array([*changed.chunks, *others.chunks], pa.string())
        stored = stored_rows(unit.target, work.key, looked_up, curate.STORED)
        if stored is not None:
            check_distinct(stored.column(work.key), "Curated", f"{rebuild} --curated")
        curating = Curating(work, stored, sources, secret)
        written = write_files(unit, curating.rows(spool), stored, curating.replaced)
    read, bad = len(changed), joined(curating.bad)
    written = replace(written, read=read, counts=curating.counts)
    if not work.versions:
        return completed(unit, written, bad)
    failed = joined([bad.select(["record_key"]), not_there(elsewhere, stored).select(["record_key"])])
    # A key made of a message id has one version.
    failed = failed.filter(pc.starts_with(failed.column("record_key"), PREFIX))
    return completed(unit, written, bad, failed=failed)


def _elsewhere(unit: Unit) -> pa.Table:
    """The keys of versions whose newest one came with an earlier batch, and its message."""
    io = unit.target.layout.io()
    keys = [pa.table({"record_key": pa.nulls(0, pa.string()), NEWEST: pa.nulls(0, pa.string())})]
    for versions in unit.elsewhere:
        rows = whole_file(io, versions.path).select(["record_key", NEWEST])
        keys.append(
            rows.filter(pc.and_(rows.column(NEWEST).is_valid(), pc.starts_with(rows.column("record_key"), PREFIX)))
        )
    return pa.concat_tables(keys)


def _changed(unit: Unit, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """The rows of Standardized that a batch reads."""
    batch = unit.work.batch
    for rows in pieces(unit.source, (*columns, "_batch_seq"), ROWS_OF_PAYLOADS):
        number = rows.column("_batch_seq")
        is_read = pc.and_(pc.greater(number, batch.source_from or 0), pc.less_equal(number, batch.source_to))
        yield rows.filter(is_read).select(columns)


@dataclass
class Curating:
    """Rows of Standardized on their way to Curated, and what became of those that have passed by."""

    work: CurateWork
    stored: pa.Table | None
    sources: list[Source]
    secret: bytes | None = field(repr=False)
    replaced: list[pa.Array] = field(default_factory=list)
    """Which of the stored rows newer ones take the place of."""
    bad: list[pa.Table] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def rows(self, changed: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The rows of Curated."""
        for rows in changed:
            done = curate.curated(rows, self.stored, self.work.schema, self.sources, self.secret)
            self.replaced.append(done.replaced)
            self.bad.append(done.bad)
            self.counts = {name: self.counts.get(name, 0) + count for name, count in done.counts.items()}
            yield _curated_rows(done.rows, self.work.batch)


def judged_columns(unit: Any) -> tuple[list[Source], tuple[str, ...]]:
    """Where a schema finds its columns in Standardized, and all columns that are read of a row to judge it."""
    work, layout = unit.work, unit.source.layout
    names = {field.name: str(field.field_type) for field in layout.schema.fields}
    sources = sources_of(work.schema, work.paths, names)
    payload = [source.standardized_name for source in sources if source.standardized_name]
    return sources, tuple(dict.fromkeys((*curate.READ, *payload)))


def _curated_rows(rows: pa.Table, batch: Batch) -> pa.Table:
    """Rows of Curated with what is the same in all of a batch."""
    version = pa.repeat(pa.scalar(batch.schema_version, pa.int32()), len(rows))
    return stamped(rows, batch).append_column("_schema_version", version)
