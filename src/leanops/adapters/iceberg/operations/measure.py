"""What the events of RAW hold, path by path, as tasks that each read some files."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from leanops.adapters.iceberg.batches.plan import groups
from leanops.adapters.iceberg.batches.runner import Runner
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.held import part_numbers
from leanops.adapters.iceberg.tasks.places import Place
from leanops.adapters.iceberg.tasks.raw import cells_of, raw_pieces, sampled_kinds
from leanops.domain.payload.flatten import Kind
from leanops.ports.engine import Events, Measured, union
from leanops.transforms.flatten import FlattenPlan, Telling, observed_kinds
from leanops.transforms.schemas.figures import Figures, figures

_SHARES = 1_000_000


@dataclass(frozen=True)
class MeasureUnit:
    """Some files of RAW, about a share of which is read."""

    place: Place
    share: float
    memory: int


@dataclass(frozen=True)
class _Part:
    """What the events of some files hold."""

    counts: Mapping[str, int]
    kinds: Mapping[str, set[Kind]]
    paths: Mapping[str, Figures]

    def plus(self, other: "_Part") -> "_Part":
        paths = {path: self.paths.get(path, Figures()) for path in {**self.paths, **other.paths}}
        return _Part(
            Counter(self.counts) + Counter(other.counts),
            union((self.kinds, other.kinds)),
            {path: found.plus(other.paths.get(path, Figures())) for path, found in paths.items()},
        )


def measure(runner: Runner, rules: TaskRules, raw: Place, events: Events) -> Measured:
    """What events hold: all of them, or about a share."""
    plan = plan_of(raw, events, rules.task_memory)
    units = [
        MeasureUnit(replace(raw, files=part), events.share, rules.task_memory) for part in groups(raw.files, rules)
    ]
    parts = []
    for answer in runner.run(_Measure(plan), units):
        if isinstance(answer, Exception):
            raise answer
        parts.append(answer)
    whole = reduce(_Part.plus, parts)
    kinds = {**{path: set[Kind]() for path in plan.expected}, **whole.kinds}
    seen = [found.seen(path, kinds[path]) for path, found in whole.paths.items() if found.events]
    return Measured(whole.counts, kinds, sorted(seen, key=lambda one: one.path.encode()))


def plan_of(raw: Place, events: Events, memory: int, telling: Telling | None = None) -> FlattenPlan:
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
        telling=telling,
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
class _Measure:
    """The function of the tasks, with the key of HMACs in the plan: it travels with the code."""

    plan: FlattenPlan

    def __call__(self, unit: MeasureUnit) -> _Part:
        whole = _Part({}, {}, {})
        for raw in sampled(unit):
            cells = cells_of(raw, self.plan)
            kinds = observed_kinds(cells.column("observed").drop_null().to_pylist())
            events = cells.filter(cells.column("rule").is_null())
            whole = whole.plus(_Part(counts_of(cells), kinds, dict(_measured(events, self.plan))))
        return whole


def _measured(events: pa.Table, plan: FlattenPlan) -> Iterator[tuple[str, Figures]]:
    for path, column in zip(plan.expected, plan.columns, strict=True):
        yield path, figures(events.column(column).combine_chunks())
    others: dict[str, list[str]] = {}
    for row in events.column("extra").drop_null().to_pylist():
        for path, text in row:
            others.setdefault(path, []).append(text)
    for path, texts in others.items():
        if path not in plan.expected:
            yield path, figures(pa.array(texts, pa.string()))
