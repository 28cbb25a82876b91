"""Commits a batch exactly once: under the lease, found again if the answer is lost, checked against the counts."""

from leanops.domain.errors import CommitRefusedError, UnbalancedBatchError
from leanops.domain.table.batch import Batch
from leanops.domain.table.history import Snapshot, has_batch, watermark_from
from leanops.ports.tables import Lake
from leanops.usecases.attempts import record_failure
from leanops.usecases.journal import set_checkpoint
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.platform import Platform


def commit(held: HeldTopic, lake: Lake, prepared: Prepared) -> Snapshot:
    """MERGE the batch with its watermark, then copy the watermark to the checkpoint."""
    platform, batch = held.platform, prepared.batch
    held.check()
    platform.step("before merge")
    lake.fit(prepared.counts.read)
    try:
        lake.merge(prepared.source_rows, prepared.merge)
    except Exception:
        # Whatever the engine answered, the table decides: an error after the commit must not lead to a second one.
        table = platform.catalog.load(prepared.table)
        if table is None or not has_batch(table, batch.batch_id):
            raise
    platform.step("after merge")
    # A worker that took over the topic meanwhile records this batch too; a late writer must not do it again.
    held.check()
    table = platform.catalog.load(prepared.table)
    if table is None or not has_batch(table, batch.batch_id):
        raise UnbalancedBatchError(f"{batch.topic}: batch {batch.batch_id} is not in {prepared.table} after its commit")
    snapshot = has_batch(without_late_batches(held, batch.layer, table), batch.batch_id)
    if snapshot is None:
        raise CommitRefusedError(
            f"{batch.topic}: an abandoned batch was committed late; it was removed from {prepared.table} "
            "together with this one, and the next cycle reads both again"
        )
    check_added(platform, batch, prepared.table, snapshot, prepared.counts.inserted + prepared.counts.updated)
    mark = watermark_from(snapshot)
    if mark:
        set_checkpoint(held, batch.layer, mark)
    return snapshot


def add_columns(held: HeldTopic, prepared: Prepared) -> None:
    """Add the columns a batch needs to its table, in one commit under the lease."""
    if prepared.added_columns:
        held.check()
        with held.platform.durable("alter"):
            held.platform.catalog.alter(prepared.table, prepared.added_columns)


def check_added(platform: Platform, batch: Batch, table: str, snapshot: Snapshot, expected: int) -> None:
    """Park the topic and raise if the snapshot added another number of rows than were counted."""
    if snapshot.added_records != expected:
        reason = (
            f"{table}: snapshot {snapshot.snapshot_id} added {snapshot.added_records} rows, not {expected}; "
            f"look at batch {batch.batch_id}, then rebuild from RAW with: leanops rebuild {batch.topic}, or take it as "
            f"it is with: leanops topics retry {batch.topic} --accept-counts"
        )
        record_failure(platform, batch.topic, batch.layer, reason, park=True)
        raise UnbalancedBatchError(reason)
