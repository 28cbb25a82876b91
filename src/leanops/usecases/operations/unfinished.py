"""Resumes unfinished operations, each with its own backoff."""

from collections.abc import Callable
from dataclasses import replace

from leanops.domain.errors import LeaseHeldError, OperationBlockedError, StaleOperationError
from leanops.domain.table.operation import UnfinishedOperation
from leanops.ports.state import ATTEMPTS
from leanops.usecases.attempts import record_failure, wait_left_ms
from leanops.usecases.operation_log import unfinished_operations
from leanops.usecases.operations.execute import OPERATION, resume
from leanops.usecases.platform import Actor, Platform


def resume_unfinished(platform: Platform, tell: Callable[[str], None] = lambda _line: None) -> int:
    """Resume every unfinished operation that is due; returns how many were finished."""
    return sum(
        finish(platform, operation, tell)
        for operation in unfinished_operations(platform).values()
        if is_due(platform, operation)
    )


def is_due(platform: Platform, unfinished: UnfinishedOperation) -> bool:
    """Whether to resume it now: it is not blocked, parked or waiting after a failure."""
    stored = platform.state.get(ATTEMPTS, (f"{unfinished.operation.topic}/{OPERATION}",))
    if unfinished.blocked or stored is None:
        return not unfinished.blocked
    return not stored.row["parked"] and not wait_left_ms(platform, stored.row)


def finish(
    platform: Platform, unfinished: UnfinishedOperation, tell: Callable[[str], None] = lambda _line: None
) -> bool:
    """Resume one operation; returns whether it was finished. A failure is counted and retried later."""
    topic, work = unfinished.operation.topic, unfinished.operation.work.value
    try:
        resume(replace(platform, actor=Actor(platform.owner, "cycle")), topic)
    except LeaseHeldError:
        return False
    except StaleOperationError as dropped:
        tell(str(dropped))
        return False
    except OperationBlockedError as blocked:
        tell(str(blocked))
        return False
    except Exception as failure:  # noqa: BLE001 - one topic's operation does not stop another's
        reason = platform.explain(failure)
        record_failure(platform, topic, OPERATION, reason)
        tell(f"{topic}: its {work} failed, and will be tried again: {reason}")
        return False
    tell(f"{topic}: its {work} is finished")
    return True
