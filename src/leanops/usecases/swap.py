"""What was built beside the live tables takes their place: error rows first, Standardized, Curated last."""

from collections.abc import Mapping

import msgspec
from pyspark.sql import functions as F

from leanops.domain.batches import CURATED, STANDARDIZED, Batch
from leanops.domain.operations import Scope
from leanops.domain.snapshots import has_batch, watermark_from, watermark_of
from leanops.domain.tables import ERRORS, TableDefinition
from leanops.usecases.batches import set_checkpoint
from leanops.usecases.curate import curated_definition, sealed_with
from leanops.usecases.leases import check
from leanops.usecases.record_runs import LayerResult, record_once
from leanops.usecases.shadow import Shadow


def swap(shadow: Shadow) -> None:
    """Put the new tables in place, each in one commit with its watermark; what an earlier try did stays."""
    done = {}
    if shadow.operation.scope == Scope.BOTH:
        _put_errors(shadow, shadow.parse_errors, shadow.platform.rules.databases.parse_errors)
        done[STANDARDIZED] = _swap_standardized(shadow)
    _put_errors(shadow, shadow.errors, shadow.platform.rules.databases.errors)
    done[CURATED] = _swap_curated(shadow, done.get(STANDARDIZED))
    for layer, result in done.items():
        mark = watermark_from(result.snapshot)
        assert mark is not None
        set_checkpoint(shadow.platform, shadow.operation.topic, layer, mark, shadow.lease)
    record_once(shadow.platform, f"{shadow.operation.work.value}-{shadow.operation.operation_id}", done)


def _put_errors(shadow: Shadow, source: str, target: str) -> None:
    platform = shadow.platform
    view = platform.catalog.load(source)
    if view is None or view.head is None:
        return
    platform.catalog.create(target, ERRORS)
    platform.step("before errors")
    shadow.lake.put_errors(shadow.lake.at(source, view.head), target, shadow.operation.topic)
    platform.step("after errors")


def _swap_standardized(shadow: Shadow) -> LayerResult:
    batch = shadow.standardized_batch()
    there = _committed(shadow, shadow.live_standardized, batch)
    if there:
        return there
    counts, totals = shadow.standardized_counts()
    summary = watermark_of(batch, counts, totals).summary()
    definition = shadow.standardized_definition()
    return _replace(shadow, shadow.standardized, shadow.live_standardized, definition, batch, summary)


def _swap_curated(shadow: Shadow, standardized: LayerResult | None) -> LayerResult:
    read = standardized.snapshot.snapshot_id if standardized else shadow.source()[1]
    batch = msgspec.structs.replace(shadow.curated_batch(), source_snapshot=read)
    there = _committed(shadow, shadow.live_curated, batch)
    if there:
        return there
    summary = {**watermark_of(batch, shadow.curated_counts()).summary(), **sealed_with(shadow.platform)}
    definition = curated_definition(shadow.schema)
    return _replace(shadow, shadow.curated, shadow.live_curated, definition, batch, summary)


def _replace(
    shadow: Shadow, source: str, target: str, definition: TableDefinition, batch: Batch, summary: Mapping[str, str]
) -> LayerResult:
    """One replace commit, found again if its answer is lost."""
    platform = shadow.platform
    view = platform.catalog.load(source)
    platform.catalog.create(target, definition)
    rows = shadow.lake.at(source, view.head if view else None).withColumns(
        {"_batch_seq": F.lit(batch.batch_seq).cast("bigint"), "_batch_id": F.lit(batch.batch_id)}
    )
    check(platform, shadow.lease)
    platform.step(f"before replace {batch.layer}")
    try:
        shadow.lake.replace(rows, target, definition, summary)
    except Exception:
        # Whatever was said, the table knows.
        if _committed(shadow, target, batch) is None:
            raise
    platform.step(f"after replace {batch.layer}")
    there = _committed(shadow, target, batch)
    assert there is not None, target
    return there


def _committed(shadow: Shadow, target: str, batch: Batch) -> LayerResult | None:
    """The batch as the live table holds it, if it does; what it was made from may be gone by then."""
    view = shadow.platform.catalog.load(target)
    snapshot = has_batch(view, batch.batch_id) if view else None
    mark = watermark_from(snapshot) if snapshot else None
    return LayerResult(batch, mark.counts, snapshot, None) if snapshot and mark else None
