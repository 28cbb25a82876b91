"""What the events of RAW hold, path by path, as tasks that each read some files."""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from leanops.adapters.iceberg.batches.plan import groups
from leanops.adapters.iceberg.batches.runner import Runner, portable
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.held import part_numbers, together
from leanops.adapters.iceberg.tasks.places import Place
from leanops.adapters.iceberg.tasks.raw import PARTS_OF_MEMORY, cells_of, raw_pieces, sampled_kinds
from leanops.domain.payload.flatten import NULL, Kind
from leanops.domain.schema.infer import Seen
from leanops.ports.engine import Events, Measured, union
from leanops.transforms.flatten import FlattenPlan, ReportedPaths, observed_kinds
from leanops.transforms.schemas.figures import Figures, figures

_SHARES = 1_000_000
_MOST_PATHS = 10_000
"""How many paths are kept beside those of the first events: the first ones in path order."""


@dataclass(frozen=True)
class MeasureUnit:
    """Some files of RAW, about a share of which is read."""

    place: Place
    share: float
    memory: int


@dataclass(frozen=True)
class _Part:
    """What a task reports of the events of some files, beside the figures of their paths."""

    counts: Mapping[str, int]
    kinds: Mapping[str, set[Kind]]

    def plus(self, other: "_Part") -> "_Part":
        return _Part(Counter(self.counts) + Counter(other.counts), union((self.kinds, other.kinds)))


def measure(runner: Runner, rules: TaskRules, raw: Place, events: Events) -> Measured:
    """What events hold: all of them, or about a share."""
    plan = plan_of(raw, events, rules.task_memory)
    # One more is reported than is kept, which shows whether there are more.
    reported = ReportedPaths(frozenset(plan.expected), _MOST_PATHS + 1)
    units = [
        MeasureUnit(replace(raw, files=part), events.share, rules.task_memory) for part in groups(raw.files, rules)
    ]
    parts = runner.cores
    shuffled = runner.shuffle(_Spread(replace(plan, reported=reported), reported, parts), units, parts)
    report = reduce(_Part.plus, map(_read, shuffled.part(parts)))
    kept = replace(reported, most=_MOST_PATHS).bounded({**report.kinds})
    seen = list[Seen]()
    for answer in shuffled.gather(_gathered, range(parts)):
        if isinstance(answer, Exception):
            raise answer
        seen += (replace(one, kinds=frozenset(kept[one.path] - {NULL})) for one in answer if one.path in kept)
    kinds = {**{path: set[Kind]() for path in plan.expected}, **kept}
    seen.sort(key=lambda seen_path: seen_path.path.encode())
    return Measured(report.counts, kinds, seen, len(kept) < len(report.kinds))


def plan_of(raw: Place, events: Events, memory: int, reported: ReportedPaths | None = None) -> FlattenPlan:
    """How the events become cells, after a look at some of them."""
    first = next(sampled(MeasureUnit(replace(raw, files=raw.files[:1]), events.share, memory)), None)
    expected = {} if first is None else sampled_kinds(first, events.limits, events.column_limits.columns)
    keys = events.keys
    return FlattenPlan(
        expected=expected,
        limits=events.limits,
        key_path=keys.idempotency_key,
        period_paths=keys.period_paths,
        version_path=keys.version,
        version_format=keys.version_format,
        key_secret=events.secret() if keys.pii and events.secret else None,
        reported=reported,
    )


def sampled(unit: MeasureUnit) -> Iterator[pa.Table]:
    """About a share of the rows of RAW files, the same ones every time; no piece is empty."""
    for rows in raw_pieces(unit.place, unit.memory):
        some = rows if unit.share >= 1 else chosen(rows, "message_id", unit.share)
        if len(some):
            yield some


def chosen(rows: pa.Table, column: str, share: float) -> pa.Table:
    """About this share of the rows, by the hash of a column."""
    return rows.filter(pa.array(part_numbers(rows.column(column), _SHARES) < int(share * _SHARES)))


def counts_of(cells: pa.Table) -> Counter[str]:
    """What there is to count of RAW rows, before anything is made of them."""
    is_event = cells.column("rule").is_null()
    events = cells.select(["idempotency_key", "version_fallback"]).filter(is_event)
    return Counter(
        rows=len(cells),
        parse_errors=len(cells) - len(events),
        missing_keys=events.column("idempotency_key").null_count,
        version_fallback=int(pc.sum(events.column("version_fallback")).as_py() or 0),
    )


@dataclass(frozen=True)
class _Spread:
    """Reads files and gives the figures of each path to a part, and its report to the one beyond them.

    It has the key of HMACs in the plan, which so travels with the code.
    """

    plan: FlattenPlan
    reported: ReportedPaths
    parts: int

    def __call__(self, unit: MeasureUnit) -> Iterator[tuple[int, bytes]]:
        try:
            yield from self._given(unit)
        except Exception as failure:  # noqa: BLE001 - raised again on the driver
            yield self.parts, pickle.dumps(portable(failure))

    def _given(self, unit: MeasureUnit) -> Iterator[tuple[int, bytes]]:
        reading, found = _Reading(self.plan, self.reported), dict[int, Figures]()
        for cells in together(reading.cells(unit), unit.memory // PARTS_OF_MEMORY):
            for number, some in figures(*(column.combine_chunks() for column in cells.columns)).items():
                found[number] = found[number].plus(some) if number in found else some
        report = {path: found[number] for path, number in reading.numbers.items() if path in reading.report.kinds}
        parts = part_numbers(pa.chunked_array([list(report)], pa.string()), self.parts).tolist()
        for part in set(parts):
            given = {path: one for (path, one), its in zip(report.items(), parts, strict=True) if its == part}
            yield part, pickle.dumps(given)
        yield self.parts, pickle.dumps(reading.report)


class _Reading:
    """The cells of a unit one below the other, each with the number of its path, and what there is to tell of them."""

    def __init__(self, plan: FlattenPlan, reported: ReportedPaths) -> None:
        self._plan, self._reported = plan, reported
        self.numbers: dict[str, int] = {}
        self.report = _Part({}, {})

    def cells(self, unit: MeasureUnit) -> Iterator[pa.Table]:
        for raw in sampled(unit):
            cells = cells_of(raw, self._plan)
            kinds = observed_kinds(cells.column("observed").drop_null().to_pylist())
            report = self.report.plus(_Part(counts_of(cells), kinds))
            self.report = replace(report, kinds=self._reported.bounded({**report.kinds}))
            events = cells.filter(cells.column("rule").is_null())
            for paths, texts in self._columns(events):
                yield self._numbered(paths, texts)

    def _columns(self, events: pa.Table) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Paths and texts of some cells each."""
        for path, column in zip(self._plan.expected, self._plan.columns, strict=True):
            texts = events.column(column).drop_null().combine_chunks()
            if len(texts):
                yield pa.repeat(path, len(texts)), texts
        others = events.column("extra").drop_null().combine_chunks()
        if len(others):
            first, last = others.offsets[0].as_py(), others.offsets[-1].as_py()
            yield others.keys[first:last], others.items[first:last]

    def _numbered(self, paths: pa.Array, texts: pa.Array) -> pa.Table:
        """The cells of paths that are reported; no other can become one of them later."""
        encoded = paths.dictionary_encode()
        names = [path if path in self.report.kinds else None for path in encoded.dictionary.to_pylist()]
        numbers = [None if path is None else self.numbers.setdefault(path, len(self.numbers)) for path in names]
        cells = pa.table({"path": pa.array(numbers, pa.int64()).take(encoded.indices), "text": texts})
        return cells.filter(cells.column("path").is_valid())


def _read(packed: bytes) -> _Part:
    """The report of a task; raises what it failed with."""
    report: _Part | Exception = pickle.loads(packed)
    if isinstance(report, Exception):
        raise report
    return report


def _gathered(_part: int, given: Iterable[bytes]) -> list[Seen]:
    """What is known of the paths of a part; of their kinds the driver knows."""
    found = dict[str, Figures]()
    for some in map(pickle.loads, given):
        for path, one in some.items():
            found[path] = found[path].plus(one) if path in found else one
    return [one.seen(path, set()) for path, one in found.items()]
