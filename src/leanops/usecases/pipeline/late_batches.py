"""Removes late batches: abandoned while their worker stalled, and committed after all."""

from collections.abc import Sequence
from itertools import takewhile

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.batch import pipeline_id
from leanops.domain.table.history import Snapshot, TableView, has_batch, is_compaction, is_empty
from leanops.ports.state import ABANDONED_BATCHES
from leanops.usecases.attempts import record_failure
from leanops.usecases.journal import checkpoint, open_batch, recorded_batches
from leanops.usecases.leases import HeldTopic
from leanops.usecases.platform import Platform


def without_late_batches(held: HeldTopic, layer: str, table: TableView) -> TableView:
    """The table without late batches; any work on it starts from this view.

    It is rolled back to before the oldest late batch, and loses what was committed since: compactions, and the batch in
    progress, which was counted without the late one. If it cannot be rolled back, the topic is parked.
    """
    platform, topic = held.platform, held.topic
    newest = _newest(platform, topic, layer, table)
    late = _late(platform, topic, layer, table, newest)
    if not late:
        return table
    held.check()
    oldest = late[-1]
    obstacle = _obstacle(platform, topic, layer, table, newest[: newest.index(oldest)], late)
    if obstacle:
        reason = (
            f"{table.name}: batch {oldest.batch_id} had been abandoned and was committed late, and cannot be removed, "
            f"because {obstacle}; rebuild from RAW with: leanops rebuild {topic}"
        )
        record_failure(platform, topic, layer, reason, park=True)
        raise UnbalancedBatchError(reason)
    with platform.durable("late batch taken out"):
        platform.catalog.roll_back(table.name, oldest.parent_id, only_at=table.head)
    again = platform.catalog.load(table.name)
    assert again is not None
    return again


def has_late_batches(platform: Platform, topic: str, layer: str, table: TableView) -> bool:
    """Whether a table holds an abandoned batch."""
    return bool(_late(platform, topic, layer, table, _newest(platform, topic, layer, table)))


def is_abandoned(platform: Platform, topic: str, layer: str, batch_id: str) -> bool:
    """Whether a batch was abandoned."""
    return platform.state.get(ABANDONED_BATCHES, (pipeline_id(topic, layer), batch_id)) is not None


def _newest(platform: Platform, topic: str, layer: str, table: TableView) -> list[Snapshot]:
    """The snapshots since the checkpoint, newest first; all of them if its snapshot is gone."""
    last = checkpoint(platform, topic, layer)
    return list(takewhile(lambda snapshot: not last or snapshot.snapshot_id != last["snapshot_id"], table.ancestors()))


def _late(platform: Platform, topic: str, layer: str, table: TableView, newest: Sequence[Snapshot]) -> list[Snapshot]:
    """The abandoned batches among the newest snapshots; below a recorded batch everything was checked before."""
    keys = [(pipeline_id(topic, layer), snapshot.batch_id) for snapshot in newest if snapshot.batch_id]
    abandoned = platform.state.get_many(ABANDONED_BATCHES, list(dict.fromkeys(keys))) if keys else {}
    if not abandoned:
        return []
    given_up = {batch for _, batch in abandoned}
    recorded = recorded_batches(platform, [batch for _, batch in keys])
    # A worker that repeats a batch late adds a twin without rows: the record is of the first one.
    settled = {first.snapshot_id for batch in recorded if (first := has_batch(table, batch))}
    unsettled = takewhile(lambda snapshot: snapshot.snapshot_id not in settled, newest)
    return [snapshot for snapshot in unsettled if snapshot.batch_id in given_up - recorded]


def _obstacle(
    platform: Platform, topic: str, layer: str, table: TableView, above: Sequence[Snapshot], late: Sequence[Snapshot]
) -> str | None:
    """Why a table cannot be rolled back to before its late batches."""
    ours = open_batch(platform, topic, layer)
    known = {snapshot.batch_id for snapshot in late} | ({ours.batch_id} if ours else set())
    if any(
        not is_compaction(snapshot) and not is_empty(snapshot) and snapshot.batch_id not in known for snapshot in above
    ):
        return "others have written to the table since"
    oldest = late[-1]
    was_empty = oldest.parent_id is None and int(oldest.summary.get("total-records", 0)) == oldest.added_records
    if oldest.parent_id not in table.snapshots and not was_empty:
        return "the snapshot before it has expired"
    return None
