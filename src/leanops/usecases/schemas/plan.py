"""Tries a schema on real rows with the casts and rules of the cycle itself. Nothing is written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from leanops.domain.errors import UsageError
from leanops.domain.failures import HIDDEN
from leanops.domain.payload.evolution import real_paths
from leanops.domain.schema.diff import Difference, difference
from leanops.domain.schema.lint import sealed_key_problems
from leanops.domain.schema.model import Schema
from leanops.domain.schema.plan import (
    Example,
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
from leanops.domain.table.definitions import STANDARDIZED_SYSTEM_COLUMNS
from leanops.domain.table.history import valid_watermark
from leanops.ports.tables import Lake
from leanops.transforms.frames import judge_plan
from leanops.transforms.frames.curate import judged
from leanops.transforms.judge import Source, sources_of
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.behind import kept_keys
from leanops.usecases.schemas.plan_gate import missing_values
from leanops.usecases.schemas.raw_sample import RawEvents, raw_rows, read_events, standardized
from leanops.usecases.schemas.validate import table_problems, version_problems
from leanops.usecases.topics.registry import find_topic

Tell = Callable[[str], None]
ALL = 1_000_000
"""By default, up to this many rows are all read."""


def silent(_step: str) -> None:
    """Report no progress."""


def plan_schema(
    platform: Platform, lake: Lake, topic: str, new: Schema, *, sample: int | None = None, tell: Tell = silent
) -> SchemaPlan:
    """What `new` changes and what it does to the rows of a topic: to all of them, or to about `sample`."""
    find_topic(platform, topic)
    work = _Work(platform, lake, topic, new, tell)
    try:
        return work.planned(sample)
    finally:
        work.free()


def failing_rows(platform: Platform, lake: Lake, topic: str, new: Schema) -> DataFrame:
    """The rows that fail under `new`: message_id, record_key and failures; what a re-curate would quarantine."""
    rows = _Work(platform, lake, topic, new).rows(None)
    if rows is None:
        raise UsageError(f"topic {topic!r} has no events yet; publish some, then try again")
    verdicts = judged(rows.frame, sources_of(new, rows.paths, rows.columns), None)
    return verdicts.where("failures IS NOT NULL").select("message_id", "record_key", "failures")


@dataclass(frozen=True)
class _Rows:
    """Rows as Standardized has them, or would have them."""

    frame: DataFrame
    paths: Mapping[str, str]
    columns: Mapping[str, str]
    count: int
    is_sample: bool
    events: RawEvents | None = None
    refused: int = 0


class _Work:
    """One plan; each step names what the next one needs."""

    def __init__(self, platform: Platform, lake: Lake, topic: str, new: Schema, tell: Tell = silent) -> None:
        self.platform, self.lake, self.topic, self.new, self.tell = platform, lake, topic, new, tell
        databases = platform.rules.databases
        self.active = platform.schemas.active(topic)
        self.difference: Difference = difference(self.active, new)
        self.raw = platform.catalog.load(databases.raw_table(topic))
        self.standardized = platform.catalog.load(databases.standardized_table(topic))
        self.curated = platform.catalog.load(databases.curated_table((self.active or new).table_name))
        self.held: list[Callable[[], Any]] = []

    def free(self) -> None:
        """Give back what is held in memory and on disk."""
        for release in self.held:
            release()

    def planned(self, sample: int | None) -> SchemaPlan:
        rows = self.rows(sample)
        if rows is None:
            where: SourceName = "retired" if self._current() else "nothing"
            return self._completed(SchemaPlan(self.topic, self.difference, where, 0, 0, is_sample=False))
        self.tell(f"judging {rows.count:,} rows")
        both = self._both(rows)
        live = self._live() if self.active else None
        self.lake.fit(rows.count)
        outcomes = judge_plan.outcomes(rows.frame, both, live).persist(StorageLevel.MEMORY_AND_DISK)
        self.held.append(outcomes.unpersist)
        stored = self._stored(both, live)
        counts: Any = judge_plan.totals(outcomes, stored).first()
        by_key = stored is not None and both.keeps_key
        leaving = self._leaving(rows, both, outcomes) if by_key else counts["leaving"]
        found = judge_plan.failure_groups(outcomes).collect() if counts["failing"] else []
        figures = rows.events.counts if rows.events else {}
        plan = SchemaPlan(
            self.topic,
            self.difference,
            "raw" if rows.events else "standardized",
            figures.get("rows", counts["judged"]),
            is_sample=rows.is_sample,
            **{**counts.asDict(), "leaving": leaving},
            failures=tuple(
                sorted(
                    (_group(group, self._hidden(rows)) for group in found),
                    key=lambda group: (-group.rows, group.column, group.rule),
                )
            ),
            parse_errors=figures["parse_errors"] + rows.refused if figures else None,
            missing_keys=figures.get("missing_keys"),
            version_fallback=figures.get("version_fallback"),
            unseen=self._unseen(rows, counts["judged"]) if counts["judged"] else (),
        )
        return self._completed(plan)

    def _hidden(self, rows: _Rows) -> set[str]:
        """Columns that hold what is PII under the active schema, whatever they are called in the new one."""
        if self.active is None:
            return set()
        sealed = {_place(one) for one in sources_of(self.active, rows.paths, rows.columns) if one.column.pii}
        if self.active.keys.pii:
            key = self.active.keys.idempotency_key
            sealed.add(rows.paths.get(key, key))
        return {one.column.name for one in sources_of(self.new, rows.paths, rows.columns) if _place(one) in sealed}

    def rows(self, sample: int | None) -> _Rows | None:
        """Standardized at its head, or RAW as the schema would read it; None if there is nothing to read."""
        count = self._current()
        if self.standardized is None or self.standardized.head is None or not count or self.difference.needs_raw:
            return self._from_raw(sample)
        share = min(1.0, sample / count) if sample else 1.0
        frame = judge_plan.sampled(self.lake.at(self.standardized.name, self.standardized.head), "record_key", share)
        columns = self.standardized.columns
        return _Rows(frame, self.standardized.paths, columns, int(count * share), is_sample=share < 1)

    def _current(self) -> int:
        """How many rows Standardized has."""
        mark = valid_watermark(self.standardized) if self.standardized else None
        return mark.totals.rows if mark else 0

    def _from_raw(self, sample: int | None) -> _Rows | None:
        count = raw_rows(self.raw) if self.raw else 0
        if self.raw is None or not count:
            return None
        share = min(1.0, sample / count) if sample else 1.0
        self.tell(f"flattening {int(count * share):,} rows of RAW")
        events = read_events(self.platform, self.lake, self.topic, self.raw, self.new.keys, share)
        self.held.append(events.free)
        known = self.standardized.paths if self.standardized else {}
        made = standardized(self.platform, self.topic, events, self.new, known)
        columns = dict.fromkeys([*STANDARDIZED_SYSTEM_COLUMNS, *made.paths.values()], "string")
        return _Rows(made.rows, made.paths, columns, events.counts["rows"], share < 1, events, made.refused)

    def _both(self, rows: _Rows) -> judge_plan.Both:
        new = sources_of(self.new, rows.paths, rows.columns)
        nowhere = [source.column.name for source in new if not _is_somewhere(source)]
        if nowhere:
            raise UsageError(
                f"{self.topic}: the schema names {', '.join(nowhere)} without a path, and Standardized has no such "
                "column; give it a path"
            )
        active = sources_of(self.active, rows.paths, rows.columns) if self.active else []
        keeps_key = not any(change.pointer in _KEY_CHANGES for change in self.difference.changes)
        readable = [source for source in active if _is_somewhere(source)]
        return judge_plan.Both(new, readable, keeps_key, by_key=keeps_key and rows.events is not None)

    def _live(self) -> dict[str, bool] | None:
        """Payload columns of Curated, and whether their values can be compared; None where it holds nothing."""
        if self.curated is None or self.curated.head is None:
            return None
        new = {column.name for column in self.new.payload_columns}
        return {
            name: name in new and is_comparable(self.new, name, self.curated.columns) for name in self.curated.columns
        }

    def _stored(self, both: judge_plan.Both, live: Mapping[str, bool] | None) -> DataFrame | None:
        if live is None or self.curated is None or self.curated.head is None:
            return None
        return judge_plan.live_rows(self.lake.at(self.curated.name, self.curated.head), both, live)

    def _leaving(self, rows: _Rows, both: judge_plan.Both, outcomes: DataFrame) -> int:
        """Keys that leave Curated: no version of them passes, or no row is made for them.

        In a sample those count, too, of which an older version may pass: that takes all of RAW.
        """
        assert self.curated is not None
        curated = self.lake.at(self.curated.name, self.curated.head).select(judge_plan.KEY)
        unread = (
            0 if rows.events is None or rows.is_sample else curated.join(outcomes, judge_plan.KEY, "left_anti").count()
        )
        failing = outcomes.where("failures IS NOT NULL").select(judge_plan.KEY).join(curated, judge_plan.KEY).persist()
        self.held.append(failing.unpersist)
        leaving = failing.count()
        if leaving and not rows.is_sample and self.raw and self.raw.head is not None:
            events = rows.events or self._events()
            leaving -= kept_keys(events, failing, rows.frame, self.new, both.new, rows.paths).count()
        return unread + leaving

    def _events(self) -> RawEvents:
        """All of RAW, with the keys it has under the new schema."""
        assert self.raw is not None
        events = read_events(self.platform, self.lake, self.topic, self.raw, self.new.keys, 1.0)
        self.held.append(events.free)
        return events

    def _unseen(self, rows: _Rows, judged: int) -> tuple[Unseen, ...]:
        """Paths the schema names and no event has; key, version and period are included if RAW is read."""
        if rows.events:
            events = rows.events.counts["rows"] - rows.events.counts["parse_errors"]
            return unseen_paths(self.new, real_paths(rows.events.kinds).keys(), events, with_keys=True)
        wanted = sorted({column.path for column in self.new.payload_columns if column.path})
        there: Any = judge_plan.presence(rows.frame, rows.paths, wanted).first()
        absent = {path for at, path in enumerate(wanted) if not there[at]}
        return unseen_paths(self.new, (rows.paths.keys() | set(wanted)) - absent, judged, with_keys=False)

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


def _group(found: Any, hidden: set[str]) -> FailureGroup:
    rows = (found["first"], found["other"], found["last"])
    values = {row["message_id"]: HIDDEN if found["column"] in hidden and row["value"] else row["value"] for row in rows}
    examples = tuple(Example(message_id, value) for message_id, value in values.items())
    return FailureGroup(found["rule"], found["column"], found["message"], found["rows"], examples)


def _place(source: Source) -> str | None:
    """Where a column is read: the Standardized column, or the path that has none."""
    return source.standardized_name or source.column.path


_KEY_CHANGES = ("/keys/idempotency_key", "/keys/pii")


def _is_somewhere(source: Source) -> bool:
    """Whether a column can be read at all: by its path, or by its name; a default alone makes no column."""
    column, name = source.column, source.standardized_name
    return bool(column.path) or (name is not None and name not in STANDARDIZED_SYSTEM_COLUMNS)
