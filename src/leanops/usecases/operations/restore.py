"""What an operation changed is as it was: tables at an earlier snapshot, error rows that it wrote or renewed."""

from bisect import bisect_left
from dataclasses import replace
from typing import Any

from leanops.domain.errors import CommitRefusedError
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.history import Snapshot, TableView, has_batch, is_ancestor, valid_watermark
from leanops.domain.table.operation import Operation
from leanops.ports.tables import Where
from leanops.usecases.leases import Lease, check
from leanops.usecases.operations.swap import head_to_replace
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import pause_topic


def roll_back(platform: Platform, operation: Operation, lease: Lease) -> None:
    """Standardized, and Curated where it has a snapshot that goes with it; what an earlier try did stays."""
    pause_topic(platform, operation.topic, operation.pause_reason, guard=lambda: check(platform, lease))
    _roll_back_standardized(platform, operation, lease)
    if operation.curated_back_to is not None:
        schema = platform.schemas.active(operation.topic)
        assert schema is not None
        _roll_back_curated(platform, operation, schema.table_name, lease)


def _roll_back_curated(platform: Platform, operation: Operation, table_name: str, lease: Lease) -> None:
    name = platform.rules.databases.curated_table(table_name)
    view = platform.catalog.load(name)
    if view is None or view.head == operation.curated_back_to:
        return
    if operation.curated_back_to not in view.snapshots:
        # The cycle after `resume` finds that Standardized has moved, and makes Curated from it.
        reason = f"{operation.pause_reason}; until then {name} is as it was, for its own snapshot has expired"
        pause_topic(platform, operation.topic, reason, guard=lambda: check(platform, lease))
        return
    check(platform, lease)
    with platform.durable("rollback curated"):
        head = head_to_replace(platform, operation, CURATED, name, lease)
        platform.catalog.roll_back(name, operation.curated_back_to, only_at=head)


def _roll_back_standardized(platform: Platform, operation: Operation, lease: Lease) -> None:
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
    check(platform, lease)
    platform.step("before rollback standardized")
    head = head_to_replace(platform, operation, STANDARDIZED, name, lease)
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
    """The columns of then, where a rebuild lies between; those that came later stay, empty."""
    platform.catalog.alter(name, {column: ("string", path) for path, column in operation.columns.items()})


def restore_errors(platform: Platform, operation: Operation) -> None:
    """Put both error tables back, as far as this operation changed them; twice is once."""
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
        # What they were is gone with its snapshot: a row with newer failures is better than none.
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
