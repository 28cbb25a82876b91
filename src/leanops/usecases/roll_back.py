"""The tables of a topic back to where they were: the head moves, or a commit brings back what is no ancestor."""

from dataclasses import replace

from leanops.domain.operations import Operation
from leanops.domain.snapshots import has_batch, is_ancestor, valid_watermark
from leanops.usecases.leases import Lease, check
from leanops.usecases.platform import Platform
from leanops.usecases.swap import head_to_replace
from leanops.usecases.topics import pause_topic


def roll_back(platform: Platform, operation: Operation, lease: Lease) -> None:
    """Standardized, and Curated where it has a snapshot that goes with it; what an earlier try did stays."""
    topic, databases = operation.topic, platform.rules.databases
    reason = f"rolled back to snapshot {operation.back_to}; to redo what came after: leanops topics resume {topic}"
    check(platform, lease)
    pause_topic(platform, topic, reason)
    _roll_back_standardized(platform, operation)
    if operation.curated_back_to is not None:
        schema = platform.schemas.active(topic)
        assert schema is not None
        name = databases.curated_table(schema.table_name)
        check(platform, lease)
        platform.step("before rollback curated")
        head = _head(
            platform, name, operation.curated.snapshot if operation.curated else None, operation.curated_back_to
        )
        platform.catalog.roll_back(name, operation.curated_back_to, only_at=head)
        platform.step("after rollback curated")


def _roll_back_standardized(platform: Platform, operation: Operation) -> None:
    name = platform.rules.databases.standardized_table(operation.topic)
    view = platform.catalog.load(name)
    assert view is not None
    assert operation.back_to is not None
    if view.head == operation.back_to:
        return
    platform.step("before rollback standardized")
    if is_ancestor(view, operation.back_to):
        head = _head(platform, name, operation.standardized_head, operation.back_to)
        platform.catalog.roll_back(name, operation.back_to, only_at=head)
    else:
        _bring_back(platform, operation, name)
    platform.step("after rollback standardized")


def _head(platform: Platform, name: str, expected: int | None, back_to: int) -> int | None:
    """The head a rollback starts from; what an earlier try moved is where it should be."""
    view = platform.catalog.load(name)
    return back_to if view and view.head == back_to else head_to_replace(platform, name, expected)


def _bring_back(platform: Platform, operation: Operation, name: str) -> None:
    """The table as it was, with its columns and the watermark it had then; columns that came later stay, empty."""
    view = platform.catalog.load(name)
    assert view is not None
    assert operation.back_to is not None
    if not has_batch(view, operation.standardized_batch):
        mark = valid_watermark(replace(view, head=operation.back_to))
        assert mark is not None
        summary = replace(mark, batch_id=operation.standardized_batch).summary()
        head = head_to_replace(platform, name, operation.standardized_head)
        platform.catalog.take_place(name, name, operation.back_to, summary, only_at=head, after=mark.batch_seq)
        platform.step("after bring back")
    later = {column: ("string", path) for path, column in operation.columns.items()}
    platform.catalog.alter(name, later)
