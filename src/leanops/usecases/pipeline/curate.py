"""Standardized → Curated for one topic: prepare and count, then commit exactly once."""

from dataclasses import dataclass, replace

from leanops.domain.errors import SpikeError, UnbalancedBatchError, UsageError
from leanops.domain.payload.columns import check_names
from leanops.domain.schema.model import Schema, changed_types, check_rules
from leanops.domain.schema.types import is_promotion
from leanops.domain.table.balance import CuratedCounts, added_rows
from leanops.domain.table.batch import CURATED, STANDARDIZED, Batch, new_batch_id
from leanops.domain.table.definitions import CURATED as CURATED_TABLE
from leanops.domain.table.definitions import CURATED_SYSTEM_COLUMNS, STANDARDIZED_SYSTEM_COLUMNS, TableDefinition
from leanops.domain.table.history import (
    TableView,
    Watermark,
    batches_between,
    has_moved,
    is_compaction,
    is_foreign,
    is_kept_since,
    valid_watermark,
    watermark_from,
    watermark_of,
)
from leanops.ports.engine import CurateWork, Target, Written
from leanops.usecases.journal import begin, begin_another, repair_checkpoint
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.commit import alter
from leanops.usecases.pipeline.drift import expected_kinds
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.next_batch import next_key_check, resumable_batch
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.platform import Platform, secret_key

_NOTHING = dict.fromkeys(("inserted", "updated", "unchanged", "errors"), 0)


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
    target = without_late_batches(held, CURATED, curated_table(held, schema))
    mark = valid_watermark(target)
    if mark:
        repair_checkpoint(held, CURATED, mark)
    batch = _next_batch(held, schema, source, newest, target, mark)
    return CurateBatch(batch, schema, source, target) if batch else None


def work_of(
    platform: Platform, begun: CurateBatch, errors: str | None = None, *, standardized: Prepared | None = None
) -> CurateWork:
    """What the engine has to do for a batch; `standardized` is the batch that was committed right before it."""
    batch, databases = begun.batch, platform.rules.databases
    is_read_alone = standardized is not None and _reads_only(batch, standardized.batch)
    return CurateWork(
        batch=batch,
        standardized=begun.source.name,
        raw=databases.raw_table(batch.topic),
        target=Target(begun.target.name, begun.target.uuid, begun.target.head, errors or databases.errors),
        schema=begun.schema,
        paths=begun.source.paths,
        expected=expected_kinds(platform, batch.topic, begun.source),
        versions=standardized.written.superseded if standardized and is_read_alone else None,
        secret=secret_key(platform, batch.topic) if begun.schema.seals else None,
    )


def _reads_only(batch: Batch, standardized: Batch) -> bool:
    """Whether a batch of Standardized knows all versions that a batch of Curated looks at.

    After a gap it does not: it read all of RAW again, and the rows that the table had are versions that none replaced.
    """
    ours, read = (batch.raw_from, batch.raw_to), (standardized.source_from, standardized.source_to)
    return ours == read and batch.source_to == standardized.batch_seq and not standardized.is_gap


def prepared(
    platform: Platform, begun: CurateBatch, work: CurateWork, written: Written, *, accept_errors: bool = False
) -> Prepared:
    """A batch that the engine has written; raises unless it is in balance."""
    batch = begun.batch
    _check_read(begun, written.read)
    counts = CuratedCounts(read=written.read, **{**_NOTHING, **written.counts})
    if not accept_errors:
        _check_spike(begun, counts)
    summary = {**watermark_of(batch, counts).summary(), **sealed_with(platform)}
    ready = Prepared(batch, work.target, written, counts, summary)
    ready.check()
    return ready


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


def curated_table(held: HeldTopic, schema: Schema) -> TableView:
    """The Curated table with every column of the schema, types widened in place; nothing is ever dropped."""
    platform = held.platform
    name, wanted = platform.rules.databases.curated_table(schema.table_name), curated_definition(schema)
    table = platform.catalog.create(name, wanted)
    changed = changed_types(schema, table.columns)
    for column, (stored, declared) in changed.items():
        if not is_promotion(stored, declared):
            raise UsageError(
                f"{name}.{column} is {stored} and the schema says {declared}, which cannot be done in place; "
                f"rebuild Curated with: leanops rebuild {held.topic} --curated"
            )
    added = {
        column: (kind, wanted.comments.get(column, ""))
        for column, kind in wanted.columns.items()
        if column not in table.columns
    }
    wider = {column: declared for column, (_, declared) in changed.items()}
    return alter(held, table, added, wider)


def sealed_with(platform: Platform) -> dict[str, str]:
    """The name of the key in use, as the snapshot summary records it."""
    return {"leanops.pii-key-id": platform.secret.key_id} if platform.secret else {}


def _next_batch(
    held: HeldTopic, schema: Schema, source: TableView, newest: Watermark, target: TableView, mark: Watermark | None
) -> Batch | None:
    """The open batch if it still applies, else a new one from what Standardized gained."""
    start = mark.source_to if mark and not has_moved(source, mark) else 0
    platform, sealed = held.platform, next_key_check(held, CURATED, mark, seals=schema.seals)
    begun = resumable_batch(held, CURATED, source, start, schema.version, sealed)
    if begun:
        return begun
    begin_another(held, CURATED, target.name)
    if newest.batch_seq <= start or source.head is None:
        return None
    _check_columns(held.topic, schema, source)
    raw = _raw_range(platform, held.topic, mark if start else None, newest)
    is_unknown = mark is not None and start > 0 and mark.raw_to is None
    batch = Batch(
        batch_id=new_batch_id(platform.clock()),
        topic=held.topic,
        layer=CURATED,
        source_uuid=source.uuid,
        source_from=start,
        source_to=newest.batch_seq,
        source_snapshot=source.head,
        rows=added_rows(newest.counts),
        batch_seq=target.last_sequence_number + 1,
        batch_time_ms=platform.now_ms(),
        schema_version=schema.version,
        limits=platform.rules.limits,
        starts_base=start == 0,
        # A table with rows and without a watermark has lost it: somebody expired the snapshot that held it.
        is_gap=mark is None and target.head is not None,
        source_timeline=newest.timeline.name,
        key_check=sealed,
        raw_from=raw[0] if raw else None,
        raw_to=raw[1] if raw else None,
        older_versions=raw is not None and (is_unknown or _has_older_versions(source, start, newest.batch_seq)),
    )
    begin(held, batch)
    return batch


def _raw_range(
    platform: Platform, topic: str, mark: Watermark | None, newest: Watermark
) -> tuple[int | None, int | None] | None:
    """How far of RAW Curated knows all versions, and how far Standardized has read it; None where RAW has no rows.

    A place that has expired, or of which nothing tells, is None: then all is looked at that RAW has, and the next batch
    does so again.
    """
    raw = platform.catalog.load(platform.rules.databases.raw_table(topic))
    if raw is None or raw.head is None:
        return None
    if raw.uuid != newest.source_uuid or newest.source_to not in raw.snapshots:
        return None, None
    start, end = mark.raw_to if mark else None, newest.source_to
    return (start if start is not None and is_kept_since(raw, start, end) else None), end


def _has_older_versions(source: TableView, start: int, end: int) -> bool:
    """Whether RAW may have versions that Standardized had no more when it was read, or never had."""
    batches = batches_between(source, start, end)
    if not batches:
        return True
    # What the first batch replaced was current when Curated last read.
    return any(mark.counts["superseded"] for mark in batches) or any(mark.counts["updated"] for mark in batches[1:])


def _check_columns(topic: str, schema: Schema, source: TableView) -> None:
    """Check before a batch begins, because it is repeated with the same schema."""
    known = set(source.columns) - set(STANDARDIZED_SYSTEM_COLUMNS)
    missing = [column.name for column in schema.payload_columns if not column.path and column.name not in known]
    if missing:
        raise UsageError(
            f"{topic}: the schema names {', '.join(missing)} without a path, and Standardized has no such column; "
            "give it a path and deploy the schema again"
        )


def _check_read(begun: CurateBatch, read: int) -> None:
    """Of a single batch of Standardized, its own commit says how many rows it changed."""
    batches = batches_between(begun.source, begun.batch.source_from or 0, begun.batch.source_to)
    if batches is None or len(batches) != 1:
        _check_sole_writer(begun)
        return
    (only,) = batches
    changed = added_rows(only.counts)
    if read != changed:
        raise UnbalancedBatchError(
            f"{begun.batch.topic}: read {read} rows of Standardized batch {only.batch_id}, which changed {changed}"
        )


def _check_sole_writer(begun: CurateBatch) -> None:
    """Of several batches no count says how many rows they left: where others added some, a key may be there twice."""
    read = begun.batch.source_from or 0
    for snapshot in begun.source.ancestors():
        mark = watermark_from(snapshot)
        if mark and mark.batch_seq <= read:
            return
        if is_foreign(snapshot) and not is_compaction(snapshot) and snapshot.added_records:
            raise UnbalancedBatchError(
                f"{begun.source.name}: another tool added rows in snapshot {snapshot.snapshot_id}, which may double "
                f"keys; rebuild it from RAW with: leanops rebuild {begun.batch.topic}"
            )


def _check_spike(begun: CurateBatch, counts: CuratedCounts) -> None:
    allowed = begun.schema.policies.cde_error_rate_fail
    if allowed is not None and counts.read and counts.cde_missing / counts.read > allowed:
        raise SpikeError(
            f"{begun.batch.topic}: critical values are missing in {counts.cde_missing:,} of {counts.read:,} rows, more "
            f"than {allowed:.0%}; check the rows, then run: leanops cycle --topic {begun.batch.topic} --accept-errors"
        )
