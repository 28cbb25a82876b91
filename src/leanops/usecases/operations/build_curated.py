"""Builds a new Curated from Standardized, in portions of its periods."""

from dataclasses import replace

import msgspec

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.balance import CuratedCounts
from leanops.domain.table.batch import CURATED, Batch
from leanops.domain.table.definitions import ERRORS
from leanops.domain.table.history import TableView, has_batch, valid_watermark
from leanops.usecases.operations.shadow import Portion, Shadow, portions
from leanops.usecases.pipeline import curate
from leanops.usecases.pipeline.curate import curated_definition
from leanops.usecases.pipeline.prepared import Prepared

_COUNTED = ("read", "errors", "cde_missing", "judged_older", "kept_older")
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
    _keep_older_versions(shadow, view, snapshot)
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
        limits=operation.limits,
        starts_base=True,
        source_timeline=operation.standardized_batch,
        key_check=operation.key_check if shadow.schema.seals else "",
    )


def curated_counts(shadow: Shadow) -> CuratedCounts:
    """All portions as one batch into an empty table; a key of which an older version was kept is behind."""
    sums = shadow.summed(shadow.curated, _COUNTED)
    passed = sums["read"] - sums["errors"]
    counts = CuratedCounts(inserted=passed, updated=0, unchanged=0, behind=sums["kept_older"], **sums)
    counts.check()
    return counts


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
    counts = _write(shadow, curate.CurateBatch(batch, shadow.schema, view, target), portion.values, mark)
    if counts.updated or counts.unchanged:
        raise UnbalancedBatchError(f"{shadow.operation.topic}: a key of Standardized is in the new Curated already")


def _keep_older_versions(shadow: Shadow, view: TableView, snapshot: int) -> None:
    """For each key whose newest version fails, the newest one in RAW that passes."""
    mark, target = f"{shadow.operation.operation_id}/older", shadow.view(shadow.curated)
    read, raw = valid_watermark(replace(view, head=snapshot)), shadow.platform.catalog.load(shadow.raw)
    is_needed = shadow.summed(shadow.curated, ("errors",))["errors"] > 0
    if not is_needed or raw is None or raw.head is None or has_batch(target, mark):
        return
    # Nothing of Standardized is read: what is not in the new Curated by now has failed.
    batch = msgspec.structs.replace(
        curated_batch(shadow),
        source_snapshot=snapshot,
        source_from=_ALL,
        raw_to=read.source_to if read and read.source_to in raw.snapshots else None,
        older_versions=True,
    )
    _write(shadow, curate.CurateBatch(batch, shadow.schema, view, target), (), mark)


def _write(shadow: Shadow, begun: curate.CurateBatch, periods: tuple[str | None, ...], mark: str) -> CuratedCounts:
    """Bring rows into the shadow in one commit that says how many they are."""
    work = replace(curate.work_of(shadow.platform, begun, shadow.errors), periods=periods)
    (written,) = shadow.platform.engine().curate([work])
    if isinstance(written, Exception):
        raise written
    counts = CuratedCounts(read=written.read, **written.counts)
    summary = {f"leanops.count.{name}": str(getattr(counts, name)) for name in _COUNTED}
    prepared = Prepared(begun.batch, work.target, written, counts, {"leanops.batch-id": mark, **summary})
    prepared.check()
    shadow.append_errors(written, shadow.errors)
    shadow.held.check()
    with shadow.platform.durable("shadow curated"):
        shadow.platform.engine().commit(prepared.target, written, prepared.summary)
    return counts
