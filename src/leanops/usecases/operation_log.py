"""Operations in the state store: recorded before they start, closed when nothing is left to do.

A row is never deleted: its generation refuses a worker that lost the lease and continues regardless.
"""

import msgspec

from leanops.domain.errors import LeaseLostError, StateConflictError, UsageError
from leanops.domain.table.operation import Operation, Stage, UnfinishedOperation, unfinished_from
from leanops.ports.state import OPERATIONS, Row, Stored
from leanops.usecases.leases import HeldTopic
from leanops.usecases.platform import Platform


def unfinished_operation(platform: Platform, topic: str) -> UnfinishedOperation | None:
    """The unfinished operation of a topic, if any."""
    stored = platform.state.get(OPERATIONS, (topic,))
    return unfinished_from(stored.row) if stored else None


def unfinished_operations(platform: Platform) -> dict[str, UnfinishedOperation]:
    """Every unfinished operation by its topic."""
    unfinished = (unfinished_from(stored.row) for stored in platform.state.rows(OPERATIONS))
    return {operation.operation.topic: operation for operation in unfinished if operation}


def check_free(platform: Platform, topic: str) -> None:
    """Raise if an operation is unfinished: a second one would build on tables that are about to change."""
    unfinished = unfinished_operation(platform, topic)
    if unfinished:
        raise UsageError(f"{topic}: {unfinished.sentence()}")


def begin(held: HeldTopic, operation: Operation, stage: Stage) -> UnfinishedOperation:
    """Record an operation before any work on it; a worker that has lost the lease withdraws it."""
    with held.platform.durable("operation"):
        _write(held, operation, stage, None, _stored(held))
        if not held.is_ours():
            close(held, operation)
            raise LeaseLostError(held.lease.resource, held.lease.generation)
    return UnfinishedOperation(operation, stage, None)


def agree(held: HeldTopic, agreed: UnfinishedOperation) -> UnfinishedOperation:
    """Record what a person agreed to; the operation is no longer blocked."""
    _update(held, agreed.operation, agreed.stage, None)
    return UnfinishedOperation(agreed.operation, agreed.stage, None)


def begin_attempt(held: HeldTopic, operation: Operation) -> Operation:
    """Record that tables are built under this lease from now on."""
    attempt = msgspec.structs.replace(operation, attempts=(*operation.attempts, held.lease.generation))
    with held.platform.durable("attempt"):
        _update(held, attempt, Stage.BUILDING, None)
    return attempt


def advance(held: HeldTopic, operation: Operation) -> None:
    """Enter the stage in which an operation can only be finished."""
    with held.platform.durable("going"):
        _update(held, operation, Stage.GOING, None)


def block(held: HeldTopic, operation: Operation, reason: str) -> None:
    """Record that the operation waits for a person."""
    _update(held, operation, Stage.BUILDING, reason)


def close(held: HeldTopic, operation: Operation) -> None:
    """Record that an operation is finished or cancelled."""
    stored = _stored(held)
    if stored and stored.row["operation_id"] == operation.operation_id:
        with held.platform.durable("operation closed"):
            _write(held, operation, Stage.CLOSED, None, stored)


def _stored(held: HeldTopic) -> Stored | None:
    return held.platform.state.get(OPERATIONS, (held.topic,))


def _update(held: HeldTopic, operation: Operation, stage: Stage, blocked: str | None) -> None:
    """Update an open operation; one that others finished or cancelled is not revived."""
    stored = _stored(held)
    unfinished = unfinished_from(stored.row) if stored else None
    if unfinished is None or unfinished.operation.operation_id != operation.operation_id:
        raise StateConflictError(OPERATIONS.name, (operation.topic,))
    _write(held, operation, stage, blocked, stored)


def _write(held: HeldTopic, operation: Operation, stage: Stage, blocked: str | None, stored: Stored | None) -> None:
    if held.is_overtaken(stored):
        raise StateConflictError(OPERATIONS.name, (operation.topic,))
    row: Row = {
        "topic_name": operation.topic,
        "operation_id": operation.operation_id,
        "intent": msgspec.json.encode(operation).decode(),
        "stage": stage.value,
        "blocked": blocked,
        "generation": held.lease.generation,
        "updated_at": held.platform.now_ms(),
    }
    held.platform.state.put(OPERATIONS, row, expected=stored.revision if stored else None)
