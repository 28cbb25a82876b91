"""A batch that was given up while its worker stalled, and was committed all the same, is taken out again."""

from collections.abc import Sequence
from itertools import takewhile

from leanops.domain.batches import pipeline_id
from leanops.domain.snapshots import Snapshot, TableView, is_rewrite, watermark_from
from leanops.ports.state import ABANDONED_BATCHES
from leanops.usecases.batches import abandon, checkpoint, open_batch, set_checkpoint
from leanops.usecases.leases import Lease, check
from leanops.usecases.platform import Platform


def take_out_late(platform: Platform, topic: str, layer: str, table: TableView, lease: Lease) -> bool:
    """Roll a table back to before a late batch, if it has one; whether it had.

    The batch that is under way goes with it, for it was counted without the late one. Where others have written since,
    the table is left as it is: `status` tells of their snapshots.
    """
    newest = _newest(platform, topic, layer, table)
    late = _abandoned(platform, topic, layer, newest)
    if not late:
        return False
    ours = open_batch(platform, topic, layer)
    above = newest[: newest.index(late[-1])]
    known = {*(one.batch_id for one in late), ours.batch_id if ours else None}
    back_to = late[-1].parent_id
    if any(not is_rewrite(one) and one.batch_id not in known for one in above):
        return False
    if back_to is not None and back_to not in table.snapshots:
        return False
    check(platform, lease)
    platform.step("before late batch taken out")
    platform.catalog.roll_back(table.name, back_to, only_at=table.head)
    platform.step("after late batch taken out")
    # Whoever has read the late batch finds out: the next batch begins another timeline.
    mark = watermark_from(late[0])
    assert mark is not None
    set_checkpoint(platform, topic, layer, mark, lease)
    abandon(platform, topic, layer, table.name, lease)
    return True


def _newest(platform: Platform, topic: str, layer: str, table: TableView) -> list[Snapshot]:
    """The snapshots since the one of the checkpoint, newest first; all of them where that is not in the table."""
    last = checkpoint(platform, topic, layer)
    return list(takewhile(lambda one: not last or one.snapshot_id != last["snapshot_id"], table.ancestors()))


def _abandoned(platform: Platform, topic: str, layer: str, newest: Sequence[Snapshot]) -> list[Snapshot]:
    pipeline = pipeline_id(topic, layer)
    keys = {one.snapshot_id: (pipeline, one.batch_id) for one in newest if one.batch_id}
    found = platform.state.get_many(ABANDONED_BATCHES, list(dict.fromkeys(keys.values()))) if keys else {}
    return [one for one in newest if keys.get(one.snapshot_id) in found]
