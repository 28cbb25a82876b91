"""Standardized → Curated for one topic: prepare and count, then commit exactly once."""

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

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
from leanops.ports.engine import CurateWork, Target, Written
from leanops.transforms.frames import curate as rows
from leanops.transforms.judge import sources_of
from leanops.usecases.journal import begin, begin_another, repair_checkpoint
from leanops.usecases.leases import HeldTopic
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
    target = without_late_batches(held, CURATED, curated_table(platform, schema))
    mark = valid_watermark(target)
    if mark:
        repair_checkpoint(held, CURATED, mark)
    batch = _next_batch(held, schema, source, newest, target, mark)
    return CurateBatch(batch, schema, source, target) if batch else None


def work_of(platform: Platform, begun: CurateBatch, errors: str | None = None) -> CurateWork:
    """What the engine has to do for a batch."""
    batch, databases = begun.batch, platform.rules.databases
    return CurateWork(
        batch=batch,
        standardized=begun.source.name,
        raw=databases.raw_table(batch.topic),
        target=Target(begun.target.name, begun.target.uuid, begun.target.head, errors or databases.errors),
        schema=begun.schema,
        paths=begun.source.paths,
        secret=secret_key(platform, batch.topic) if begun.schema.seals else None,
    )


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


def _check_read(begun: CurateBatch, read: int) -> None:
    """Of a single batch of Standardized, its own commit says how many rows it changed."""
    start, end = begun.batch.source_from or 0, begun.batch.source_to
    marks = [mark for snapshot in begun.source.ancestors() if (mark := watermark_from(snapshot))]
    between = [mark for mark in marks if start < mark.batch_seq <= end]
    if len(between) != 1:
        return
    only = between[0]
    is_first = only.totals.rows == only.counts["inserted"]
    changed = only.counts["inserted"] + only.counts["updated"]
    if (is_first or any(mark.batch_seq <= start for mark in marks)) and read != changed:
        raise UnbalancedBatchError(
            f"{begun.batch.topic}: read {read} rows of Standardized batch {only.batch_id}, which changed {changed}"
        )


def _check_spike(begun: CurateBatch, counts: CuratedCounts) -> None:
    allowed = begun.schema.policies.cde_error_rate_fail
    if allowed is not None and counts.read and counts.cde_missing / counts.read > allowed:
        raise SpikeError(
            f"{begun.batch.topic}: {counts.cde_missing} of {counts.read} rows lack a critical value, more than "
            f"{allowed:.0%}; look at them, then run: leanops cycle --topic {begun.batch.topic} --accept-errors"
        )
