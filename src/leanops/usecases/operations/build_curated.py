"""Builds a new Curated from Standardized, in portions of its periods."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
from pyspark.sql import DataFrame

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.balance import CuratedCounts
from leanops.domain.table.batch import CURATED, Batch
from leanops.domain.table.definitions import ERRORS
from leanops.domain.table.history import TableView, has_batch, valid_watermark
from leanops.transforms.frames import curate as rows_of
from leanops.usecases.operations.shadow import Portion, Shadow, portions
from leanops.usecases.pipeline import curate
from leanops.usecases.pipeline.curate import curated_definition
from leanops.usecases.pipeline.prepared import Prepared

_ALL = 2**62
"""More batches than any table has."""


def build_curated(shadow: Shadow) -> None:
    """Build from all of Standardized, continuing where an earlier attempt stopped."""
    view, snapshot = shadow.source()
    catalog = shadow.platform.catalog
    shadow.create(shadow.curated, curated_definition(shadow.schema))
    shadow.create(shadow.errors, ERRORS)
    periods: dict[str | None, int] = {}
    for (period, *_), rows in catalog.partitions(view.name, snapshot).items():
        periods[period] = periods.get(period, 0) + rows
    done = 0
    for portion in portions(periods, shadow.operation.portion_rows):
        shadow.progress(CURATED, done, sum(periods.values()))
        _curate(shadow, view, snapshot, portion)
        done += portion.rows
    shadow.progress(CURATED, done, done)
    read, expected = curated_counts(shadow).read, _rows(shadow)
    if read != expected:
        raise UnbalancedBatchError(f"{shadow.operation.topic}: Standardized has {expected} rows, {read} were judged")


def curated_batch(shadow: Shadow) -> Batch:
    """All of Standardized as one batch."""
    operation = shadow.operation
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
        schema_version=shadow.schema.version,
        starts_base=True,
        source_timeline=operation.standardized_batch,
        key_check=operation.key_check if shadow.schema.seals else "",
    )


def curated_counts(shadow: Shadow) -> CuratedCounts:
    """All portions as one batch into an empty table; rows beyond them stand for keys whose newest version fails."""
    found = shadow.summed(shadow.curated, ("read", "errors", "cde_missing"))
    rows = sum(snapshot.added_records for snapshot in shadow.view(shadow.curated).ancestors())
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


def append_good(shadow: Shadow, mark: str, good: DataFrame, counts: Mapping[str, int]) -> None:
    """Rows that passed into the shadow of Curated, in one commit that says how many they were."""
    batch = curated_batch(shadow)
    rows = rows_of.table_rows(
        good,
        shadow.schema,
        batch_seq=batch.batch_seq,
        batch_id=batch.batch_id,
    )
    shadow.held.check()
    with shadow.platform.durable("shadow curated"):
        summary = {f"leanops.count.{name}": str(count) for name, count in counts.items()}
        shadow.lake.append(rows, shadow.curated, {"leanops.batch-id": mark, **summary})


def _rows(shadow: Shadow) -> int:
    """How many rows what Curated is made from has, by its own watermark."""
    built = shadow.find(shadow.standardized)
    mark = valid_watermark(built) if built else None
    assert shadow.operation.standardized is not None
    return mark.totals.rows if mark else shadow.operation.standardized.rows


def _curate(shadow: Shadow, view: TableView, snapshot: int, portion: Portion) -> None:
    """Bring one portion of Standardized into the shadow, the way every batch goes."""
    mark, target = portion.mark(shadow.operation), shadow.view(shadow.curated)
    if has_batch(target, mark):
        return
    batch = msgspec.structs.replace(curated_batch(shadow), source_snapshot=snapshot, source_to=_ALL)
    begun = curate.CurateBatch(batch, shadow.schema, view, target)
    work = replace(curate.work_of(shadow.platform, begun, shadow.errors), periods=portion.values)
    (written,) = shadow.platform.engine().curate([work])
    if isinstance(written, Exception):
        raise written
    counts = CuratedCounts(read=written.read, **written.counts)
    summary = {f"leanops.count.{name}": str(getattr(counts, name)) for name in ("read", "errors", "cde_missing")}
    prepared = Prepared(batch, work.target, written, counts, {"leanops.batch-id": mark, **summary})
    prepared.check()
    if counts.updated or counts.unchanged:
        raise UnbalancedBatchError(f"{shadow.operation.topic}: a key of Standardized is in the new Curated already")
    shadow.append_errors(written, shadow.errors)
    shadow.held.check()
    with shadow.platform.durable("shadow curated"):
        shadow.platform.engine().commit(prepared.target, written, prepared.summary)
