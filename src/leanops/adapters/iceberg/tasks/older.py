"""Older versions of keys whose newest version fails, as tasks: where they are in RAW, and which one takes its place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.adapters.iceberg.tasks.held import Spool, joined, part_numbers, together
from leanops.adapters.iceberg.tasks.outputs import completed, whole_file, write_files, write_versions
from leanops.adapters.iceberg.tasks.places import Place, chosen_rows, stored_rows
from leanops.adapters.iceberg.tasks.raw import (
    PARTS_OF_MEMORY,
    cells_of,
    flatten_plan,
    flattened_pieces,
    raw_pieces,
    sampled_of,
)
from leanops.adapters.iceberg.tasks.stored import Positions
from leanops.adapters.iceberg.tasks.units import Curating, judged_columns
from leanops.ports.engine import CurateWork, Versions, Written
from leanops.transforms import curate
from leanops.transforms.curate import Flags
from leanops.transforms.flatten import RAW_COLUMNS
from leanops.transforms.judge import KEY, judged
from leanops.transforms.keys import PREFIX
from leanops.transforms.older import (
    RAW_FILE,
    RAW_ROW,
    VERSION,
    candidates,
    flags,
    idempotency_keys,
    newest_passing,
)
from leanops.transforms.quarantine import BAD
from leanops.transforms.standardize import SUPERSEDED_COLUMNS, paths_without_column, table_rows

_FIRST_SEEN = "first_seen_ts"


@dataclass(frozen=True)
class VersionsUnit:
    """Some files of RAW, whose events are to be named with their keys."""

    work: CurateWork
    source: Place
    target: Place
    memory: int


@dataclass(frozen=True)
class OlderUnit:
    """Keys that have other versions in a part of RAW than the one in Standardized."""

    work: CurateWork
    versions: tuple[Versions, ...]
    is_any: bool
    """Whether the keys of all of them are looked up, and not only those in `failed`."""
    failed: tuple[str, ...]
    """Files that name keys whose newest version is not in Curated, those of all rows of the batch that failed."""
    raw: Place
    source: Place
    """Standardized, with all of its files."""
    target: Place
    errors: Place
    memory: int
    part: int = 0
    parts: int = 1
    """A task does the keys of its part."""


def versions_unit(unit: VersionsUnit, secret: bytes | None) -> tuple[Versions, ...]:
    """RAW files → a file that names their events."""
    flattened = flattened_pieces(unit.work, secret, raw_pieces(unit.source, unit.memory))
    if flattened is None:
        return ()
    _, pieces = flattened
    events = (cells.select(SUPERSEDED_COLUMNS).filter(cells.column("rule").is_null()) for cells in pieces)
    return write_versions(unit.target.layout.io(), unit.target.layout, joined(events))


def older_unit(unit: OlderUnit, secret: bytes | None) -> Written:
    """Versions in RAW → files of Curated, with the newest version that passes of each key whose newest one fails."""
    versions = _versions(unit)
    failed = _failed(unit, versions)
    if not unit.is_any:
        versions = versions.filter(pc.is_in(versions.column("record_key"), value_set=failed))
    keys = pc.unique(versions.column("record_key"))
    newest = stored_rows(unit.source, "record_key", pa.chunked_array([keys]), (*VERSION, _FIRST_SEEN, "_batch_seq"))
    if newest is None or not len(newest):
        return Written()
    named = idempotency_keys(newest.column("record_key"))
    stored = stored_rows(unit.target, KEY, named, curate.STORED)
    failing = _failing(unit, newest, stored, failed)
    ranked = candidates(_of_keys(versions, failing), failing, stored)
    with Spool(unit.memory) as passed:
        judge = _Judge(unit, secret, failing, passed)
        outcome = newest_passing(ranked.append_column("at", pa.array(np.arange(len(ranked)))), judge)
        curating = Curating(unit.work, stored, judge.sources, secret)
        written = write_files(unit, curating.rows(judge.passed(outcome.kept)), stored, curating.replaced)
    kept = ranked.take(outcome.kept)
    counts = {
        "judged_older": len(outcome.kept) + len(outcome.failed),
        "kept_older": curating.counts.get("inserted", 0) + curating.counts.get("updated", 0),
        "replaced_older": curating.counts.get("updated", 0),
        "behind": len(_of_keys(_new_to_curated(kept, stored), failing.filter(_is_read(unit, failing)))),
        **{name: curating.counts.get(name, 0) for name in ("cross_period", "late_corrections")},
    }
    return completed(unit, replace(written, counts=counts), judge.failed(outcome.failed))


def _failed(unit: OlderUnit, versions: pa.Table) -> pa.Array:
    """The keys of these versions whose newest one is known to be none of Curated."""
    io, keys, ours = unit.target.layout.io(), list[pa.Array](), pc.unique(versions.column("record_key"))
    for path in unit.failed:
        # All keys that failed may be more than one task can hold.
        named = whole_file(io, path).column("record_key")
        keys += named.filter(pc.is_in(named, value_set=ours)).chunks
    return pa.chunked_array(keys, pa.string()).combine_chunks()


def _versions(unit: OlderUnit) -> pa.Table:
    """The versions of the task's keys; a record_key made of a message id has one only."""
    parts, io = [], unit.target.layout.io()
    for named in unit.versions:
        rows = whole_file(io, named.path)
        rows = rows.filter(pc.starts_with(rows.column("record_key"), PREFIX))
        if unit.parts > 1:
            numbers = part_numbers(rows.column("record_key"), unit.parts)
            rows = rows.filter(pa.array(numbers == unit.part))
        parts.append(rows)
    return joined(parts)


def _failing(unit: OlderUnit, newest: pa.Table, stored: pa.Table | None, failed: pa.Array) -> pa.Table:
    """The newest versions that are not in Curated, and will not be there after this batch either."""
    if stored is not None and len(stored):
        at = pc.index_in(idempotency_keys(newest.column("record_key")), stored.column(KEY).combine_chunks())
        there = stored.column("message_id").take(at.combine_chunks())
        newest = newest.filter(pc.not_equal(newest.column("message_id"), there).fill_null(True))
    # Those that the batch does not read were judged by batches before.
    is_read = _is_read(unit, newest)
    is_failing = pc.is_in(newest.column("record_key"), value_set=failed)
    return newest.filter(pc.or_(pc.invert(is_read), is_failing))


def _is_read(unit: OlderUnit, newest: pa.Table) -> pa.ChunkedArray:
    """Whether the batch reads these rows of Standardized."""
    batch, number = unit.work.batch, newest.column("_batch_seq")
    return pc.and_(pc.greater(number, batch.source_from or 0), pc.less_equal(number, batch.source_to))


def _of_keys(rows: pa.Table, failing: pa.Table) -> pa.Table:
    """The rows of these keys."""
    return rows.filter(pc.is_in(rows.column("record_key"), value_set=failing.column("record_key").combine_chunks()))


def _new_to_curated(kept: pa.Table, stored: pa.Table | None) -> pa.Table:
    """Those versions whose key has no row in Curated."""
    if stored is None:
        return kept
    keys = idempotency_keys(kept.column("record_key"))
    return kept.filter(pc.invert(pc.is_in(keys, value_set=stored.column(KEY).combine_chunks())))


@dataclass
class _Judge:
    """Reads candidates from RAW and judges them as if they were in Standardized."""

    unit: OlderUnit
    secret: bytes | None = field(repr=False)
    failing: pa.Table
    _passed: Spool
    _failed: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sources, self.columns = judged_columns(self.unit)

    def __call__(self, tried: pa.Table) -> pa.Table:
        passes, fails = np.zeros(len(tried), bool), np.zeros(len(tried), bool)
        order, start = _by_place(tried), 0
        raw = chosen_rows(self.unit.raw, RAW_COLUMNS, _places(tried.take(pa.array(order))))
        for piece in together(raw, self.unit.memory // PARTS_OF_MEMORY):
            at = order[start : start + len(piece)]
            start += len(piece)
            if len(at):
                passes[at], fails[at] = self._judge(tried.take(pa.array(at)), piece)
        return pa.table({"passes": passes, "fails": fails})

    def passed(self, places: pa.Array) -> Iterator[pa.Table]:
        """The rows of Standardized that these candidates would be."""
        return (rows.filter(pc.is_in(rows.column("at"), value_set=places)) for rows in self._passed)

    def failed(self, places: pa.Array) -> pa.Table:
        """The messages of these candidates, with what is wrong with each."""
        rows = [rows.filter(pc.is_in(rows.column("at"), value_set=places)) for rows in self._failed]
        return pa.concat_tables(rows).drop_columns(["at"]) if rows else BAD.empty_table()

    def _judge(self, tried: pa.Table, raw: pa.Table) -> tuple[Flags, Flags]:
        """Whether each of the candidates passes, and whether it fails; `raw` is what they are in RAW."""
        work = self.unit.work
        plan = flatten_plan(work, self.secret, work.expected or sampled_of(work, raw))
        cells, positions = cells_of(raw, plan), dict(zip(plan.expected, plan.columns, strict=True))
        is_event = pc.and_(cells.column("rule").is_null(), pc.equal(cells.column("record_key"), tried["record_key"]))
        if work.schema.policies.unknown_fields == "quarantine":
            is_event = pc.and_not(is_event, paths_without_column(cells, work.paths, positions).is_valid())
        rows = self._as_standardized(cells, positions).append_column("at", tried["at"])
        failures = judged(rows.combine_chunks().to_batches()[0], self.sources, None).failures
        is_good, is_bad = pc.and_not(is_event, failures.is_valid()), pc.and_(is_event, failures.is_valid())
        self._passed.add(rows.filter(is_good))
        bad = rows.select([*BAD.names[:-1], "at"]).append_column(BAD.names[-1], failures).filter(is_bad)
        self._failed.append(bad.select([*BAD.names, "at"]).cast(BAD.append(pa.field("at", pa.int64()))))
        return flags(is_good), flags(is_bad)

    def _as_standardized(self, cells: pa.Table, positions: Mapping[str, str]) -> pa.Table:
        """The columns that are read of Standardized."""
        work = self.unit.work
        at = pc.index_in(cells.column("record_key"), self.failing.column("record_key").combine_chunks())
        seen = self.failing.column(_FIRST_SEEN).take(at.combine_chunks())
        rows = table_rows(cells, seen, work.paths, positions)
        rows = rows.append_column("topic_name", pa.repeat(pa.scalar(work.batch.topic, pa.string()), len(rows)))
        missing = [name for name in self.columns if name not in rows.column_names]
        for name in missing:
            rows = rows.append_column(name, pa.nulls(len(rows), pa.string()))
        return rows.select(self.columns)


def _by_place(tried: pa.Table) -> Positions:
    """The order in which the rows of RAW are read that candidates are in."""
    return np.lexsort((tried.column(RAW_ROW).to_numpy(), _file_codes(tried).indices.to_numpy()))


def _places(ordered: pa.Table) -> dict[str, Positions]:
    """The rows of RAW that candidates are in, file by file."""
    files, rows = _file_codes(ordered), ordered.column(RAW_ROW).to_numpy()
    codes, paths = files.indices.to_numpy(), files.dictionary.to_pylist()
    return {paths[code]: rows[codes == code] for code in np.unique(codes).tolist()}


def _file_codes(versions: pa.Table) -> pa.DictionaryArray:
    return versions.column(RAW_FILE).unify_dictionaries().combine_chunks()
