"""A schema tried on rows: those of Standardized or those that RAW would give, beside what Curated holds."""

import pickle
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import ceil

from leanops.adapters.iceberg.batches.plan import groups
from leanops.adapters.iceberg.batches.runner import Runner, Shuffled
from leanops.adapters.iceberg.operations.measure import plan_of
from leanops.adapters.iceberg.operations.trial_tasks import (
    CELLS,
    FAILED,
    LIVE,
    NOTHING,
    ROWS,
    Count,
    Judge,
    Read,
    ReadAndJudge,
    Report,
    Trying,
    Unit,
)
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.places import Place
from leanops.domain.payload.evolution import plan_columns, real_paths
from leanops.domain.schema.parse import DEFAULT_KEY_PATH, DEFAULT_PERIOD_PATHS
from leanops.domain.table.definitions import STANDARDIZED_SYSTEM_COLUMNS
from leanops.ports.engine import Trial, Tried
from leanops.transforms.flatten import ReportedPaths
from leanops.transforms.schemas.trial import Both, both_of

_DEFAULTS = (DEFAULT_KEY_PATH, *DEFAULT_PERIOD_PATHS)
_ROWS_HELD, _LIVE_ROWS_HELD = 2, 16
"""How many rows a task can hold in place of each one it may read: whole ones, and fingerprints of those of Curated."""
_NO_SCHEMA = Both((), (), keeps_key=True, by_key=False, live=None)


@dataclass(frozen=True)
class Places:
    """The tables that are read."""

    standardized: Place
    raw: Place
    curated: Place


def try_schema(runner: Runner, rules: TaskRules, places: Places, trial: Trial) -> Tried:
    """What a schema makes of the rows of a topic, and what becomes of those in Curated."""
    work = _Work(runner, rules, places, trial)
    if trial.reads_raw:
        return work.of_events()
    tried = work.of_rows(with_older=False)
    if tried.counts["leaving"] and trial.keeps_key and trial.events and trial.share >= 1:
        # A key stays of which any version passes, and only RAW has them all.
        return replace(work.of_rows(with_older=True), seen=tried.seen)
    return tried


class _Work:
    """One trial."""

    def __init__(self, runner: Runner, rules: TaskRules, places: Places, trial: Trial) -> None:
        self.runner, self.rules, self.places, self.trial = runner, rules, places, trial

    def of_rows(self, *, with_older: bool) -> Tried:
        """Rows as Standardized has them."""
        trial = self.trial
        wanted = tuple(sorted({column.path for column in trial.new.payload_columns if column.path}))
        places = (self.places.standardized, self.places.raw) if with_older else (self.places.standardized,)
        trying = self._trying(trial.paths, trial.columns, self._parts(*places), wanted=wanted)
        rows, live = self._units(ROWS, self.places.standardized), self._units(LIVE, self.places.curated)
        if with_older:
            assert trial.events is not None
            plan = plan_of(self.places.raw, trial.events, self.rules.task_memory, ReportedPaths(frozenset(), 0))
            trying = replace(trying, plan=plan, refuses=trial.new.policies.unknown_fields == "quarantine")
            first = self.runner.shuffle(Read(trying), [*rows, *self._units(CELLS, self.places.raw)], trying.parts)
            _report(first, trying.parts)
            later = _without_secret(trying)
            second = first.shuffle(Judge(later), Read(later), live, trying.parts)
        else:
            second = self.runner.shuffle(ReadAndJudge(trying), [*rows, *live], trying.parts)
        counts, report = self._counted(second, trying)
        seen = trial.paths.keys() - set(wanted) | report.seen
        return Tried(counts, tuple(report.groups.values()), trial.paths, trial.columns, seen)

    def of_events(self) -> Tried:
        """Rows as RAW would give them."""
        trial, events = self.trial, self.trial.events
        assert events is not None
        new, named = trial.new, (*trial.new.named_paths, *trial.new.keys.named.values())
        known = frozenset((*trial.paths, *named, *_DEFAULTS))
        reported = ReportedPaths(known, events.column_limits.columns)
        plan = plan_of(self.places.raw, events, self.rules.task_memory, reported)
        parts = self._parts(self.places.raw)
        reading = Trying(_NO_SCHEMA, {}, self.rules.task_memory, parts, events.share, (), plan)
        first = self.runner.shuffle(Read(reading), self._units(CELLS, self.places.raw), parts)
        report = _report(first, parts)
        kinds = real_paths(report.kinds)
        exempt = [path for path in _DEFAULTS if path in kinds or path in trial.paths]
        contract = new.policies.unknown_fields
        made = plan_columns(trial.paths, kinds, [*new.named_paths, *exempt], contract, events.column_limits)
        columns = (*STANDARDIZED_SYSTEM_COLUMNS, *made.columns.values())
        trying = self._trying(made.columns, columns, parts, by_key=trial.keeps_key)
        trying = replace(trying, plan=plan, share=events.share, refuses=bool(made.refused))
        live = self._units(LIVE, self.places.curated)
        later = _without_secret(trying)
        second = first.shuffle(Judge(later, from_raw=True), Read(later), live, parts)
        counts, judged_ = self._counted(second, trying)
        return Tried(
            counts,
            tuple(judged_.groups.values()),
            made.columns,
            columns,
            kinds.keys(),
            judged_.counts.get("refused", 0),
            report.counts,
        )

    def _trying(
        self,
        paths: Mapping[str, str],
        columns: Collection[str],
        parts: int,
        *,
        wanted: tuple[str, ...] = (),
        by_key: bool = False,
    ) -> Trying:
        trial = self.trial
        both = both_of(
            trial.topic,
            trial.new,
            trial.active,
            paths,
            columns,
            keeps_key=trial.keeps_key,
            by_key=by_key,
            live=trial.live,
        )
        return Trying(both, paths, self.rules.task_memory, parts, trial.share, wanted)

    def _parts(self, *places: Place) -> int:
        """How many tasks the rows of these tables need, of which a share is read, and those of Curated beside them."""
        read = self.trial.share * sum(file.rows for place in places for file in place.files)
        live = sum(file.rows for file in self.places.curated.files)
        return max(self.runner.cores, ceil((read / _ROWS_HELD + live / _LIVE_ROWS_HELD) / self.rules.task_rows))

    def _units(self, kind: str, place: Place) -> list[Unit]:
        return [Unit(kind, replace(place, files=part)) for part in groups(place.files, self.rules) if part]

    def _counted(self, shuffled: Shuffled, trying: Trying) -> tuple[Mapping[str, int], Report]:
        report = _report(shuffled, trying.parts)
        total = Counter[str]()
        for answer in shuffled.gather(Count(trying.both, all_read=trying.share >= 1), range(trying.parts)):
            if isinstance(answer, Exception):
                raise answer
            total.update(answer)
        return total, report


def _without_secret(trying: Trying) -> Trying:
    """What comes after flattening: the key of HMACs has done its work."""
    return replace(trying, plan=trying.plan and replace(trying.plan, key_secret=None))


def _report(shuffled: Shuffled, parts: int) -> Report:
    """The reports of all tasks of a shuffle as one; raises what one of them failed with."""
    whole = NOTHING
    for kind, what in map(pickle.loads, shuffled.part(parts)):
        if kind == FAILED:
            raise what
        whole = whole.plus(what)
    return whole
