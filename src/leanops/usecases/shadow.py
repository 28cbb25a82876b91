"""Tables built beside the live ones, in portions: what a portion has done, it has done for good."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.accounting import CuratedCounts, StandardizedCounts, Totals
from leanops.domain.batches import CURATED, STANDARDIZED, Batch
from leanops.domain.errors import OperationBlockedError
from leanops.domain.operations import Accept, Operation, Scope
from leanops.domain.schema import Schema
from leanops.domain.snapshots import TableView, has_batch, retired_rows, valid_watermark, watermark_of
from leanops.domain.tables import ERRORS, TableDefinition
from leanops.domain.tables import STANDARDIZED as STANDARDIZED_TABLE
from leanops.ports.tables import Lake
from leanops.transforms import curate as curated_rows
from leanops.transforms import quarantine
from leanops.usecases import standardize
from leanops.usecases.batches import schema_of_version
from leanops.usecases.curate import curated_definition, judged_rows, sealing_key
from leanops.usecases.leases import Lease, check
from leanops.usecases.platform import Platform

_TABLES = ("standardized", "parse_errors", "curated", "errors")
Progress = Callable[[str, int, int], None]
"""Told what is being built, how many rows are done, and how many there are."""


def quiet(_what: str, _done: int, _rows: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Portion:
    """Some partitions of the source, with about as many rows as are worked on at a time."""

    values: tuple[Any, ...]
    rows: int


def portions(counts: Mapping[Any, int], most: int) -> list[Portion]:
    """Partition values in order, put together up to about `most` rows; the same for the same counts."""
    found: list[Portion] = []
    if not counts:
        return [Portion((), 0)]
    for value in sorted(counts, key=lambda value: (value is not None, str(value))):
        if found and found[-1].rows + counts[value] <= most:
            found[-1] = Portion((*found[-1].values, value), found[-1].rows + counts[value])
        else:
            found.append(Portion((value,), counts[value]))
    return found


def drop_shadow(platform: Platform, topic: str) -> None:
    """Remove what an operation built beside the live tables."""
    for what in _TABLES:
        platform.catalog.drop(platform.rules.databases.shadow_table(topic, what))


class Shadow:
    """The tables of one operation that are not live yet."""

    def __init__(
        self,
        platform: Platform,
        lake: Lake,
        operation: Operation,
        schema: Schema,
        lease: Lease,
        progress: Progress = quiet,
    ) -> None:
        self.platform, self.lake, self.operation, self.schema = platform, lake, operation, schema
        self.lease, self.progress = lease, progress
        databases, topic = platform.rules.databases, operation.topic
        self.raw = databases.raw_table(topic)
        self.live_standardized = databases.standardized_table(topic)
        self.live_curated = databases.curated_table(schema.table_name)
        self.standardized, self.parse_errors, self.curated, self.errors = (
            databases.shadow_table(topic, what) for what in _TABLES
        )

    def build(self) -> None:
        """Every table of the operation, going on where an earlier try stopped."""
        if self.operation.scope == Scope.BOTH:
            self._build_standardized()
        self._build_curated()

    def drop(self) -> None:
        """Remove the tables."""
        drop_shadow(self.platform, self.operation.topic)

    def source(self) -> tuple[TableView, int]:
        """What Curated is made from, and at which snapshot."""
        if self.operation.scope == Scope.BOTH:
            view = self._view(self.standardized)
            assert view.head is not None
            return view, view.head
        assert self.operation.standardized is not None
        view = self._view(self.live_standardized)
        # A rollback may have brought the table back under a snapshot of its own.
        there = has_batch(view, self.operation.standardized_batch)
        return view, there.snapshot_id if there else self.operation.standardized.head

    def raw_rows(self) -> DataFrame:
        """RAW as far as the operation reads it."""
        assert self.operation.raw is not None
        return self.lake.at(self.raw, self.operation.raw.head)

    def standardized_definition(self) -> TableDefinition:
        """Standardized with every column that is registered: a name never moves."""
        view = self.platform.catalog.load(self.standardized) or self._view(self.live_standardized)
        return replace(STANDARDIZED_TABLE, columns=view.columns, comments=_by_name(view.paths))

    def _build_standardized(self) -> None:
        place = self.operation.raw
        assert place is not None
        self.platform.catalog.create(self.standardized, self.standardized_definition())
        self.platform.catalog.create(self.parse_errors, ERRORS)
        self._keep_retired()
        days = {values[0]: rows for values, rows in self.platform.catalog.partitions(self.raw, place.head).items()}
        done = 0
        for number, portion in enumerate(portions(days, self.platform.rules.rebuild_rows)):
            self.progress(STANDARDIZED, done, place.rows)
            self._standardize(f"{self.operation.operation_id}/{number}", portion)
            done += portion.rows
        self.progress(STANDARDIZED, done, done)

    def _keep_retired(self) -> None:
        """Rows whose event is no longer in RAW come from the live table, before anything else: they are the base."""
        live = self.operation.standardized
        if self._view(self.standardized).head is not None or live is None or live.snapshot is None:
            return
        events = self.raw_rows().select("message_id")
        kept = self.lake.at(self.live_standardized, live.snapshot).join(events, "message_id", "left_anti").persist()
        try:
            rows = kept.count()
            if rows and not self.keeps_keys and self.operation.accept != Accept.ALL:
                raise OperationBlockedError(
                    self.operation.topic,
                    f"{rows} rows of {self.live_standardized} cannot get new keys: RAW has retired their events",
                )
            if rows and self.keeps_keys:
                self._append_base(kept.withColumn("_batch_seq", F.lit(1).cast("bigint")), rows)
        finally:
            kept.unpersist()

    def _append_base(self, kept: DataFrame, rows: int) -> None:
        batch = msgspec.structs.replace(self.standardized_batch(), batch_seq=1)
        mark = watermark_of(batch, StandardizedCounts(0, 0, 0, 0, 0, 0), Totals(rows=rows, base_rows=rows))
        check(self.platform, self.lease)
        summary = {**mark.summary(), "leanops.batch-id": f"{self.operation.operation_id}/retired"}
        self.lake.append(kept, self.standardized, summary)

    @property
    def keeps_keys(self) -> bool:
        """Whether keys are made as they were before."""
        if self.operation.previous is None:
            return False
        before = schema_of_version(self.platform, self.operation.topic, self.operation.previous)
        return before.keys == self.schema.keys

    def _standardize(self, mark: str, portion: Portion) -> None:
        """One portion of RAW into the shadow, by the way every batch goes."""
        target = self._view(self.standardized)
        if has_batch(target, mark):
            return
        raw = self.raw_rows().where(_on_days(portion.values))
        batch = msgspec.structs.replace(
            self.standardized_batch(),
            rows=portion.rows,
            batch_seq=target.last_sequence_number + 1,
            starts_base=target.head is None,
        )
        prepared = standardize.prepare_rows(self.platform, self.lake, batch, self.schema, target, raw)
        try:
            if prepared.errors is not None:
                self._append_errors(prepared.errors, self.parse_errors)
            check(self.platform, self.lease)
            self.platform.step("before shadow standardized")
            summary = {**prepared.merge.summary, "leanops.batch-id": mark}
            self.lake.merge(prepared.source_rows, replace(prepared.merge, summary=summary))
            self.platform.step("after shadow standardized")
        finally:
            prepared.free()

    def standardized_batch(self) -> Batch:
        """The whole of RAW as one batch."""
        operation, place = self.operation, self.operation.raw
        assert place is not None
        return Batch(
            batch_id=operation.standardized_batch,
            topic=operation.topic,
            layer=STANDARDIZED,
            source_uuid=place.uuid,
            source_from=None,
            source_to=place.head,
            source_snapshot=place.head,
            rows=place.rows,
            batch_seq=operation.standardized.batch_seq if operation.standardized else 1,
            batch_time_ms=operation.begun_ms,
            schema_version=self.schema.version,
            contract=self.schema.policies.unknown_fields,
            limits=self.platform.rules.limits,
            column_limits=self.platform.rules.column_limits,
            starts_base=True,
        )

    def standardized_counts(self) -> tuple[StandardizedCounts, Totals]:
        """All portions as one batch into an empty table: what one portion replaced of another was superseded."""
        mark = valid_watermark(self._view(self.standardized))
        totals = mark.totals if mark else Totals()
        extra = self._summed(self.standardized, ("version_fallback", "missing_keys"))
        raw = self._view(self.raw)
        counts = StandardizedCounts(
            read=totals.read,
            inserted=totals.rows - totals.base_rows,
            updated=0,
            duplicates=totals.duplicates,
            superseded=totals.superseded + totals.updated,
            parse_errors=totals.parse_errors,
            **extra,
        )
        counts.check()
        before = retired_rows(raw)
        return counts, replace(totals, updated=0, superseded=counts.superseded, base_raw_rows=before)

    def _build_curated(self) -> None:
        view, snapshot = self.source()
        self.platform.catalog.create(self.curated, curated_definition(self.schema))
        self.platform.catalog.create(self.errors, ERRORS)
        periods: dict[str | None, int] = {}
        for (period, *_), rows in self.platform.catalog.partitions(view.name, snapshot).items():
            periods[period] = periods.get(period, 0) + rows
        done = 0
        for number, portion in enumerate(portions(periods, self.platform.rules.rebuild_rows)):
            self.progress(CURATED, done, sum(periods.values()))
            self._curate(f"{self.operation.operation_id}/{number}", view, snapshot, portion)
            done += portion.rows
        self.progress(CURATED, done, done)

    def _curate(self, mark: str, view: TableView, snapshot: int, portion: Portion) -> None:
        if has_batch(self._view(self.curated), mark):
            return
        source = self.lake.at(view.name, snapshot).where(F.col("period_reference").isin(list(portion.values)))
        self.lake.fit(portion.rows)
        self.append_judged(mark, judged_rows(self.schema, view, source))

    def append_judged(self, mark: str, judged: DataFrame) -> None:
        """Good rows into the shadow of Curated, the others into that of its errors."""
        judged = judged.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            is_bad = F.col("failures").isNotNull()
            lacks_cde = F.exists("failures", lambda failure: failure["rule"] == "cde_missing")
            found: Any = judged.agg(
                F.count(F.lit(1)).alias("read"),
                F.count_if(is_bad).alias("errors"),
                F.count_if(lacks_cde).alias("cde_missing"),
            ).first()
            if found["errors"]:
                bad = quarantine.error_rows(judged.where(is_bad), self.curated_batch(), self.raw)
                self._append_errors(bad, self.errors)
            self.append_good(mark, judged.where(~is_bad), found.asDict())
        finally:
            judged.unpersist()

    def append_good(self, mark: str, good: DataFrame, counts: Mapping[str, int]) -> None:
        """Rows that passed into the shadow of Curated, in one commit that says how many they were."""
        batch = self.curated_batch()
        rows = curated_rows.table_rows(
            good,
            self.schema,
            batch_seq=batch.batch_seq,
            batch_id=batch.batch_id,
            secret=sealing_key(self.platform, batch.topic, self.schema),
        )
        check(self.platform, self.lease)
        self.platform.step("before shadow curated")
        said = {f"leanops.count.{name}": str(count) for name, count in counts.items()}
        self.lake.append(rows, self.curated, {"leanops.batch-id": mark, **said})
        self.platform.step("after shadow curated")

    def curated_batch(self) -> Batch:
        """The whole of Standardized as one batch."""
        operation = self.operation
        read = operation.standardized
        assert read is not None
        assert operation.curated is not None
        return Batch(
            batch_id=operation.curated_batch,
            topic=operation.topic,
            layer=CURATED,
            source_uuid=read.uuid,
            source_from=0,
            source_to=read.batch_seq,
            source_snapshot=read.head,
            rows=read.rows,
            batch_seq=operation.curated.batch_seq,
            batch_time_ms=operation.begun_ms,
            schema_version=self.schema.version,
            starts_base=True,
        )

    def curated_counts(self) -> CuratedCounts:
        """All portions as one batch into an empty table; rows beyond them stand for keys whose newest version fails."""
        found = self._summed(self.curated, ("read", "errors", "cde_missing"))
        rows = sum(snapshot.added_records for snapshot in self._view(self.curated).ancestors())
        passed = found["read"] - found["errors"]
        counts = CuratedCounts(
            read=found["read"],
            inserted=passed,
            updated=0,
            unchanged=0,
            errors=found["errors"],
            behind=rows - passed,
            cde_missing=found["cde_missing"],
        )
        counts.check()
        return counts

    def _summed(self, name: str, counts: Sequence[str]) -> dict[str, int]:
        summaries = [snapshot.summary for snapshot in self._view(name).ancestors()]
        return {count: sum(int(said.get(f"leanops.count.{count}", 0)) for said in summaries) for count in counts}

    def _append_errors(self, rows: DataFrame, name: str) -> None:
        self.platform.step("before shadow errors")
        self.lake.append_new(rows, name, "error_id", {"topic_name": [self.operation.topic]})
        self.platform.step("after shadow errors")

    def _view(self, name: str) -> TableView:
        view = self.platform.catalog.load(name)
        assert view is not None, name
        return view


def _by_name(paths: Mapping[str, str]) -> dict[str, str]:
    return {name: path for path, name in paths.items()}


def _on_days(days: Sequence[Any]) -> Column:
    """Whether a row was published between the first and the last of these days; None stands for rows without a time."""
    known = [day for day in days if day is not None]
    time = F.col("publish_time")
    between = F.lit(False)
    if known:
        first, end = (datetime.combine(day, datetime.min.time(), UTC) for day in (known[0], known[-1] + timedelta(1)))
        between = (time >= F.lit(first)) & (time < F.lit(end))
    return between | time.isNull() if None in days else between
