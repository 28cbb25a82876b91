"""Operations in the state store: written down before they start, closed when nothing of them is left to do."""

from leanops.domain.errors import StateConflictError, UsageError
from leanops.domain.operations import Operation, Stage, Standing, standing_from, to_text
from leanops.ports.state import OPERATIONS, Row
from leanops.usecases.leases import Lease
from leanops.usecases.platform import Platform


def standing(platform: Platform, topic: str) -> Standing | None:
    """The unfinished operation of a topic, if there is one."""
    stored = platform.state.get(OPERATIONS, (topic,))
    return standing_from(stored.row) if stored else None


def all_standing(platform: Platform) -> dict[str, Standing]:
    """Every unfinished operation by its topic."""
    found = (standing_from(stored.row) for stored in platform.state.rows(OPERATIONS))
    return {one.operation.topic: one for one in found}


def check_free(platform: Platform, topic: str) -> None:
    """Raise where an operation stands: a second one would build on tables that are about to change."""
    found = standing(platform, topic)
    if found:
        raise UsageError(f"{topic}: {found.sentence()}")


def begin(platform: Platform, operation: Operation, stage: Stage, lease: Lease) -> Standing:
    """Write an operation down before any of its work."""
    platform.step("before operation")
    _write(platform, operation, stage, None, lease)
    platform.step("after operation")
    return Standing(operation, stage, None)


def advance(platform: Platform, operation: Operation, lease: Lease) -> None:
    """From here it only goes forward."""
    platform.step("before going")
    _write(platform, operation, Stage.GOING, None, lease)
    platform.step("after going")


def block(platform: Platform, operation: Operation, reason: str, lease: Lease) -> None:
    """Note that it waits for a person."""
    _write(platform, operation, Stage.BUILDING, reason, lease)


def close(platform: Platform, operation: Operation) -> None:
    """Forget an operation that is finished or undone."""
    stored = platform.state.get(OPERATIONS, (operation.topic,))
    if stored and stored.row["operation_id"] == operation.operation_id:
        platform.step("before operation closed")
        platform.state.delete(OPERATIONS, (operation.topic,), expected=stored.revision)
        platform.step("after operation closed")


def _write(platform: Platform, operation: Operation, stage: Stage, blocked: str | None, lease: Lease) -> None:
    stored = platform.state.get(OPERATIONS, (operation.topic,))
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
