"""Tries a schema on real rows with the casts and rules of the cycle itself. Nothing is written."""

from collections.abc import Callable
from dataclasses import replace

from leanops.domain.failures import HIDDEN
from leanops.domain.schema.diff import Difference, difference
from leanops.domain.schema.lint import sealed_key_problems
from leanops.domain.schema.model import Schema
from leanops.domain.schema.plan import (
    FailureGroup,
    SchemaPlan,
    Tables,
    Unseen,
    ddl_of,
    is_comparable,
    needed,
    unseen_paths,
)
from leanops.domain.schema.plan import Source as SourceName
from leanops.domain.table.history import valid_watermark
from leanops.ports.engine import Events, TableAt, Trial, Tried
from leanops.transforms.judge import Source, sources_of
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.plan_gate import missing_values
from leanops.usecases.schemas.raw_events import events_of, raw_rows
from leanops.usecases.schemas.validate import table_problems, version_problems
from leanops.usecases.topics.registry import find_topic

Tell = Callable[[str], None]
ALL = 1_000_000
"""By default, up to this many rows are all read."""
_KEY_CHANGES = ("/keys/idempotency_key", "/keys/pii")
_NO_TABLE = TableAt("", None)


def silent(_step: str) -> None:
    """Report no progress."""


def plan_schema(
    platform: Platform, topic: str, new: Schema, *, sample: int | None = None, tell: Tell = silent
) -> SchemaPlan:
    """What `new` changes and what it does to the rows of a topic: to all of them, or to about `sample`."""
    find_topic(platform, topic)
    return _Work(platform, topic, new, tell).planned(sample)


class _Work:
    """One plan."""

    def __init__(self, platform: Platform, topic: str, new: Schema, tell: Tell) -> None:
        self.platform, self.topic, self.new, self.tell = platform, topic, new, tell
        databases = platform.rules.databases
        self.active = platform.schemas.active(topic)
        self.difference: Difference = difference(self.active, new)
        self.raw = platform.catalog.load(databases.raw_table(topic))
        self.standardized = platform.catalog.load(databases.standardized_table(topic))
        self.curated = platform.catalog.load(databases.curated_table((self.active or new).table_name))

    def planned(self, sample: int | None) -> SchemaPlan:
        trial = self._trial(sample)
        if trial is None:
            where: SourceName = "retired" if self._current() else "nothing"
            return self._completed(SchemaPlan(self.topic, self.difference, where, 0, 0, is_sample=False))
        tried = self.platform.engine().try_schema(trial)
        counts, figures = tried.counts, tried.figures
        groups = (_hidden(group, self._sealed(tried)) for group in tried.failures)
        plan = SchemaPlan(
            self.topic,
            self.difference,
            "raw" if trial.reads_raw else "standardized",
            figures.get("rows", 0) if trial.reads_raw else counts["judged"],
            is_sample=trial.is_sample,
            judged=counts["judged"],
            failing=counts["failing"],
            failing_today=counts["failing_today"],
            leaving=counts["leaving"],
            resolved=counts["resolved"],
            changed=counts["changed"],
            cde_missing=counts["cde_missing"],
            failures=tuple(sorted(groups, key=lambda group: (-group.rows, group.column, group.rule))),
            parse_errors=figures.get("parse_errors", 0) + tried.refused if trial.reads_raw else None,
            missing_keys=figures.get("missing_keys", 0) if trial.reads_raw else None,
            version_fallback=figures.get("version_fallback", 0) if trial.reads_raw else None,
            unseen=self._unseen(trial, tried) if counts["judged"] else (),
        )
        return self._completed(plan)

    def _trial(self, sample: int | None) -> Trial | None:
        """The schema on Standardized at its head, or on RAW as the schema would read it; None if there is nothing."""
        stored, count = self.standardized, self._current()
        reads_raw = stored is None or stored.head is None or not count or self.difference.needs_raw
        of = raw_rows(self.raw) if reads_raw else count
        if not of:
            return None
        share = min(1.0, sample / of) if sample else 1.0
        self.tell(
            f"{'flattening' if reads_raw else 'judging'} {int(of * share):,} rows{' of RAW' if reads_raw else ''}"
        )
        live = self._live()
        return Trial(
            topic=self.topic,
            new=self.new,
            active=self.active,
            standardized=TableAt(stored.name, None if reads_raw else stored.head) if stored else _NO_TABLE,
            paths=stored.paths if stored else {},
            columns=stored.columns.keys() if stored else (),
            events=self._events(share),
            reads_raw=reads_raw,
            share=share,
            curated=TableAt(self.curated.name, self.curated.head) if self.curated and live is not None else _NO_TABLE,
            live=live,
            keeps_key=not any(change.pointer in _KEY_CHANGES for change in self.difference.changes),
        )

    def _events(self, share: float) -> Events | None:
        if self.raw is None or self.raw.head is None:
            return None
        return events_of(self.platform, self.topic, self.raw, self.new.keys, share)

    def _current(self) -> int:
        """How many rows Standardized has."""
        mark = valid_watermark(self.standardized) if self.standardized else None
        return mark.totals.rows if mark else 0

    def _sealed(self, tried: Tried) -> set[str]:
        """Columns that hold what is PII under the active schema, whatever they are called in the new one."""
        if self.active is None:
            return set()
        columns = dict.fromkeys(tried.columns, "")
        sealed = {_place(source) for source in sources_of(self.active, tried.paths, columns) if source.column.pii}
        if self.active.keys.pii:
            key = self.active.keys.idempotency_key
            sealed.add(tried.paths.get(key, key))
        return {source.column.name for source in sources_of(self.new, tried.paths, columns) if _place(source) in sealed}

    def _live(self) -> dict[str, bool] | None:
        """Columns of Curated, and whether their values can be compared; None where it holds nothing."""
        if self.active is None or self.curated is None or self.curated.head is None:
            return None
        new = {column.name for column in self.new.payload_columns}
        return {
            name: name in new and is_comparable(self.new, name, self.curated.columns) for name in self.curated.columns
        }

    def _unseen(self, trial: Trial, tried: Tried) -> tuple[Unseen, ...]:
        """Paths the schema names and no event has; key, version and period are included if RAW is read."""
        figures = tried.figures
        events = figures.get("rows", 0) - figures.get("parse_errors", 0) if trial.reads_raw else tried.counts["judged"]
        return unseen_paths(self.new, tried.seen, events, with_keys=trial.reads_raw)

    def _completed(self, plan: SchemaPlan) -> SchemaPlan:
        """The plan with what would be done to the tables, and the problems a deployment would report."""
        tables = self._tables()
        changes = bool(plan.changed or plan.resolved) or (plan.is_sample and self.difference.changes_rows)
        needs = needed(self.new, self.difference, tables, old_rows_change=changes)
        problems = [
            *table_problems(self.platform.schemas, self.topic, self.active, self.new),
            *version_problems(self.active, self.new),
            *sealed_key_problems(self.new),
            *missing_values(self.new, plan),
        ]
        return replace(plan, ddl=ddl_of(self.new, self.difference, tables), needs=needs, problems=tuple(problems))

    def _tables(self) -> Tables:
        databases = self.platform.rules.databases
        return Tables(
            databases.standardized_table(self.topic),
            self.standardized.paths if self.standardized and self.standardized.head else None,
            databases.curated_table(self.new.table_name),
            self.curated.columns if self.curated and self.curated.name.endswith(f".{self.new.table_name}") else None,
        )


def _hidden(group: FailureGroup, sealed: set[str]) -> FailureGroup:
    """The group without the values that the active schema seals."""
    if group.column not in sealed:
        return group
    examples = (replace(example, value=HIDDEN if example.value else example.value) for example in group.examples)
    return replace(group, examples=tuple(examples))


def _place(source: Source) -> str | None:
    """Where a column is read: the Standardized column, or the path that has none."""
    return source.standardized_name or source.column.path
