"""Replaces the live tables by the shadow tables: error rows first, then Standardized, Curated last."""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from leanops.domain.errors import CommitRefusedError, UnbalancedBatchError
from leanops.domain.table.batch import CURATED, STANDARDIZED, Batch
from leanops.domain.table.definitions import ERRORS
from leanops.domain.table.history import (
    has_batch,
    is_same_data,
    valid_watermark,
    watermark_from,
    watermark_of,
)
from leanops.domain.table.operation import Operation, Scope
from leanops.ports.engine import TableAt
from leanops.usecases.attempts import forget_failures
from leanops.usecases.journal import set_checkpoint
from leanops.usecases.leases import HeldTopic
from leanops.usecases.operations.build_curated import curated_batch, curated_counts
from leanops.usecases.operations.build_standardized import standardized_batch, standardized_counts
from leanops.usecases.operations.shadow import Shadow
from leanops.usecases.pipeline.curate import curated_table, sealed_with
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.run_history import LayerResult, record


def swap(shadow: Shadow) -> None:
    """Replace each table in one commit with its watermark; what an earlier attempt did is kept."""
    done = {}
    if shadow.operation.scope == Scope.BOTH:
        _put_errors(shadow, shadow.parse_errors, shadow.platform.rules.databases.parse_errors)
        done[STANDARDIZED] = _swap_standardized(shadow)
    _put_errors(shadow, shadow.errors, shadow.platform.rules.databases.errors)
    done[CURATED] = _swap_curated(shadow)
    for layer, result in done.items():
        mark = watermark_from(result.snapshot)
        assert mark is not None
        set_checkpoint(shadow.held, layer, mark)
        forget_failures(shadow.platform, shadow.operation.topic, layer)
    cycle_id = f"{shadow.operation.work.value}-{shadow.operation.operation_id}"
    record(shadow.platform, cycle_id, [(shadow.held, done)], is_repeated=True)


def head_to_replace(held: HeldTopic, operation: Operation, layer: str, name: str) -> int | None:
    """The head of a live table; raises CommitRefusedError if its rows have changed since the operation began."""
    view, expected, agreed = held.platform.catalog.load(name), operation.head_of(layer), operation.agreed_heads
    if view is None or is_same_data(view, expected) or (layer in agreed and agreed[layer] == view.head):
        return view.head if view else None
    with suppress(UnbalancedBatchError):
        view = without_late_batches(held, layer, view)
        if is_same_data(view, expected):
            return view.head
    again = f"leanops rebuild {operation.topic}"
    raise CommitRefusedError(
        f"{name} was changed by another writer since the operation began; nothing was replaced; replace that too with: "
        f"{again} --resume --accept-missing all, or, while nothing of it is live, undo it with: {again} --cancel"
    )


def _put_errors(shadow: Shadow, source: str, target: str) -> None:
    platform = shadow.platform
    view = shadow.find(source)
    if view is None or view.head is None:
        return
    platform.catalog.create(target, ERRORS)
    shadow.held.check()
    with platform.durable("errors"):
        platform.engine().put_errors(TableAt(source, view.head), target, shadow.operation.topic)


def _swap_standardized(shadow: Shadow) -> LayerResult:
    there = _committed(shadow, shadow.live_standardized, standardized_batch(shadow))
    if there:
        return there
    built = valid_watermark(shadow.view(shadow.standardized))
    assert built is not None
    batch = msgspec.structs.replace(standardized_batch(shadow), batch_seq=built.batch_seq)
    counts, totals = standardized_counts(shadow)
    summary = watermark_of(batch, counts, totals).summary()
    rows = {"added-records": str(totals.rows)}
    return _take_place(shadow, shadow.live_standardized, shadow.standardized, batch, {**summary, **rows})


def _swap_curated(shadow: Shadow) -> LayerResult:
    there = _committed(shadow, shadow.live_curated, curated_batch(shadow))
    if there:
        return there
    # Standardized is in place by now, whether it was rebuilt, rolled back or left alone.
    read = shadow.view(shadow.live_standardized)
    ours = has_batch(read, shadow.operation.standardized_batch)
    mark = watermark_from(ours) if ours else valid_watermark(read)
    assert mark is not None
    batch = msgspec.structs.replace(curated_batch(shadow), source_timeline=mark.timeline.name, raw_to=mark.source_to)
    if ours:
        batch = msgspec.structs.replace(batch, source_to=mark.batch_seq, source_snapshot=ours.snapshot_id)
    if shadow.platform.catalog.load(shadow.live_curated) is None:
        curated_table(shadow.held, shadow.schema)
    counts = curated_counts(shadow)
    rows = {"added-records": str(counts.added)}
    summary = {**watermark_of(batch, counts).summary(), **sealed_with(shadow.platform), **rows}
    return _take_place(shadow, shadow.live_curated, shadow.curated, batch, summary)


def _take_place(shadow: Shadow, target: str, source: str, batch: Batch, summary: Mapping[str, str]) -> LayerResult:
    """Commit once, found again if the answer is lost; the table refuses it if another writer was first."""
    platform = shadow.platform
    built = shadow.view(source)
    assert built.head is not None
    head = head_to_replace(shadow.held, shadow.operation, batch.layer, target)
    shadow.held.check()
    platform.step(f"before replace {batch.layer}")
    try:
        platform.catalog.take_place(target, source, built.head, summary, only_at=head, after=batch.batch_seq)
    except Exception:
        # Whatever the engine answered, the table decides.
        if _committed(shadow, target, batch) is None:
            raise
    platform.step(f"after replace {batch.layer}")
    there = _committed(shadow, target, batch)
    assert there is not None, target
    return there


def _committed(shadow: Shadow, target: str, batch: Batch) -> LayerResult | None:
    """The batch as committed to the live table, if it is; its shadow may be gone by then."""
    view = shadow.platform.catalog.load(target)
    snapshot = has_batch(view, batch.batch_id) if view else None
    mark = watermark_from(snapshot) if snapshot else None
    return LayerResult(batch, mark.counts, snapshot, None) if snapshot and mark else None
