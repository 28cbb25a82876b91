"""Standardized → Curated for one topic: prepare and count, then commit exactly once."""

from dataclasses import dataclass, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.errors import SpikeError, UnbalancedBatchError, UsageError
from leanops.domain.payload.columns import check_names
from leanops.domain.schema.model import Schema, changed_types, check_rules
from leanops.domain.schema.types import is_promotion
from leanops.domain.table.balance import CuratedCounts
from leanops.domain.table.batch import CURATED, STANDARDIZED, Batch, new_batch_id
from leanops.domain.table.definitions import CURATED as CURATED_TABLE
from leanops.domain.table.definitions import CURATED_SYSTEM_COLUMNS, STANDARDIZED_SYSTEM_COLUMNS, TableDefinition
from leanops.domain.table.history import (
    TableView,
    Watermark,
    has_moved,
    valid_watermark,
    watermark_from,
    watermark_of,
)
from leanops.ports.tables import Lake, Merge
from leanops.transforms.frames import curate as rows
from leanops.transforms.frames import quarantine
from leanops.transforms.frames.versions import STORED
from leanops.transforms.judge import sources_of
from leanops.usecases.journal import begin, begin_another, repair_checkpoint
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.next_batch import next_key_check, resumable_batch
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.pipeline.stored_rows import Bounds, stored_rows
from leanops.usecases.platform import Platform, secret_key


@dataclass(frozen=True)
class CurateBatch:
    """A batch on record, the schema that judges it, the table it reads and the one it goes into."""

    batch: Batch
    schema: Schema
    source: TableView
    target: TableView


def begin_next(held: HeldTopic, schema: Schema) -> CurateBatch | None:
    """Put the next batch on record; None when there is nothing new.

    On the way the table gets the schema's columns, late batches are removed, and the checkpoint is repaired.
    """
    platform = held.platform
    source = platform.catalog.load(platform.rules.databases.standardized_table(held.topic))
    if source is None:
        return None
    source = without_late_batches(held, STANDARDIZED, source)
    newest = valid_watermark(source)
    if newest is None or source.head is None:
        return None
    target = without_late_batches(held, CURATED, curated_table(platform, schema))
    mark = valid_watermark(target)
    if mark:
        repair_checkpoint(held, CURATED, mark)
    batch = _next_batch(held, schema, source, newest, target, mark)
    return CurateBatch(batch, schema, source, target) if batch else None


def prepare(platform: Platform, lake: Lake, begun: CurateBatch, *, accept_errors: bool = False) -> Prepared:
    """Read, judge and balance a batch; nothing is written."""
    return _Work(platform, lake, begun).prepared(accept_errors=accept_errors)


def source_moved(held: HeldTopic, schema: Schema) -> bool:
    """Whether Curated was built from a Standardized that no longer exists."""
    catalog, databases = held.platform.catalog, held.platform.rules.databases
    source = catalog.load(databases.standardized_table(held.topic))
    target = catalog.load(databases.curated_table(schema.table_name))
    mark = valid_watermark(target) if target else None
    if source is None or mark is None:
        return False
    # A late batch on top of a table must not hide that the table was rolled back.
    return has_moved(without_late_batches(held, STANDARDIZED, source), mark)


def curated_definition(schema: Schema) -> TableDefinition:
    """The Curated table of a schema; raises if it has columns or patterns that are no longer allowed."""
    remedy = "give them other names in the schema and deploy it with --rebuild"
    names = [column.name for column in schema.payload_columns]
    check_names(schema.table_name, names, CURATED_SYSTEM_COLUMNS, remedy)
    check_rules(schema)
    payload = {column.name: column.type.iceberg for column in schema.payload_columns}
    comments = {column.name: column.path or "" for column in schema.payload_columns}
    return replace(CURATED_TABLE, columns={**CURATED_TABLE.columns, **payload}, comments=comments)


def curated_table(platform: Platform, schema: Schema) -> TableView:
    """The Curated table with every column of the schema, types widened in place; nothing is ever dropped."""
    name, wanted = platform.rules.databases.curated_table(schema.table_name), curated_definition(schema)
    table = platform.catalog.create(name, wanted)
    changed = changed_types(schema, table.columns)
    for column, (today, said) in changed.items():
        if not is_promotion(today, said):
            raise UsageError(
                f"{name}.{column} is {today} and the schema says {said}, which cannot be done in place; "
                "rebuild Curated with: leanops rebuild TOPIC --curated"
            )
    added = {
        column: (kind, wanted.comments.get(column, ""))
        for column, kind in wanted.columns.items()
        if column not in table.columns
    }
    wider = {column: said for column, (_, said) in changed.items()}
    return platform.catalog.alter(name, added, wider) if added or wider else table


def judged_rows(platform: Platform, topic: str, schema: Schema, source: TableView, changed: DataFrame) -> DataFrame:
    """Rows of Standardized, judged by the schema, PII protected; `source` tells which column holds which path."""
    # A repeated batch reads the table as it was: a column that came later is not there.
    names = set(changed.columns)
    there = {name: kind for name, kind in source.columns.items() if name in names}
    paths = {path: name for path, name in source.paths.items() if name in there}
    has_sealed = any(column.pii == "hmac" for column in schema.payload_columns)
    secret = secret_key(platform, topic) if has_sealed else None
    return rows.judged(changed, sources_of(schema, paths, there), secret)


def sealed_with(platform: Platform) -> dict[str, str]:
    """The name of the key in use, as the snapshot summary records it."""
    return {"leanops.pii-key-id": platform.secret.key_id} if platform.secret else {}


def _next_batch(
    held: HeldTopic, schema: Schema, source: TableView, newest: Watermark, target: TableView, mark: Watermark | None
) -> Batch | None:
    """The open batch if it still applies, else a new one from what Standardized gained."""
    start = mark.source_to if mark and not has_moved(source, mark) else 0
    sealed = next_key_check(held, CURATED, mark, seals=schema.seals)
    begun = resumable_batch(held, CURATED, source, start, schema.version, sealed)
    if begun:
        return begun
    begin_another(held, CURATED, target.name)
    if newest.batch_seq <= start or source.head is None:
        return None
    _check_columns(held.topic, schema, source)
    batch = Batch(
        batch_id=new_batch_id(held.platform.clock()),
        topic=held.topic,
        layer=CURATED,
        source_uuid=source.uuid,
        source_from=start,
        source_to=newest.batch_seq,
        source_snapshot=source.head,
        rows=newest.counts["inserted"] + newest.counts["updated"],
        batch_seq=target.last_sequence_number + 1,
        batch_time_ms=held.platform.now_ms(),
        schema_version=schema.version,
        starts_base=start == 0,
        # A table with rows and without a watermark has lost it: somebody expired the snapshot that held it.
        is_gap=mark is None and target.head is not None,
        source_timeline=newest.timeline.name,
        key_check=sealed,
    )
    begin(held, batch)
    return batch


def _check_columns(topic: str, schema: Schema, source: TableView) -> None:
    """Check before a batch begins, because it is repeated with the same schema."""
    known = set(source.columns) - set(STANDARDIZED_SYSTEM_COLUMNS)
    missing = [column.name for column in schema.payload_columns if not column.path and column.name not in known]
    if missing:
        raise UsageError(
            f"{topic}: the schema names {', '.join(missing)} without a path, and Standardized has no such column; "
            "give it a path and deploy the schema again"
        )


class _Work:
    """The work on one batch."""

    def __init__(self, platform: Platform, lake: Lake, begun: CurateBatch) -> None:
        self.platform, self.lake = platform, lake
        self.batch, self.schema, self.source, self.target = begun.batch, begun.schema, begun.source, begun.target

    def prepared(self, *, accept_errors: bool) -> Prepared:
        changed = self._changed()
        judged = judged_rows(self.platform, self.batch.topic, self.schema, self.source, changed)
        read, bounds = self._measured(changed)
        self.lake.fit(read)
        verdicts = rows.verdicts(judged, self._current(changed, read, bounds), self.schema.policies.lookback_months)
        verdicts = verdicts.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return self._balanced(verdicts, read, accept_errors=accept_errors)
        except Exception:
            verdicts.unpersist()
            raise

    def _balanced(self, verdicts: DataFrame, read: int, *, accept_errors: bool) -> Prepared:
        """The judged rows, counted and in balance."""
        batch = self.batch
        counts, merge_on = self._tally(verdicts, read)
        counts.check()
        if not accept_errors:
            self._check_spike(counts)
        wins = verdicts.where(F.col("verdict").isin(rows.INSERTED, rows.UPDATED))
        return Prepared(
            batch=batch,
            table=self.target.name,
            source_rows=rows.table_rows(
                wins,
                self.schema,
                batch_seq=batch.batch_seq,
                batch_id=batch.batch_id,
            ),
            errors=self._errors(verdicts) if counts.errors else None,
            merge=replace(merge_on, summary=self._summary(counts)),
            counts=counts,
            persisted=(verdicts,),
        )

    def _changed(self) -> DataFrame:
        """What Standardized gained: rows by their batch number, at one fixed snapshot."""
        table = self.lake.at(self.source.name, self.batch.source_snapshot)
        seq = F.col("_batch_seq")
        return table.where((seq > F.lit(self.batch.source_from)) & (seq <= F.lit(self.batch.source_to)))

    def _measured(self, changed: DataFrame) -> tuple[int, Bounds]:
        """How many rows there are, apart from what becomes of them, and their least and greatest key."""
        self.lake.fit(self.batch.rows)
        found: Any = changed.agg(
            F.count(F.lit(1)).alias("rows"),
            F.min("idempotency_key").alias("least"),
            F.max("idempotency_key").alias("greatest"),
        ).first()
        self._check_read(found["rows"])
        return found["rows"], (found["least"], found["greatest"])

    def _check_read(self, read: int) -> None:
        """Of a single batch of Standardized, its own commit says how many rows it changed."""
        start, end = self.batch.source_from or 0, self.batch.source_to
        marks = [mark for snapshot in self.source.ancestors() if (mark := watermark_from(snapshot))]
        between = [mark for mark in marks if start < mark.batch_seq <= end]
        if len(between) != 1:
            return
        only = between[0]
        is_first = only.totals.rows == only.counts["inserted"]
        changed = only.counts["inserted"] + only.counts["updated"]
        if (is_first or any(mark.batch_seq <= start for mark in marks)) and read != changed:
            raise UnbalancedBatchError(
                f"{self.batch.topic}: read {read} rows of Standardized batch {only.batch_id}, which changed {changed}"
            )

    def _current(self, changed: DataFrame, read: int, bounds: Bounds) -> DataFrame | None:
        """The stored rows of the batch's keys."""
        if self.target.head is None:
            return None
        keys, wanted = changed.select("idempotency_key"), ("period_reference", *STORED)
        return stored_rows(self.lake, self.target.name, self.target.head, read, keys, bounds, wanted)

    def _tally(self, verdicts: DataFrame, read: int) -> tuple[CuratedCounts, Merge]:
        lacks_cde = F.exists("failures", lambda failure: failure["rule"] == "cde_missing")
        groups = (
            verdicts.groupBy("verdict", "old_period")
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.count_if("is_behind").alias("behind"),
                F.count_if("crosses").alias("cross_period"),
                F.count_if("is_late").alias("late_corrections"),
                F.count_if(lacks_cde).alias("cde_missing"),
            )
            .collect()
        )

        def of(verdict: str) -> int:
            return sum(group["rows"] for group in groups if group["verdict"] == verdict)

        extra = {
            name: sum(group[name] for group in groups)
            for name in ("behind", "cross_period", "late_corrections", "cde_missing")
        }
        counts = CuratedCounts(
            read=read,
            inserted=of(rows.INSERTED),
            updated=of(rows.UPDATED),
            unchanged=of(rows.UNCHANGED),
            errors=of(rows.ERROR),
            **extra,
        )
        limit = self.platform.rules.pipeline.found_keys
        is_updated = verdicts.where(F.col("verdict") == rows.UPDATED).select("idempotency_key")
        found = [row.idempotency_key for row in is_updated.collect()] if 0 < counts.updated <= limit else []
        periods = sorted({group["old_period"] for group in groups if group["verdict"] == rows.UPDATED})
        beyond = periods if counts.updated > limit else None
        return counts, Merge(self.target.name, "idempotency_key", self.batch.batch_seq, found, beyond, {})

    def _check_spike(self, counts: CuratedCounts) -> None:
        allowed = self.schema.policies.cde_error_rate_fail
        if allowed is not None and counts.read and counts.cde_missing / counts.read > allowed:
            raise SpikeError(
                f"{self.batch.topic}: {counts.cde_missing} of {counts.read} rows lack a critical value, more than "
                f"{allowed:.0%}; look at them, then run: leanops cycle --topic {self.batch.topic} --accept-errors"
            )

    def _summary(self, counts: CuratedCounts) -> dict[str, str]:
        return {**watermark_of(self.batch, counts).summary(), **sealed_with(self.platform)}

    def _errors(self, verdicts: DataFrame) -> DataFrame:
        bad = verdicts.where(F.col("failures").isNotNull())
        return quarantine.error_rows(bad, self.batch, self.platform.rules.databases.raw_table(self.batch.topic))
