"""Which files a batch reads and is compared with, and how its work is cut into units."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.fold import FoldUnit, fold_units
from leanops.adapters.iceberg.tasks.older import OlderUnit, VersionsUnit
from leanops.adapters.iceberg.tasks.outputs import distinct_errors
from leanops.adapters.iceberg.tasks.places import NOWHERE, Place
from leanops.adapters.iceberg.tasks.stored import Layout, StoredFile, appended_files, stored_files
from leanops.adapters.iceberg.tasks.units import Unit
from leanops.domain.errors import CommitRefusedError, PermanentError
from leanops.ports.engine import CurateWork, Fold, StandardizeWork, TableAt, Target, Work, Written

_EPOCH = date(1970, 1, 1)
_VERSIONS_PER_ROW = 8
"""How many names of versions a task can hold in place of each row it may read."""
ANY = "any topic"
"""In place of the topic, for files that are not partitioned by it."""
ErrorFiles = Callable[[str], tuple[StoredFile, ...]]
"""The files that may have error rows of a topic."""


@dataclass(frozen=True)
class BatchPlan:
    """A batch cut into units; one with several is a large one."""

    units: tuple[Unit, ...]
    is_large: bool
    """Whether one task cannot do it alone."""
    secret: bytes | None = field(repr=False)
    """The key of HMACs, which travels with the code of tasks and is never written down with a unit."""
    many_files: bool = False
    """Whether its table should be folded."""
    older: tuple[OlderUnit, ...] = ()
    """Curated: what there may be to do after them, for keys whose newest version fails."""

    def older_units(self, parts: Sequence[Written | Exception]) -> tuple[OlderUnit, ...]:
        """What there is to do after the units have done their parts: nothing where none of the keys can be failing."""
        if not self.older or any(isinstance(part, Exception) for part in parts):
            return ()
        failed = tuple(path for part in parts if isinstance(part, Written) for path in part.failed)
        if not failed and not self.older[0].is_any:
            return ()
        return tuple(replace(unit, failed=failed) for unit in self.older)

    def whole(self, parts: Sequence[Written | Exception]) -> Written:
        """A batch from what was written for its parts; raises what failed in one of them."""
        known_errors = frozenset(file.path for file in self.units[0].errors.files)
        whole = Written(known_errors=known_errors, many_files=self.many_files)
        for part in parts:
            if isinstance(part, Exception):
                raise part
            whole = whole.plus(part)
        if len(whole.errors) < 2 or len(parts) == 1:
            return whole
        return replace(whole, errors=distinct_errors(self.units[0].errors, whole.errors))


class Tables:
    """The tables of a job, each loaded once."""

    def __init__(self, catalog: Catalog, rules: TaskRules) -> None:
        self._catalog, self._rules = catalog, rules
        self._tables: dict[str, Table] = {}
        self._errors: dict[str, ErrorFiles] = {}

    def standardize(self, work: StandardizeWork) -> BatchPlan:
        """The files of RAW that a batch reads, and those of Standardized that it is compared with."""
        raw, batch = self._table(work.raw), work.batch
        files = appended_files(raw, batch.source_from, batch.source_to)
        if work.days is not None:
            days = {None if day is None else (day - _EPOCH).days for day in work.days}
            files = [file for file in files if _partition(raw, file, "publish_time") in days]
        return self._plan(work, Layout.of(raw), files)

    def curate(self, work: CurateWork) -> BatchPlan:
        """The files of Standardized that a batch reads, and those of Curated that it is compared with."""
        table, batch = self._table(work.standardized), work.batch
        stored = stored_files(table, batch.source_snapshot, ("_batch_seq", "record_key"))
        files = [file for file in stored if _may_hold(file, batch.source_from or 0, batch.source_to)]
        if work.periods is not None:
            files = [file for file in files if _partition(table, file, "period_reference") in work.periods]
        plan = self._plan(work, Layout.of(table), files)
        older = self._older(work, Place(Layout.of(table), tuple(stored)), plan.units[0])
        first, *others = plan.units
        if older and not older[0].is_any and any(named.elsewhere for named in older[0].versions):
            # One task is enough for them, and looks into these files anyway.
            first = replace(first, elsewhere=older[0].versions)
        return replace(plan, units=(first, *others), older=tuple(older))

    def _older(self, work: CurateWork, source: Place, unit: Unit) -> list[OlderUnit]:
        """The tasks that judge older versions, where the batch may have any."""
        rows = sum(named.rows for named in work.versions or ())
        if not rows:
            return []
        parts = -(-rows // (_VERSIONS_PER_ROW * self._rules.task_rows))
        is_any = parts > 1 or any(named.elsewhere is None for named in work.versions or ())
        named = unit.work, tuple(work.versions or ()), is_any, ()
        places = self._raw(work), source, unit.target, unit.errors
        return [OlderUnit(*named, *places, unit.memory, part, parts) for part in range(parts)]

    def versions(self, work: CurateWork) -> list[VersionsUnit]:
        """The tasks that name all versions in the part of RAW that a batch looks at, where it does not know them."""
        if not work.batch.older_versions or work.versions is not None:
            return []
        raw, target = self._raw(work), Place(Layout.of(self._table(work.target.table)))
        described = replace(work, secret=None)
        return [
            VersionsUnit(described, replace(raw, files=part), target, self._rules.task_memory)
            for part in groups(raw.files, self._rules)
        ]

    def _raw(self, work: CurateWork) -> Place:
        """The part of RAW that a batch of Curated looks at for older versions."""
        table, batch = self._table(work.raw), work.batch
        end = table.metadata.current_snapshot_id if batch.raw_to is None else batch.raw_to
        files = [] if end is None else appended_files(table, batch.raw_from, end)
        return Place(Layout.of(table), tuple(files))

    def at(self, at: TableAt) -> Place:
        """All rows of a table at a snapshot."""
        if at.snapshot is None:
            return NOWHERE
        table = self._table(at.table)
        return Place(Layout.of(table, at.snapshot), tuple(stored_files(table, at.snapshot, ())))

    def fold(self, fold: Fold) -> list[FoldUnit]:
        """What is worth folding in a table."""
        target, table = fold.target, self._table(fold.target.table)
        if (str(table.metadata.table_uuid), table.metadata.current_snapshot_id) != (target.uuid, target.base):
            raise CommitRefusedError(f"{target.table} was changed by another writer; it is folded another time")
        return fold_units(Layout.of(table), fold.key, stored_files(table, target.base, ()), self._rules)

    def _plan(self, work: Work, source: Layout, files: Sequence[StoredFile]) -> BatchPlan:
        target, place = work.target, self._place(work.target, work.key)
        bad = Place(Layout.of(self._table(target.errors)), self._error_files(target.errors, work.batch.topic))
        described = replace(work, secret=None)
        units = tuple(
            Unit(described, Place(source, group), place, bad, self._rules.task_memory)
            for group in groups(files, self._rules)
        )
        many_files = bool(fold_units(place.layout, work.key, place.files, self._rules))
        return BatchPlan(units, len(units) > 1 or _is_large(files, self._rules), work.secret, many_files)

    def _error_files(self, name: str, topic: str) -> tuple[StoredFile, ...]:
        """The files with error rows of a topic; those of all topics are looked up once."""
        if name not in self._errors:
            table = self._table(name)
            self._errors[name] = error_files(table, table.metadata.current_snapshot_id)
        return self._errors[name](topic)

    def _place(self, target: Target, key: str) -> Place:
        table, base = self._table(target.table), target.base
        if str(table.metadata.table_uuid) != target.uuid:
            raise CommitRefusedError(f"{target.table} was re-created by somebody; the next cycle reads it as it is now")
        return Place(Layout.of(table), tuple(stored_files(table, base, (key,))))

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = self._catalog.load_table(name)
        return self._tables[name]


def error_files(table: Table, snapshot_id: int | None) -> ErrorFiles:
    """The files of an error table at a snapshot that may have rows of a topic."""
    stored = [(_partition(table, file, "topic_name", ANY), file) for file in stored_files(table, snapshot_id, ())]
    return lambda topic: tuple(file for partition, file in stored if partition in (topic, ANY))


def _partition(table: Table, file: StoredFile, column: str, otherwise: str | None = None) -> Any:
    """What a file is partitioned by a column with; a table may have been partitioned in another way since."""
    source = table.schema().find_field(column).field_id
    for at, field_ in enumerate(table.specs()[file.spec_id].fields):
        if field_.source_id == source:
            return file.partition[at]
    if otherwise is None:
        name = ".".join(table.name())
        raise PermanentError(f"{name} has files that are not partitioned by {column}; rewrite them, then try again")
    return otherwise


def _is_large(files: Sequence[StoredFile], rules: TaskRules) -> bool:
    """Whether even one group is more than a task should do: a single large file."""
    return sum(file.rows for file in files) > 2 * rules.task_rows or sum(f.size for f in files) > 2 * rules.task_bytes


def groups(files: Sequence[StoredFile], rules: TaskRules) -> list[tuple[StoredFile, ...]]:
    """Files in groups that one task can do; at least one group."""
    grouped: list[list[StoredFile]] = [[]]
    rows = size = 0
    for file in sorted(files, key=lambda file: file.path):
        if grouped[-1] and (rows + file.rows > rules.task_rows or size + file.size > rules.task_bytes):
            grouped.append([])
            rows = size = 0
        grouped[-1].append(file)
        rows, size = rows + file.rows, size + file.size
    return [tuple(group) for group in grouped]


def _may_hold(file: StoredFile, after: int, up_to: int) -> bool:
    lower, upper = file.bounds.get("_batch_seq", (None, None))
    return (upper is None or upper > after) and (lower is None or lower <= up_to)
