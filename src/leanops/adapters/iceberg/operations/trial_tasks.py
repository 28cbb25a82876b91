"""The tasks of a trial: they read rows or make them of RAW, judge them, and count what becomes of those in Curated."""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leanops.adapters.iceberg.batches.runner import portable
from leanops.adapters.iceberg.operations.measure import MeasureUnit, chosen, counts_of, sampled
from leanops.adapters.iceberg.tasks.held import Pile, Spool, joined, packed, split, together, unpacked
from leanops.adapters.iceberg.tasks.places import Place, pieces
from leanops.adapters.iceberg.tasks.raw import PARTS_OF_MEMORY, cells_of
from leanops.adapters.iceberg.tasks.rows import ROWS_OF_PAYLOADS
from leanops.domain.payload.flatten import Kind
from leanops.ports.engine import union
from leanops.transforms.curate import is_newer_than
from leanops.transforms.flatten import FlattenPlan, observed_kinds
from leanops.transforms.judge import KEY, judged
from leanops.transforms.older import VERSION
from leanops.transforms.schemas.trial import Both, Groups, Outcomes, counted, live_rows, seen_paths
from leanops.transforms.schemas.trial import together as all_groups
from leanops.transforms.standardize import arrivals, judge, paths_without_column, rows_of, table_rows

_VERSION = (*VERSION, "first_seen_ts")
ROWS, CELLS, LIVE, REPORT, FAILED = "rows", "cells", "live", "report", "failed"
_OUTCOMES = "outcomes"
"""What is given to parts."""
Given = Iterator[tuple[int, bytes]]
_NO_LIVE = pa.schema([(KEY, pa.string()), ("message_id", pa.string()), ("values", pa.int64())]).empty_table()
_FLAGS = [(name, pa.bool_()) for name in ("fails", "fails_today", "lacks_cde", "is_kept")]
_NO_OUTCOMES = pa.schema([*_NO_LIVE.schema, *(pa.field(*flag) for flag in _FLAGS)]).empty_table()


@dataclass(frozen=True)
class Unit:
    """Some files of one of the tables."""

    kind: str
    place: Place


@dataclass(frozen=True)
class Trying:
    """How rows are made, read and judged."""

    both: Both
    paths: Mapping[str, str]
    """The columns of Standardized: path → name."""
    memory: int
    parts: int
    share: float
    wanted: tuple[str, ...]
    """Paths that are looked for in the rows."""
    plan: FlattenPlan | None = None
    """How RAW becomes cells, where it is read."""
    refuses: bool = False
    """Whether the contract refuses events with paths that have no column."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of a row."""
        return tuple(dict.fromkeys((*_VERSION, *self.both.read)))

    @property
    def positions(self) -> dict[str, str]:
        """The column of cells that has the texts of a path."""
        return dict(zip(self.plan.expected, self.plan.columns, strict=True)) if self.plan else {}

    @property
    def text(self) -> str:
        """What a row and its live row have in common."""
        return KEY if self.both.keeps_key else "message_id"


@dataclass(frozen=True)
class Report:
    """What tasks report to the driver beside the rows."""

    counts: Mapping[str, int]
    kinds: Mapping[str, set[Kind]]
    groups: Groups
    seen: frozenset[str] = frozenset()

    def plus(self, other: "Report") -> "Report":
        return Report(
            Counter(self.counts) + Counter(other.counts),
            union((self.kinds, other.kinds)),
            all_groups((self.groups, other.groups)),
            self.seen | other.seen,
        )


NOTHING = Report({}, {}, {})


@dataclass(frozen=True)
class Read:
    """Reads files: rows and cells meet by their record_key, live rows by what they have in common with rows."""

    trying: Trying

    def __call__(self, unit: Unit) -> Given:
        match unit.kind:
            case "rows":
                given = self._rows(unit)
            case "cells":
                given = self._cells(unit)
            case _:
                given = _live(self.trying, unit)
        return _guarded(given, self.trying.parts)

    def _rows(self, unit: Unit) -> Given:
        for rows in _rows(self.trying, unit):
            yield from _given(ROWS, rows, "record_key", self.trying.parts)

    def _cells(self, unit: Unit) -> Given:
        trying = self.trying
        assert trying.plan is not None
        report = NOTHING
        for raw in sampled(MeasureUnit(unit.place, trying.share, trying.memory)):
            cells = cells_of(raw, trying.plan)
            kinds = observed_kinds(cells.column("observed").drop_null().to_pylist())
            report = report.plus(Report(counts_of(cells), kinds, {}))
            if trying.plan.reported:
                report = replace(report, kinds=trying.plan.reported.bounded({**report.kinds}))
            events = cells.drop_columns(["observed"]).filter(cells.column("rule").is_null())
            yield from _given(CELLS, events, "record_key", trying.parts)
        yield trying.parts, pickle.dumps((REPORT, report))


@dataclass(frozen=True)
class ReadAndJudge:
    """Reads files, and judges rows where they are: no two of them have one key."""

    trying: Trying

    def __call__(self, unit: Unit) -> Given:
        trying = self.trying
        return _guarded(_live(trying, unit) if unit.kind == LIVE else self._judged(unit), trying.parts)

    def _judged(self, unit: Unit) -> Given:
        trying, report = self.trying, NOTHING
        for rows in _rows(trying, unit):
            outcomes = Outcomes(_one(rows), trying.both)
            seen = frozenset(seen_paths(rows, trying.paths, trying.wanted))
            report = report.plus(Report({}, {}, outcomes.groups(), seen))
            table = outcomes.table().append_column("is_kept", pa.repeat(False, len(rows)))
            yield from _given(_OUTCOMES, table, trying.text, trying.parts)
        yield trying.parts, pickle.dumps((REPORT, report))


@dataclass(frozen=True)
class Judge:
    """Judges the rows of a part, and older versions of those that fail."""

    trying: Trying
    from_raw: bool = False
    """Whether rows are made of the events; else they are there, and events are older versions of them."""

    def __call__(self, given: Iterable[bytes]) -> Given:
        return _guarded(self._judged(given), self.trying.parts)

    def _judged(self, given: Iterable[bytes]) -> Given:
        trying = self.trying
        with Spool(trying.memory) as rows, Spool(trying.memory) as cells:
            _put_aside(given, {ROWS: rows, CELLS: cells}, trying.memory // PARTS_OF_MEMORY)
            report, tables, failing = NOTHING, list[pa.Table](), list[pa.Table]()
            refused = Counter[str]()
            for newest in self._newest(cells, refused) if self.from_raw else rows:
                outcomes = Outcomes(_one(newest), trying.both)
                report = report.plus(Report({}, {}, outcomes.groups()))
                tables.append(outcomes.table().append_column("record_key", newest.column("record_key")))
                failing.append(newest.select(_VERSION).filter(tables[-1].column("fails")))
            is_whole = trying.both.keeps_key and trying.share >= 1
            kept = self._kept(cells, joined(failing)) if failing and is_whole else pa.array([], pa.string())
            for table in tables:
                is_kept = pc.is_in(table.column("record_key"), value_set=kept)
                judged_rows = table.drop_columns(["record_key"]).append_column("is_kept", is_kept)
                yield from _given(_OUTCOMES, judged_rows, trying.text, trying.parts)
            yield trying.parts, pickle.dumps((REPORT, replace(report, counts=refused)))

    def _newest(self, cells: Spool, refused: Counter[str]) -> Iterator[pa.Table]:
        """The newest version of each key, as a first batch would write it."""
        trying, arrived, first = self.trying, list[pa.Table](), 0
        for piece in cells:
            events, bad = arrivals(piece, trying.paths, trying.positions, first, refuses=trying.refuses)
            refused["refused"] += len(bad)
            arrived.append(events)
            first += len(piece)
        if not arrived:
            return
        winners, first = judge(joined(arrived), None).winners, 0
        for piece in cells:
            yield _aligned(rows_of(piece, winners, trying.paths, trying.positions, first), trying.columns)
            first += len(piece)

    def _kept(self, cells: Spool, failing: pa.Table) -> pa.Array:
        """The record_keys among the failing ones of which an older version passes."""
        trying, kept = self.trying, list[pa.ChunkedArray]()
        keys = failing.column("record_key").combine_chunks()
        for piece in cells:
            at = pc.index_in(piece.column("record_key"), value_set=keys)
            events, newest = piece.filter(at.is_valid()), failing.take(at.drop_null().combine_chunks())
            is_older = pa.array(is_newer_than(newest, events))
            events, newest = events.filter(is_older), newest.filter(is_older)
            if trying.refuses:
                is_event = paths_without_column(events, trying.paths, trying.positions).is_null()
                events, newest = events.filter(is_event), newest.filter(is_event)
            rows = table_rows(events, newest.column("first_seen_ts"), trying.paths, trying.positions)
            failures = judged(_one(_aligned(rows, trying.columns)), trying.both.new, None).failures
            kept.append(rows.column("record_key").filter(failures.is_null()))
        return pc.unique(pa.chunked_array([text for part in kept for text in part.chunks], pa.string()))


@dataclass(frozen=True)
class Count:
    """What becomes of the rows of a part."""

    both: Both
    all_read: bool

    def __call__(self, _part: int, given: Iterable[bytes]) -> Counter[str]:
        sides: dict[str, list[pa.Table]] = {_OUTCOMES: [], LIVE: []}
        for kind, what in map(pickle.loads, given):
            sides[kind].append(unpacked(what))
        live = joined(sides[LIVE] or [_NO_LIVE])
        outcomes = joined(sides[_OUTCOMES] or [_NO_OUTCOMES])
        return counted(outcomes, live, self.both, all_read=self.all_read)


def _put_aside(given: Iterable[bytes], sides: Mapping[str, Spool], most: int) -> None:
    """Put each kind of what a part is given into its spool: many tasks give a little each, which is joined."""
    piles = {kind: Pile(most) for kind in sides}
    for kind, what in map(pickle.loads, given):
        for whole in piles[kind].add(unpacked(what)):
            sides[kind].add(whole)
    for kind, pile in piles.items():
        for whole in pile.rest():
            sides[kind].add(whole)


def _rows(trying: Trying, unit: Unit) -> Iterator[pa.Table]:
    """Rows of Standardized, or about a share of them."""
    read = together(pieces(unit.place, trying.columns, ROWS_OF_PAYLOADS), trying.memory // PARTS_OF_MEMORY)
    for rows in read:
        some = rows.select(trying.columns)
        some = some if trying.share >= 1 else chosen(some, "record_key", trying.share)
        if len(some):
            yield some


def _live(trying: Trying, unit: Unit) -> Given:
    """Rows of Curated, as they are compared."""
    there = {field.name for field in unit.place.layout.schema.fields}
    payload = (column.name for column in trying.both.compared if column.name in there)
    columns = tuple(dict.fromkeys((KEY, "message_id", "last_updated_ts", "period_reference", *payload)))
    read = pieces(unit.place, columns, ROWS_OF_PAYLOADS)
    for rows in together(read, trying.memory // PARTS_OF_MEMORY):
        yield from _given(LIVE, live_rows(rows, trying.both), trying.text, trying.parts)


def _given(kind: str, rows: pa.Table, text: str, parts: int) -> Given:
    for part, some in split(rows, rows.column(text), parts) if len(rows) else ():
        yield part, pickle.dumps((kind, packed(some)))


def _guarded(given: Given, parts: int) -> Given:
    """What is given, or what the driver raises again."""
    try:
        yield from given
    except Exception as failure:  # noqa: BLE001 - raised again on the driver
        yield parts, pickle.dumps((FAILED, portable(failure)))


def _aligned(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """These columns, with NULL in those that the rows lack."""
    nothing = pa.nulls(len(rows), pa.string())
    return pa.table([rows.column(name) if name in rows.column_names else nothing for name in columns], list(columns))


def _one(rows: pa.Table) -> Any:
    """The rows as one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
