"""Finds the batch a layer has to work on next: one that was begun, as long as it still applies, or a new one."""

from leanops.domain.table.batch import STANDARDIZED, Batch
from leanops.domain.table.history import TableView, Watermark, is_ancestor, is_kept_since
from leanops.usecases.journal import checkpoint, open_batch
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.late_batches import is_abandoned
from leanops.usecases.platform import key_check


def next_key_check(held: HeldTopic, layer: str, mark: Watermark | None, *, seals: bool) -> str:
    """The check value of the key the next batch seals with; raises if the table is sealed with another key."""
    last = None if mark else checkpoint(held.platform, held.topic, layer)
    before = mark.key_check if mark else str((last and last["key_check"]) or "")
    return key_check(held.platform, held.topic, seals=seals, before=before)


def resumable_batch(
    held: HeldTopic, layer: str, source: TableView, start: int | None, version: int, sealed: str
) -> Batch | None:
    """The open batch if it is still the next one: the same source from `start` on, the same schema and key."""
    begun = open_batch(held.platform, held.topic, layer)
    if (
        begun
        and begun.source_uuid == source.uuid
        and (begun.source_from == start or (begun.is_gap and begun.source_from is None))
        and is_ancestor(source, begun.source_snapshot)
        and not _has_gap(held, layer, source, begun)
        and begun.schema_version == version
        and begun.key_check == sealed
        and not is_abandoned(held.platform, held.topic, layer, begun.batch_id)
    ):
        return begun
    return None


def _has_gap(held: HeldTopic, layer: str, source: TableView, begun: Batch) -> bool:
    """Whether snapshots of RAW have expired between those that a batch was started with."""
    if layer == STANDARDIZED:
        return begun.source_from is not None and not is_kept_since(source, begun.source_from, begun.source_to)
    if not begun.older_versions or begun.raw_to is None:
        return False
    raw = held.platform.catalog.load(held.platform.rules.databases.raw_table(held.topic))
    if raw is None or begun.raw_to not in raw.snapshots:
        return True
    return begun.raw_from is not None and not is_kept_since(raw, begun.raw_from, begun.raw_to)
