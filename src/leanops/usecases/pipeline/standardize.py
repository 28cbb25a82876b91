"""RAW → Standardized for one topic: prepare and count, then commit exactly once."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.limits import Limits
from leanops.domain.payload.columns import check_names
from leanops.domain.payload.evolution import ColumnPlan, free_paths, plan_columns, real_paths
from leanops.domain.payload.fast_flatten import learn
from leanops.domain.payload.flatten import NULL, Kind, ParseError, flat
from leanops.domain.schema.model import Keys, Schema
from leanops.domain.schema.parse import DEFAULT_KEY_PATH, DEFAULT_PERIOD_PATHS
from leanops.domain.table.balance import StandardizedCounts, Totals
from leanops.domain.table.batch import STANDARDIZED, Batch, new_batch_id
from leanops.domain.table.definitions import STANDARDIZED as STANDARDIZED_TABLE
from leanops.domain.table.definitions import STANDARDIZED_SYSTEM_COLUMNS
from leanops.domain.table.history import (
    SourceRange,
    TableView,
    Timeline,
    Watermark,
    new_range,
    valid_watermark,
    watermark_of,
)
from leanops.ports.state import Row
from leanops.ports.tables import Lake, Merge
from leanops.transforms.flatten import FlattenPlan, Telling, observed_kinds
from leanops.transforms.frames import quarantine
from leanops.transforms.frames import standardize as rows
from leanops.transforms.frames.flatten import cells
from leanops.transforms.frames.versions import STORED
from leanops.transforms.keys import COUNTED
from leanops.transforms.verdicts import DUPLICATE, INSERTED, SUPERSEDED, UPDATED
from leanops.usecases.journal import begin, begin_another, checkpoint, repair_checkpoint
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.drift import Memory
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.next_batch import next_key_check, resumable_batch
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.pipeline.stored_rows import Bounds, stored_rows
from leanops.usecases.platform import Platform, secret_key

SAMPLE = 500


@dataclass(frozen=True)
class StandardizeBatch:
    """A batch on record, the schema that decides its keys, and the table it goes into."""

    batch: Batch
    schema: Schema | None
    target: TableView


def begin_next(held: HeldTopic, schema: Schema | None) -> StandardizeBatch | None:
    """Put the next batch on record; None when there is nothing new.

    On the way the table is created, late batches are removed from it, and its checkpoint is repaired.
    """
    platform, databases = held.platform, held.platform.rules.databases
    raw = platform.catalog.load(databases.raw_table(held.topic))
    if raw is None or raw.head is None:
        return None
    target = platform.catalog.create(databases.standardized_table(held.topic), STANDARDIZED_TABLE)
    target = without_late_batches(held, STANDARDIZED, target)
    remedy = f"rebuild it, which renames them: leanops rebuild {held.topic}"
    check_names(target.name, target.paths.values(), STANDARDIZED_SYSTEM_COLUMNS, remedy)
    mark = valid_watermark(target)
    if mark:
        repair_checkpoint(held, STANDARDIZED, mark)
    batch = _next_batch(held, schema, raw, target, mark)
    return StandardizeBatch(batch, schema, target) if batch else None


def prepare(platform: Platform, lake: Lake, begun: StandardizeBatch) -> Prepared:
    """Read, flatten, classify and balance a batch; nothing is written."""
    raw = platform.rules.databases.raw_table(begun.batch.topic)
    return prepare_rows(platform, lake, begun, lake.appended(raw, begun.batch.source_from, begun.batch.source_to))


def prepare_rows(platform: Platform, lake: Lake, begun: StandardizeBatch, raw: DataFrame) -> Prepared:
    """Flatten, classify and balance the rows of a batch against what its table holds."""
    return _Work(platform, lake, begun).prepared(raw)


def flatten_plan(
    platform: Platform, topic: str, keys: Keys, limits: Limits, expected: Mapping[str, Kind]
) -> FlattenPlan:
    """How the payloads of a topic become cells."""
    return FlattenPlan(
        expected=dict(expected),
        limits=limits,
        key_path=keys.idempotency_key,
        period_paths=keys.period_paths,
        version_path=keys.version,
        version_format=keys.version_format,
        key_secret=secret_key(platform, topic) if keys.pii else None,
    )


def sampled_kinds(raw: DataFrame, limits: Limits, columns: int) -> dict[str, Kind]:
    """The shape of some payloads; one of another shape gets its cells too, only more slowly."""
    payloads = []
    for row in raw.select("json_payload").limit(SAMPLE).collect():
        with suppress(ParseError):
            payloads.append(flat(row.json_payload or "", limits))
    return dict(list(learn(payloads).items())[:columns])


def _next_batch(
    held: HeldTopic, schema: Schema | None, raw: TableView, target: TableView, mark: Watermark | None
) -> Batch | None:
    """The open batch if it still applies, else a new one."""
    sealed = next_key_check(held, STANDARDIZED, mark, seals=bool(schema and schema.keys.pii))
    start, version = mark.source_to if mark else None, schema.version if schema else 0
    begun = resumable_batch(held, STANDARDIZED, raw, start, version, sealed)
    if begun:
        return begun
    # The open batch no longer applies: another schema may give the same events other keys.
    begin_another(held, STANDARDIZED, target.name)
    source = new_range(raw, mark)
    if source is None:
        return None
    batch = _new_batch(held.platform, held.topic, schema, raw, target, source)
    timeline = _timeline(batch, mark, checkpoint(held.platform, held.topic, STANDARDIZED)).text()
    # A table with rows and without a watermark has lost it: somebody expired the snapshot that held it.
    is_gap = source.is_gap or (mark is None and target.head is not None)
    batch = msgspec.structs.replace(batch, timeline=timeline, key_check=sealed, is_gap=is_gap)
    begin(held, batch)
    return batch


def _timeline(batch: Batch, mark: Watermark | None, last: Row | None) -> Timeline:
    """The table's timeline, forked if the state store knows a newer batch than the table has."""
    if mark is None:
        return Timeline(batch.batch_id) if last is None else Timeline.parse(str(last["timeline"] or ""))
    if last and int(last["batch_seq"] or 0) > mark.batch_seq:
        return mark.timeline.fork(batch.batch_id, mark.batch_seq)
    return mark.timeline


def _new_batch(
    platform: Platform, topic: str, schema: Schema | None, raw: TableView, target: TableView, source: SourceRange
) -> Batch:
    now = platform.clock()
    return Batch(
        batch_id=new_batch_id(now),
        topic=topic,
        layer=STANDARDIZED,
        source_uuid=raw.uuid,
        source_from=source.start,
        source_to=source.end,
        source_snapshot=source.end,
        rows=source.rows,
        batch_seq=target.last_sequence_number + 1,
        batch_time_ms=platform.now_ms(),
        schema_version=schema.version if schema else 0,
        contract=schema.policies.unknown_fields if schema else "evolve",
        limits=platform.rules.limits,
        column_limits=platform.rules.tables,
        starts_base=source.start is None,
        is_gap=source.is_gap,
        free_columns=len(free_paths(target.paths, _named_paths(schema))),
    )


def _named_paths(schema: Schema | None) -> list[str]:
    """The paths that have a column outside all limits once they are seen."""
    return [*(schema.named_paths if schema else ()), DEFAULT_KEY_PATH, *DEFAULT_PERIOD_PATHS]


class _Work:
    """The work on one batch."""

    def __init__(self, platform: Platform, lake: Lake, begun: StandardizeBatch) -> None:
        self.platform, self.lake = platform, lake
        self.batch, self.schema, self.target = begun.batch, begun.schema, begun.target
        self.mark = valid_watermark(self.target)
        self.persisted: list[DataFrame] = []
        self.keys = self.schema.keys if self.schema else Keys()
        known = frozenset((*self.target.paths, *_named_paths(self.schema)))
        self.telling = Telling(known, self.batch.column_limits.columns)

    def prepared(self, raw: DataFrame) -> Prepared:
        batch = self.batch
        self.lake.fit(batch.rows)
        known = self._expected_kinds() or sampled_kinds(raw, batch.limits, batch.column_limits.columns)
        plan = flatten_plan(self.platform, batch.topic, self.keys, batch.limits, known)
        read = self._persisted(cells(raw, replace(plan, telling=self.telling)))
        try:
            return self._judged(read, dict(zip(plan.expected, plan.columns, strict=True)))
        except Exception:
            for frame in self.persisted:
                frame.unpersist()
            raise

    def _persisted(self, frame: DataFrame) -> DataFrame:
        self.persisted.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def _judged(self, read: DataFrame, positions: Mapping[str, str]) -> Prepared:
        """Every row of the batch with its verdict, counted and in balance."""
        kinds, figures, bounds = self._figures(read)
        columns = self._columns(real_paths(kinds))
        events = valid = read.where("rule IS NULL")
        if columns.refused:
            events = rows.with_refused(events, columns.columns, positions)
            valid = events.where("refused IS NULL")
        verdicts = self._persisted(rows.verdicts(valid, self._current(valid, bounds)))
        tally, merge_on = self._tally(verdicts)
        if columns.refused:
            refused = events.where("refused IS NOT NULL").count()
            figures = {**self._figures(valid)[1], "parse_errors": figures["parse_errors"] + refused}
        unplaced = len(columns.rescued) if self.batch.contract == "evolve" else 0
        counts = StandardizedCounts(read=self.batch.rows, **tally, **figures, unplaced_paths=unplaced)
        counts.check()
        changed = rows.table_rows(
            rows.winners(valid, verdicts),
            topic=self.batch.topic,
            columns=columns.columns,
            positions=positions,
            batch_seq=self.batch.batch_seq,
            batch_id=self.batch.batch_id,
        )
        return Prepared(
            batch=self.batch,
            table=self.target.name,
            source_rows=changed,
            errors=self._errors(read, events if columns.refused else None) if counts.parse_errors else None,
            merge=replace(merge_on, summary=self._watermark(counts).summary()),
            counts=counts,
            kinds=kinds,
            added_columns=self._added_columns(columns),
            persisted=tuple(self.persisted),
        )

    def _expected_kinds(self) -> dict[str, Kind]:
        """What earlier batches had; a path first seen in this batch still gets its cells, only more slowly."""
        memory = Memory.load(self.platform, self.batch.topic).before(self.batch.batch_id)
        is_known = self.target.paths.keys() | {path for path, seen in memory.items() if seen.kinds == (NULL,)}
        return {path: seen.kinds[-1] for path, seen in sorted(memory.items()) if path in is_known}

    def _figures(self, read: DataFrame) -> tuple[dict[str, set[Kind]], dict[str, int], Bounds]:
        """Paths with their kinds, the counts that need no dedup, and the least and greatest key, in one pass."""
        is_event = F.col("rule").isNull()
        found: Any = read.agg(
            F.collect_set("observed").alias("observed"),
            F.count("rule").alias("parse_errors"),
            *(F.count_if(F.col(name) & is_event).alias(name) for name in COUNTED),
            F.count_if(F.col("idempotency_key").isNull() & is_event).alias("missing_keys"),
            F.min("record_key").alias("least"),
            F.max("record_key").alias("greatest"),
        ).first()
        counts = {name: int(found[name]) for name in ("parse_errors", "missing_keys", *COUNTED)}
        kinds = self.telling.bounded(observed_kinds(found["observed"]))
        return kinds, counts, (found["least"], found["greatest"])

    def _columns(self, kinds: Mapping[str, set[Kind]]) -> ColumnPlan:
        """Where each path goes."""
        batch, named = self.batch, self.schema.named_paths if self.schema else ()
        defaults = (DEFAULT_KEY_PATH, *DEFAULT_PERIOD_PATHS)
        exempt = [path for path in defaults if path in kinds or path in self.target.paths]
        return plan_columns(
            self.target.paths, kinds, [*named, *exempt], batch.contract, batch.column_limits, batch.free_columns
        )

    def _added_columns(self, plan: ColumnPlan) -> dict[str, tuple[str, str]]:
        """New columns with type and path; a table made by an earlier version also lacks later system columns."""
        system = {name: (kind, "") for name, kind in STANDARDIZED_TABLE.columns.items()}
        missing = {name: column for name, column in system.items() if name not in self.target.columns}
        return missing | {name: ("string", path) for path, name in plan.added.items()}

    def _current(self, events: DataFrame, bounds: Bounds) -> DataFrame | None:
        """The stored rows of the batch's keys."""
        if self.target.head is None:
            return None
        keys = events.select("record_key")
        wanted = ("period_reference", "first_seen_ts", "_payload_hash", *STORED)
        return stored_rows(self.lake, self.target.name, self.target.head, self.batch.rows, keys, bounds, wanted)

    def _tally(self, verdicts: DataFrame) -> tuple[dict[str, int], Merge]:
        """How many rows have each verdict, and where the rows to replace are."""
        figures = F.count(F.lit(1)).alias("rows"), F.count_if("is_conflict").alias("conflicts")
        groups = verdicts.groupBy("verdict", "old_period").agg(*figures).collect()
        names = {
            "inserted": INSERTED,
            "updated": UPDATED,
            "duplicates": DUPLICATE,
            "superseded": SUPERSEDED,
        }
        tally = {
            name: sum(group["rows"] for group in groups if group["verdict"] == verdict)
            for name, verdict in names.items()
        }
        tally["conflicting_copies"] = sum(group["conflicts"] for group in groups)
        is_few = tally["updated"] <= self.platform.rules.pipeline.found_keys
        updated = verdicts.where(F.col("verdict") == UPDATED).select("record_key")
        found = [row.record_key for row in updated.collect()] if tally["updated"] and is_few else []
        periods = sorted({group["old_period"] for group in groups if group["verdict"] == UPDATED})
        merge = Merge(self.target.name, "record_key", self.batch.batch_seq, found, None if is_few else periods, {})
        return tally, merge

    def _watermark(self, counts: StandardizedCounts) -> Watermark:
        before = self.mark.totals if self.mark else Totals(rows=self._stored_rows())
        if self.batch.starts_base:
            before = Totals(rows=before.rows, base_rows=before.rows)
        return watermark_of(self.batch, counts, before.after(counts))

    def _stored_rows(self) -> int:
        """How many rows a table without a watermark has: none, unless somebody expired the snapshot that held it."""
        return 0 if self.target.head is None else self.lake.at(self.target.name, self.target.head).count()

    def _errors(self, read: DataFrame, refused: DataFrame | None) -> DataFrame:
        bad = quarantine.parse_failures(read)
        if refused is not None:
            bad = bad.unionByName(quarantine.unknown_fields(refused.where("refused IS NOT NULL")))
        return quarantine.error_rows(bad, self.batch, self.platform.rules.databases.raw_table(self.batch.topic))
