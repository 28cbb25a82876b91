"""Builds a new Curated from Standardized, in portions of its periods."""

from collections.abc import Mapping
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.balance import CuratedCounts
from leanops.domain.table.batch import CURATED, Batch
from leanops.domain.table.definitions import ERRORS
from leanops.domain.table.history import TableView, has_batch, valid_watermark
from leanops.transforms.frames import curate as rows_of
from leanops.transforms.frames import quarantine
from leanops.usecases.operations.shadow import Portion, Shadow, portions
from leanops.usecases.pipeline.curate import curated_definition, judged_rows


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
    mark = portion.mark(shadow.operation)
    if has_batch(shadow.view(shadow.curated), mark):
        return
    shadow.lake.fit(portion.rows)
    period = F.col("period_reference")
    chosen = period.isin([value for value in portion.values if value is not None])
    source = shadow.lake.at(view.name, snapshot).where(chosen | period.isNull() if None in portion.values else chosen)
    judged = judged_rows(shadow.platform, shadow.operation.topic, shadow.schema, view, source).persist(
        StorageLevel.MEMORY_AND_DISK
    )
    try:
        _append_judged(shadow, mark, judged)
    finally:
        judged.unpersist()


def _append_judged(shadow: Shadow, mark: str, judged: DataFrame) -> None:
    """Good rows into the shadow of Curated, the others into that of its errors."""
    is_bad = F.col("failures").isNotNull()
    lacks_cde = F.exists("failures", lambda failure: failure["rule"] == "cde_missing")
    found: Any = judged.agg(
        F.count(F.lit(1)).alias("read"),
        F.count_if(is_bad).alias("errors"),
        F.count_if(lacks_cde).alias("cde_missing"),
    ).first()
    if found["errors"]:
        bad = quarantine.error_rows(judged.where(is_bad), curated_batch(shadow), shadow.raw)
        shadow.append_errors(bad, shadow.errors)
    append_good(shadow, mark, judged.where(~is_bad), found.asDict())
