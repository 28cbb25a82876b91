"""The Engine port: the driver plans files and commits them, tasks do the work on the rows."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from leanops.adapters.iceberg.batches.plan import BatchPlan, Tables, error_files
from leanops.adapters.iceberg.batches.row_delta import commit_on_any_head, commit_row_delta
from leanops.adapters.iceberg.batches.runner import Runner, guarded
from leanops.adapters.iceberg.batches.shuffle import standardize_large
from leanops.adapters.iceberg.operations.compare import Places, compare
from leanops.adapters.iceberg.operations.errors import change_errors, put_errors
from leanops.adapters.iceberg.operations.measure import measure
from leanops.adapters.iceberg.operations.retired import KeepUnit, keep_unit, keep_units, retired
from leanops.adapters.iceberg.operations.trial import Places as TrialPlaces
from leanops.adapters.iceberg.operations.trial import try_schema
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.fold import FoldUnit, fold_unit
from leanops.adapters.iceberg.tasks.older import older_unit, versions_unit
from leanops.adapters.iceberg.tasks.outputs import notes_of
from leanops.adapters.iceberg.tasks.places import NOWHERE
from leanops.adapters.iceberg.tasks.stored import Layout
from leanops.adapters.iceberg.tasks.units import curate_unit, standardize_unit
from leanops.adapters.iceberg.tasks.written import remove_files
from leanops.domain.errors import CommitUnknownError
from leanops.domain.failures import ForgetKeys, Hide
from leanops.domain.table.batch import Batch
from leanops.domain.table.comparison import Comparison
from leanops.ports.engine import (
    Chosen,
    CurateWork,
    Curations,
    Events,
    Fold,
    Measured,
    StandardizeWork,
    TableAt,
    Target,
    Trial,
    Tried,
    Versions,
    Written,
)

TOPICS = "leanops.topics"
"""The topics whose error rows a commit added."""
DEFAULT_RULES = TaskRules()
Task = Callable[[Any, bytes | None], Any]


@dataclass(frozen=True)
class _Run:
    """A task with the key of HMACs, which so travels with the code and is never written down with a unit."""

    task: Task
    secret: bytes | None = field(repr=False)

    def __call__(self, unit: Any) -> Any:
        return self.task(unit, self.secret)


class TaskEngine:
    """The Engine port on any PyIceberg catalog, its tasks run by a runner."""

    def __init__(self, catalog: Catalog, runner: Runner, rules: TaskRules = DEFAULT_RULES) -> None:
        self._catalog, self._runner, self._rules = catalog, runner, rules

    def standardize(self, works: Sequence[StandardizeWork]) -> list[Written | Exception]:
        tables = Tables(self._catalog, self._rules)
        plans = [guarded(tables.standardize, work) for work in works]
        small = [plan for plan in plans if not isinstance(plan, Exception) and not plan.is_large]
        done = dict(zip(map(id, small), self._run(standardize_unit, small), strict=True))
        return [plan if isinstance(plan, Exception) else done.get(id(plan)) or self._large(plan) for plan in plans]

    def _large(self, plan: BatchPlan) -> Written | Exception:
        return guarded(lambda large: standardize_large(self._runner, large, self._whole), plan)

    def curate(self, works: Sequence[CurateWork]) -> list[Written | Exception]:
        tables = Tables(self._catalog, self._rules)
        all_versions = self._versions(tables, works)
        try:
            plans = [
                versions
                if isinstance(versions, Exception)
                else guarded(tables.curate, replace(work, versions=versions or work.versions))
                for work, versions in zip(works, all_versions, strict=True)
            ]
            answers = iter(self._curate([plan for plan in plans if not isinstance(plan, Exception)]))
            return [plan if isinstance(plan, Exception) else next(answers) for plan in plans]
        finally:
            for work, versions in zip(works, all_versions, strict=True):
                if not isinstance(versions, Exception):
                    self.discard(work.target, Written(superseded=versions))

    def _curate(self, plans: Sequence[BatchPlan]) -> list[Written | Exception]:
        """First the newest versions of all batches, then older ones where it takes them."""
        newest = self._parts(curate_unit, plans, [plan.units for plan in plans])
        try:
            units = [plan.older_units(parts) for plan, parts in zip(plans, newest, strict=True)]
            older = self._parts(older_unit, plans, units)
            return [
                self._whole(plan, [*parts, *others]) for plan, parts, others in zip(plans, newest, older, strict=True)
            ]
        finally:
            for plan, parts in zip(plans, newest, strict=True):
                failed = tuple(path for part in parts if isinstance(part, Written) for path in part.failed)
                self.discard(plan.units[0].work.target, Written(failed=failed))

    def _versions(self, tables: Tables, works: Sequence[CurateWork]) -> list[tuple[Versions, ...] | Exception]:
        """For each batch the versions in RAW that it has to look at, where it does not know them."""
        plans = [guarded(tables.versions, work) for work in works]
        units = [unit for plan in plans if not isinstance(plan, Exception) for unit in plan]
        answers = iter(self._runner.run(_Run(versions_unit, _secret(works)), units)) if units else iter(())
        return [
            plan if isinstance(plan, Exception) else self._together(work, [next(answers) for _ in plan])
            for work, plan in zip(works, plans, strict=True)
        ]

    def _together(
        self, work: CurateWork, parts: Sequence[tuple[Versions, ...] | Exception]
    ) -> tuple[Versions, ...] | Exception:
        """The versions of all parts; where one failed, those of the others are not needed."""
        versions = tuple(named for part in parts if not isinstance(part, Exception) for named in part)
        failed = next((part for part in parts if isinstance(part, Exception)), None)
        if failed:
            self.discard(work.target, Written(superseded=versions))
        return failed or versions

    def _run(self, task: Task, plans: Sequence[BatchPlan]) -> list[Written | Exception]:
        """All units in one job; the parts of a batch are put together again."""
        parts = self._parts(task, plans, [plan.units for plan in plans])
        return [self._whole(plan, of_plan) for plan, of_plan in zip(plans, parts, strict=True)]

    def _parts(
        self, task: Task, plans: Sequence[BatchPlan], units: Sequence[Sequence[Any]]
    ) -> list[list[Written | Exception]]:
        """What came of the units of each plan, all of them in one job."""
        together = [unit for of_plan in units for unit in of_plan]
        answers = iter(self._runner.run(_Run(task, _secret(plans)), together)) if together else iter(())
        return [[next(answers) for _ in of_plan] for of_plan in units]

    def _whole(self, plan: BatchPlan, parts: Sequence[Written | Exception]) -> Written | Exception:
        """A batch from the answers for its units; what failed in one of them fails the batch, and no file is left."""
        whole = guarded(plan.whole, parts)
        if isinstance(whole, Exception):
            for part in parts:
                if isinstance(part, Written):
                    self.discard(plan.units[0].work.target, part)
        return whole

    def add_errors(self, table: str, written: Mapping[str, Written]) -> list[str]:
        ours, late = dict(written), list[str]()
        while files := [file for result in ours.values() for file in result.errors]:
            try:
                summary = {TOPICS: ",".join(ours)}
                commit_on_any_head(self._catalog, table, files, (), summary, lambda now: _check_errors(now, ours))
                break
            except _LateError as overtaken:
                late += overtaken.topics
                refused = [file for topic in overtaken.topics for file in ours.pop(topic).errors]
                self._remove(table, refused)
            except CommitUnknownError:
                raise
            except Exception:
                self._remove(table, files)
                raise
        return late

    def commit(self, target: Target, written: Written, summary: Mapping[str, str]) -> None:
        self._commit(target, written, summary)

    def _commit(
        self, target: Target, written: Written, summary: Mapping[str, str], removed: Collection[str] = ()
    ) -> None:
        try:
            commit_row_delta(
                self._catalog,
                target.table,
                uuid=target.uuid,
                base=target.base,
                data_files=written.files,
                delete_files=written.deletes,
                removed=removed,
                summary=summary,
            )
        except CommitUnknownError:
            raise
        except Exception:
            # Another worker may have committed the same batch: what was noted of it is as good for that one.
            self.discard(target, replace(written, errors=(), superseded=()))
            raise

    def fold(self, folds: Sequence[Fold]) -> list[Exception | None]:
        tables = Tables(self._catalog, self._rules)
        plans = [guarded(tables.fold, fold) for fold in folds]
        units = [unit for plan in plans if not isinstance(plan, Exception) for unit in plan]
        answers = iter(self._runner.run(fold_unit, units)) if units else iter(())
        return [
            plan if isinstance(plan, Exception) else self._folded(fold, plan, [next(answers) for _ in plan])
            for fold, plan in zip(folds, plans, strict=True)
        ]

    def _folded(self, fold: Fold, units: Sequence[FoldUnit], parts: Sequence[Written | Exception]) -> Exception | None:
        """Commit what was folded of a table; what failed in one of its partitions is tried again another time."""
        done = [(unit, part) for unit, part in zip(units, parts, strict=True) if isinstance(part, Written)]
        failed = next((part for part in parts if isinstance(part, Exception)), None)
        if not done:
            return failed
        removed = {path for unit, _ in done for path in unit.removed}
        written = reduce(Written.plus, (part for _, part in done))
        try:
            self._commit(fold.target, written, fold.summary, removed)
        except Exception as failure:  # noqa: BLE001 - a table that is not folded is as good as before
            return failure
        return failed

    def compare(self, work: Curations) -> Comparison:
        at = Tables(self._catalog, self._rules).at
        places = Places(*map(at, (work.new, work.live, work.standardized, work.raw, work.errors, work.parse_errors)))
        return compare(self._runner, self._rules, places, topic=work.topic, same_keys=work.same_keys)

    def retired(self, stored: TableAt, raw: TableAt) -> Chosen:
        tables = Tables(self._catalog, self._rules)
        place = tables.at(stored)
        matched = retired(self._runner, self._rules, place, tables.at(raw))
        return Chosen(len(matched.rows), stored, matched.chosen(place.files))

    def keep(self, chosen: Chosen, batch: Batch, target: Target, names: Mapping[str, str]) -> Written:
        source = Tables(self._catalog, self._rules).at(chosen.of)
        layout = Layout.of(self._catalog.load_table(target.table))
        unit = KeepUnit(source, chosen.places, layout, batch, names, self._rules.task_memory)
        parts = self._runner.run(keep_unit, keep_units(unit, self._rules))
        written = reduce(Written.plus, (part for part in parts if isinstance(part, Written)), Written())
        for part in parts:
            if isinstance(part, Exception):
                self.discard(target, written)
                raise part
        return written

    def measure(self, events: Events) -> Measured:
        raw = Tables(self._catalog, self._rules).at(events.raw)
        return measure(self._runner, self._rules, raw, events)

    def try_schema(self, trial: Trial) -> Tried:
        at, raw = Tables(self._catalog, self._rules).at, trial.events.raw if trial.events else None
        places = TrialPlaces(at(trial.standardized), at(raw) if raw else NOWHERE, at(trial.curated))
        return try_schema(self._runner, self._rules, places, trial)

    def put_errors(self, source: TableAt, table: str, topic: str) -> None:
        rows = Tables(self._catalog, self._rules).at(source)
        put_errors(self._catalog, self._runner, self._rules, rows, table, topic)

    def change_errors(self, table: str, topic: str, change: Hide | ForgetKeys) -> None:
        change_errors(self._catalog, self._runner, self._rules, table, topic, change)

    def discard(self, target: Target, written: Written) -> None:
        ours = (*written.files, *written.deletes, *notes_of(written))
        for table, files in ((target.table, ours), (target.errors, written.errors)):
            self._remove(table, files)

    def _remove(self, table: str, files: Collection[Any]) -> None:
        """Remove files that no commit names; a table that cannot be loaded leaves them to maintenance."""
        with suppress(Exception):
            remove_files(self._catalog.load_table(table).io, files)


def _secret(works: Iterable[BatchPlan | CurateWork]) -> bytes | None:
    """The key of HMACs: one platform has one."""
    secrets: set[bytes | None] = {work.secret for work in works if work.secret}
    (secret,) = secrets or {None}
    return secret


class _LateError(Exception):
    """Somebody has added error rows of these topics since they were looked for."""

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(*topics)
        self.topics = topics


def _check_errors(table: Table, written: Mapping[str, Written]) -> None:
    """Raise where an error table has files with rows of these topics that nobody has looked into."""
    files_of = error_files(table, table.metadata.current_snapshot_id)
    late = [topic for topic, result in written.items() if {file.path for file in files_of(topic)} - result.known_errors]
    if late:
        raise _LateError(late)
