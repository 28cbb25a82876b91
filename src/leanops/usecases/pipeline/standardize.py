"""RAW → Standardized for one topic: prepare and count, then commit exactly once."""

from dataclasses import dataclass

import msgspec

from leanops.domain.payload.columns import check_names
from leanops.domain.payload.evolution import free_paths
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
from leanops.ports.engine import StandardizeWork, Target, Written
from leanops.ports.state import Row
from leanops.usecases.journal import begin, begin_another, checkpoint, repair_checkpoint
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.commit import alter
from leanops.usecases.pipeline.drift import expected_kinds
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.next_batch import next_key_check, resumable_batch
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.platform import Platform, secret_key

_NOTHING = dict.fromkeys(("inserted", "updated", "duplicates", "superseded", "parse_errors"), 0)


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
    return StandardizeBatch(batch, schema, _completed(held, target)) if batch else None


def _completed(held: HeldTopic, target: TableView) -> TableView:
    """The table with the system columns that one made by an earlier version lacks."""
    system = {name: (kind, "") for name, kind in STANDARDIZED_TABLE.columns.items()}
    missing = {name: column for name, column in system.items() if name not in target.columns}
    return alter(held, target, missing)


def work_of(
    platform: Platform, begun: StandardizeBatch, errors: str | None = None, *, is_curated_next: bool = False
) -> StandardizeWork:
    """What the engine has to do for a batch."""
    batch, target, databases = begun.batch, begun.target, platform.rules.databases
    seals = begun.schema and begun.schema.keys.pii
    return StandardizeWork(
        batch=batch,
        raw=databases.raw_table(batch.topic),
        target=Target(target.name, target.uuid, target.head, errors or databases.parse_errors),
        keys=begun.schema.keys if begun.schema else Keys(),
        expected=expected_kinds(platform, batch.topic, begun.target, batch.batch_id),
        paths=target.paths,
        named=begun.schema.named_paths if begun.schema else (),
        secret=secret_key(platform, batch.topic) if seals else None,
        is_curated_next=is_curated_next,
    )


def prepared(platform: Platform, begun: StandardizeBatch, work: StandardizeWork, written: Written) -> Prepared:
    """A batch that the engine has written; raises unless it is in balance."""
    batch, columns = begun.batch, work.columns(written.kinds)
    unplaced = len(columns.rescued) if batch.contract == "evolve" else 0
    counts = StandardizedCounts(read=batch.rows, **{**_NOTHING, **written.counts}, unplaced_paths=unplaced)
    counts.check()
    ready = Prepared(batch, work.target, written, counts, _watermark(platform, begun, counts).summary())
    ready.check()
    return ready


def added_columns(work: StandardizeWork, written: Written) -> dict[str, tuple[str, str]]:
    """The columns a table lacks for a batch, with type and path."""
    return {name: ("string", path) for path, name in work.columns(written.kinds).added.items()}


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
        free_columns=free_columns(schema, target),
    )


def free_columns(schema: Schema | None, target: TableView) -> int:
    """How many columns of a table count against the limits."""
    return len(free_paths(target.paths, _named_paths(schema)))


def _named_paths(schema: Schema | None) -> list[str]:
    """The paths that have a column outside all limits once they are seen."""
    return [*(schema.named_paths if schema else ()), DEFAULT_KEY_PATH, *DEFAULT_PERIOD_PATHS]


def _watermark(platform: Platform, begun: StandardizeBatch, counts: StandardizedCounts) -> Watermark:
    mark = valid_watermark(begun.target)
    before = mark.totals if mark else Totals(rows=_stored_rows(platform, begun.target))
    if begun.batch.starts_base:
        before = Totals(rows=before.rows, base_rows=before.rows)
    return watermark_of(begun.batch, counts, before.after(counts))


def _stored_rows(platform: Platform, target: TableView) -> int:
    """How many rows a table without a watermark has: none, unless somebody expired the snapshot that held it."""
    return 0 if target.head is None else platform.catalog.count(target.name)
