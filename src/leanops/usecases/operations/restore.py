"""Undoes what an operation changed: rolls tables back to an earlier snapshot, restores error rows."""

from bisect import bisect_left
from dataclasses import replace
from typing import Any

from leanops.domain.errors import CommitRefusedError
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.history import Snapshot, TableView, has_batch, is_ancestor, valid_watermark
from leanops.domain.table.operation import Operation
from leanops.ports.tables import Where
from leanops.usecases.leases import HeldTopic
from leanops.usecases.operations.swap import head_to_replace
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import pause_topic


def roll_back(held: HeldTopic, operation: Operation) -> None:
    """Roll back Standardized, and Curated if it has a matching snapshot; what an earlier attempt did is kept."""
    pause_topic(held.platform, held.topic, operation.pause_reason, guard=held.check)
    _roll_back_standardized(held, operation)
    if operation.curated_back_to is not None:
        schema = held.platform.schemas.active(held.topic)
        assert schema is not None
        _roll_back_curated(held, operation, schema.table_name)


def _roll_back_curated(held: HeldTopic, operation: Operation, table_name: str) -> None:
    platform = held.platform
    name = platform.rules.databases.curated_table(table_name)
    view = platform.catalog.load(name)
    if view is None or view.head == operation.curated_back_to:
        return
    if operation.curated_back_to not in view.snapshots:
        # The cycle after `resume` finds that Standardized has moved, and rebuilds Curated from it.
        reason = f"{operation.pause_reason}; until then {name} stays as it is, because its own snapshot has expired"
        pause_topic(platform, held.topic, reason, guard=held.check)
        return
    held.check()
    with platform.durable("rollback curated"):
        head = head_to_replace(held, operation, CURATED, name)
        platform.catalog.roll_back(name, operation.curated_back_to, only_at=head)


def _roll_back_standardized(held: HeldTopic, operation: Operation) -> None:
    platform = held.platform
    name = platform.rules.databases.standardized_table(operation.topic)
    view = platform.catalog.load(name)
    assert view is not None
    assert operation.back_to is not None
    if view.head == operation.back_to or has_batch(view, operation.standardized_batch):
        _restore_columns(platform, operation, name)
        return
    if operation.back_to not in view.snapshots:
        raise CommitRefusedError(
            f"{name}: snapshot {operation.back_to} has expired since the rollback began; undo the rollback with: "
            f"leanops rebuild {operation.topic} --cancel"
        )
    held.check()
    platform.step("before rollback standardized")
    head = head_to_replace(held, operation, STANDARDIZED, name)
    if is_ancestor(view, operation.back_to):
        platform.catalog.roll_back(name, operation.back_to, only_at=head)
    else:
        # The table as it was, with the watermark it had then.
        mark = valid_watermark(replace(view, head=operation.back_to))
        assert mark is not None
        summary = replace(mark, batch_id=operation.standardized_batch).summary()
        platform.catalog.take_place(name, name, operation.back_to, summary, only_at=head, after=mark.batch_seq)
        platform.step("after bring back")
    _restore_columns(platform, operation, name)
    platform.step("after rollback standardized")


def _restore_columns(platform: Platform, operation: Operation, name: str) -> None:
    """Restore the columns of that time after a rebuild in between; later columns stay, empty."""
    platform.catalog.alter(name, {column: ("string", path) for path, column in operation.columns.items()})


def restore_errors(platform: Platform, operation: Operation) -> None:
    """Restore both error tables, as far as this operation changed them; safe to repeat."""
    databases = platform.rules.databases
    for name, batch_id in (
        (databases.parse_errors, operation.standardized_batch),
        (databases.errors, operation.curated_batch),
    ):
        view = platform.catalog.load(name)
        written = {"topic_name": operation.topic, "batch_id": batch_id}
        ours = platform.catalog.select(name, ["error_id", "attempts"], written)
        if view is None or not ours:
            continue
        renewed = {row["error_id"] for row in ours if row["attempts"] > 1}
        before = _rows_before(platform, view, operation.topic, written) if renewed else []
        # Their earlier form expired with its snapshot: a row with newer failures is better than none.
        goes = {**written, "attempts": 1} if renewed and not before else written
        with platform.durable("errors taken back"):
            platform.catalog.replace(name, goes, [row for row in before if row["error_id"] in renewed])


def _rows_before(platform: Platform, view: TableView, topic: str, written: Where) -> list[dict[str, Any]]:
    """The topic's rows just before these were written; nobody else writes rows of a topic during its operation."""

    def holds(snapshot: Snapshot) -> bool:
        return bool(platform.catalog.select(view.name, ["error_id"], written, at=snapshot.snapshot_id))

    history = view.ancestors()[::-1]
    first = bisect_left(history, True, key=holds)
    if not first:
        return []
    at = history[first - 1].snapshot_id
    return platform.catalog.select(view.name, list(view.columns), {"topic_name": topic}, at=at)
