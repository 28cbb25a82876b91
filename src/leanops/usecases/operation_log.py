"""Operations in the state store: recorded before they start, closed when nothing is left to do.

A row is never deleted: its generation refuses a worker that lost the lease and continues regardless.
"""

import msgspec

from leanops.domain.errors import LeaseLostError, StateConflictError, UsageError
from leanops.domain.table.operation import Operation, Stage, UnfinishedOperation, to_text, unfinished_from
from leanops.ports.state import OPERATIONS, Row, Stored
from leanops.usecases.leases import Lease, is_held
from leanops.usecases.platform import Platform


def unfinished_operation(platform: Platform, topic: str) -> UnfinishedOperation | None:
    """The unfinished operation of a topic, if any."""
    stored = platform.state.get(OPERATIONS, (topic,))
    return unfinished_from(stored.row) if stored else None


def unfinished_operations(platform: Platform) -> dict[str, UnfinishedOperation]:
    """Every unfinished operation by its topic."""
    found = (unfinished_from(stored.row) for stored in platform.state.rows(OPERATIONS))
    return {one.operation.topic: one for one in found if one}


def check_free(platform: Platform, topic: str) -> None:
    """Raise if an operation is unfinished: a second one would build on tables that are about to change."""
    found = unfinished_operation(platform, topic)
    if found:
        raise UsageError(f"{topic}: {found.sentence()}")


def begin(platform: Platform, operation: Operation, stage: Stage, lease: Lease) -> UnfinishedOperation:
    """Record an operation before any work on it; a worker that has lost the lease withdraws it."""
    platform.step("before operation")
    stored = platform.state.get(OPERATIONS, (operation.topic,))
    _write(platform, operation, stage, None, lease, stored)
    if not is_held(platform, lease):
        close(platform, operation, lease)
        raise LeaseLostError(lease.resource, lease.generation)
    platform.step("after operation")
    return UnfinishedOperation(operation, stage, None)


def agree(platform: Platform, found: UnfinishedOperation, lease: Lease) -> UnfinishedOperation:
    """Record what a person agreed to; the operation is no longer blocked."""
    _update(platform, found.operation, found.stage, None, lease)
    return UnfinishedOperation(found.operation, found.stage, None)


def begin_attempt(platform: Platform, operation: Operation, lease: Lease) -> Operation:
    """Record that tables are built under this lease from now on."""
    attempt = msgspec.structs.replace(operation, attempts=(*operation.attempts, lease.generation))
    with platform.durable("attempt"):
        _update(platform, attempt, Stage.BUILDING, None, lease)
    return attempt


def advance(platform: Platform, operation: Operation, lease: Lease) -> None:
    """Enter the stage in which an operation can only be finished."""
    with platform.durable("going"):
        _update(platform, operation, Stage.GOING, None, lease)


def block(platform: Platform, operation: Operation, reason: str, lease: Lease) -> None:
    """Record that the operation waits for a person."""
    _update(platform, operation, Stage.BUILDING, reason, lease)


def close(platform: Platform, operation: Operation, lease: Lease) -> None:
    """Record that an operation is finished or cancelled."""
    stored = platform.state.get(OPERATIONS, (operation.topic,))
    if stored and stored.row["operation_id"] == operation.operation_id:
        with platform.durable("operation closed"):
            _write(platform, operation, Stage.CLOSED, None, lease, stored)


def _update(platform: Platform, operation: Operation, stage: Stage, blocked: str | None, lease: Lease) -> None:
    """Update an open operation; one that others finished or cancelled is not revived."""
    stored = platform.state.get(OPERATIONS, (operation.topic,))
    found = unfinished_from(stored.row) if stored else None
    if found is None or found.operation.operation_id != operation.operation_id:
        raise StateConflictError(OPERATIONS.name, (operation.topic,))
    _write(platform, operation, stage, blocked, lease, stored)


def _write(
    platform: Platform, operation: Operation, stage: Stage, blocked: str | None, lease: Lease, stored: Stored | None
) -> None:
    if stored and int(stored.row["generation"] or 0) > lease.generation:
        raise StateConflictError(OPERATIONS.name, (operation.topic,))
    row: Row = {
        "topic_name": operation.topic,
        "operation_id": operation.operation_id,
        "intent": to_text(operation),
        "stage": stage.value,
        "blocked": blocked,
        "generation": lease.generation,
        "updated_at": platform.now_ms(),
    }
    platform.state.put(OPERATIONS, row, expected=stored.revision if stored else None)
