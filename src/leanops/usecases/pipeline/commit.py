"""Commits a batch exactly once: under the lease, found again if the answer is lost, checked against the counts."""

from collections.abc import Mapping
from dataclasses import replace

from leanops.domain.errors import CommitRefusedError, UnbalancedBatchError
from leanops.domain.table.batch import Batch
from leanops.domain.table.history import Snapshot, TableView, has_batch, watermark_from
from leanops.domain.words import counted
from leanops.ports.engine import Engine
from leanops.usecases.attempts import record_failure
from leanops.usecases.journal import set_checkpoint
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.platform import Platform


def commit(held: HeldTopic, engine: Engine, prepared: Prepared) -> Snapshot:
    """Commit the batch with its watermark, then copy the watermark to the checkpoint."""
    platform, batch, name = held.platform, prepared.batch, prepared.target.table
    held.check()
    platform.step("before commit")
    try:
        engine.commit(prepared.target, prepared.written, prepared.summary)
    except Exception:
        # Whatever the engine answered, the table decides: an error after the commit must not lead to a second one.
        table = platform.catalog.load(name)
        if table is None or not has_batch(table, batch.batch_id):
            raise
    platform.step("after commit")
    # A worker that took over the topic meanwhile records this batch too; a late writer must not do it again.
    held.check()
    table = platform.catalog.load(name)
    if table is None or not has_batch(table, batch.batch_id):
        raise UnbalancedBatchError(f"{batch.topic}: batch {batch.batch_id} is not in {name} after its commit")
    snapshot = has_batch(without_late_batches(held, batch.layer, table), batch.batch_id)
    if snapshot is None:
        raise CommitRefusedError(
            f"{batch.topic}: an abandoned batch was committed late; it was removed from {name} "
            "together with this one, and the next cycle reads both again"
        )
    check_added(platform, batch, name, snapshot, prepared.counts.added)
    check_replaced(platform, batch, name, snapshot, prepared.counts.replaced)
    mark = watermark_from(snapshot)
    if mark:
        set_checkpoint(held, batch.layer, mark)
    return snapshot


def alter(
    held: HeldTopic, table: TableView, added: Mapping[str, tuple[str, str]], wider: Mapping[str, str] | None = None
) -> TableView:
    """The table as it was, with columns added (name → type and path) or widened in one commit under the lease."""
    if not added and not wider:
        return table
    held.check()
    with held.platform.durable("alter"):
        altered = held.platform.catalog.alter(table.name, added, wider)
    # Whoever committed meanwhile must be noticed: the batch is planned on the head that was seen before.
    return replace(table, columns=altered.columns, paths=altered.paths)


def check_added(platform: Platform, batch: Batch, table: str, snapshot: Snapshot, expected: int) -> None:
    """Park the topic and raise if the snapshot added another number of rows than were counted."""
    _check(platform, batch, table, snapshot, "added", snapshot.added_records, expected)


def check_replaced(platform: Platform, batch: Batch, table: str, snapshot: Snapshot, expected: int) -> None:
    """Park the topic and raise if the snapshot replaced another number of rows than were counted."""
    # A MERGE of an earlier version wrote the deletes of a file again, together with new ones.
    added, again = (int(snapshot.summary.get(f"{kind}-position-deletes", 0)) for kind in ("added", "removed"))
    replaced = added - again
    _check(platform, batch, table, snapshot, "replaced", replaced, expected)


def _check(
    platform: Platform, batch: Batch, table: str, snapshot: Snapshot, what: str, found: int, expected: int
) -> None:
    if found != expected:
        reason = (
            f"{table}: snapshot {snapshot.snapshot_id} {what} {counted(found, 'row')}, not {expected:,}; "
            f"look at batch {batch.batch_id}, then rebuild from RAW with: leanops rebuild {batch.topic}, or take it as "
            f"it is with: leanops topics retry {batch.topic} --accept-counts"
        )
        record_failure(platform, batch.topic, batch.layer, reason, park=True)
        raise UnbalancedBatchError(reason)
