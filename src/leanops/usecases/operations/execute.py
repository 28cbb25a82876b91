"""Executes an operation from any stage to its end: build, compare, swap, record, clean up."""

from dataclasses import replace

import msgspec

from leanops.domain.errors import (
    LeaseLostError,
    OperationBlockedError,
    StaleOperationError,
    StateConflictError,
    UnbalancedBatchError,
    UsageError,
)
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.comparison import Comparison
from leanops.domain.table.history import KIND, TableView, has_batch, is_ancestor, is_same_data
from leanops.domain.table.operation import Accept, Accepted, Operation, Scope, Stage, UnfinishedOperation, Work
from leanops.domain.words import counted
from leanops.usecases.attempts import forget_failures
from leanops.usecases.audit import record_action
from leanops.usecases.leases import HeldTopic, hold_topic
from leanops.usecases.operation_log import advance, agree, begin_attempt, block, close, unfinished_operation
from leanops.usecases.operations.activate import activate
from leanops.usecases.operations.build_curated import build_curated
from leanops.usecases.operations.build_standardized import build_standardized
from leanops.usecases.operations.compare import compare
from leanops.usecases.operations.restore import restore_errors, roll_back
from leanops.usecases.operations.shadow import Progress, Shadow, continue_attempts, forget_shadow, forget_shadows, quiet
from leanops.usecases.operations.swap import swap
from leanops.usecases.platform import Actor, Platform, key_check
from leanops.usecases.topics.registry import find_topic, undo_pause

OPERATION = "operation"
"""Under this name the attempts of a topic's operation are counted, beside those of its layers."""


def execute(held: HeldTopic, unfinished: UnfinishedOperation, progress: Progress = quiet) -> Comparison | None:
    """Finish an operation; raises OperationBlockedError if a person has to agree first."""
    try:
        return _execute(held, unfinished, progress)
    except Exception as failure:
        if held.is_ours():
            raise
        # Whatever failed, another worker has the topic now and may have removed what this one worked on.
        raise LeaseLostError(held.lease.resource, held.lease.generation) from failure


def _execute(held: HeldTopic, unfinished: UnfinishedOperation, progress: Progress) -> Comparison | None:
    platform, operation, comparison = held.platform, unfinished.operation, None
    key_check(platform, held.topic, seals=bool(operation.key_check), before=operation.key_check)
    if unfinished.stage == Stage.BUILDING:
        operation, comparison = _attempt(held, begin_attempt(held, operation), progress)
    shadow = Shadow(held, operation, progress) if operation.scope != Scope.NONE else None
    if operation.work == Work.ROLLBACK:
        roll_back(held, operation)
    if shadow:
        swap(shadow)
    if operation.version != operation.previous:
        activate(held, operation)
    held.check()
    if shadow:
        forget_shadows(platform, operation)
        platform.step("after forget")
    close(held, operation)
    return comparison


def _attempt(held: HeldTopic, operation: Operation, progress: Progress) -> tuple[Operation, Comparison]:
    """Build the new tables and advance; a worker that has lost the lease leaves nothing behind."""
    try:
        built, comparison = _build(held, operation, progress)
    except Exception:
        if not held.is_ours():
            forget_shadow(held.platform, operation, held.lease.generation)
        raise
    try:
        advance(held, built)
    except StateConflictError:
        # This was refused. If only the answer were lost, the next worker might need these tables.
        forget_shadow(held.platform, operation, held.lease.generation)
        raise
    return built, comparison


def _build(held: HeldTopic, operation: Operation, progress: Progress) -> tuple[Operation, Comparison]:
    """Build the new tables and compare them; raises if keys would go missing without consent."""
    shadow = Shadow(held, operation, progress)
    _check_kept(shadow)
    continue_attempts(held.platform, operation)
    try:
        if operation.scope == Scope.BOTH:
            build_standardized(shadow)
        build_curated(shadow)
        # What is compared is what goes live, whatever is written to these tables after it.
        built = shadow.as_built()
        comparison = compare(Shadow(held, built, progress))
    except OperationBlockedError as blocked:
        raise _blocked(held, operation, blocked.reason, "all") from None
    except UnbalancedBatchError:
        # Whatever is wrong with them, the next attempt starts over.
        held.check()
        forget_shadows(held.platform, operation)
        raise
    refused = comparison.refused(operation.accept)
    if refused:
        examples = f"for example message_id {', '.join(comparison.examples)}"
        missing = f"{counted(refused, 'key')} of {shadow.live_curated} would be missing ({examples})"
        raise _blocked(held, operation, missing, str(comparison.missing))
    return built, comparison


def _check_kept(shadow: Shadow) -> None:
    """Block an operation that reads a snapshot which another tool has expired meanwhile."""
    held, operation = shadow.held, shadow.operation
    places = {
        shadow.raw: operation.raw,
        shadow.live_standardized: operation.standardized,
        shadow.live_curated: operation.curated,
    }
    for name, place in places.items():
        view = held.platform.catalog.load(name)
        if place and place.snapshot is not None and (view is None or place.snapshot not in view.snapshots):
            reason = (
                f"{name} no longer keeps snapshot {place.snapshot}, which it reads; another tool must have expired it; "
                f"cancel it with: leanops rebuild {held.topic} --cancel, and start it again"
            )
            block(held, operation, reason)
            raise OperationBlockedError(held.topic, reason)


def _blocked(held: HeldTopic, operation: Operation, why: str, many: str) -> OperationBlockedError:
    """Record that the operation waits for a person, and how to answer."""
    again = f"leanops rebuild {operation.topic}"
    reason = f"{why}; to allow that: {again} --resume --accept-missing {many}; to cancel: {again} --cancel"
    block(held, operation, reason)
    return OperationBlockedError(operation.topic, reason)


def resume(
    platform: Platform, topic: str, *, accept: Accepted | None = None, progress: Progress = quiet
) -> Comparison | None:
    """Resume an operation that a crash or a question stopped."""
    with hold_topic(platform, topic, wait_s=platform.rules.operations.wait_s) as held:
        unfinished = _unfinished(platform, topic)
        if is_stale(platform, unfinished):
            close(held, unfinished.operation)
            raise StaleOperationError(topic, unfinished.operation.work.value)
        if accept is not None:
            # While tables are built, keys are counted; after that only what others wrote is left to give up.
            goes = unfinished.stage == Stage.GOING and accept == Accept.ALL
            heads = _live_heads(platform, unfinished.operation) if goes else {}
            agreed = msgspec.structs.replace(unfinished.operation, accept=accept, agreed_heads=heads)
            unfinished = agree(held, UnfinishedOperation(agreed, unfinished.stage, None))
        done = execute(held, unfinished, progress)
        forget_failures(platform, topic, OPERATION)
    _audit(platform, unfinished.operation)
    return done


def _audit(platform: Platform, operation: Operation) -> None:
    """Record a resumed operation for the actor who began it; that of a waiting file is recorded with the file."""
    if operation.is_from_a_file:
        return
    action = {Work.DEPLOY: "schema deploy", Work.ROLLBACK: "rollback"}.get(operation.work, "rebuild")
    details = {"version": operation.version, "finished_by": platform.owner}
    began = replace(platform, actor=Actor(operation.actor, platform.actor.channel))
    record_action(began, action, [operation.topic], details)


def is_stale(platform: Platform, unfinished: UnfinishedOperation) -> bool:
    """Whether an operation did nothing and its tables have moved: whoever recorded it had lost the topic."""
    operation = unfinished.operation
    if unfinished.stage == Stage.GOING and operation.scope != Scope.NONE:
        return False
    if operation.scope == Scope.NONE and operation.work == Work.DEPLOY:
        active = platform.schemas.active(operation.topic)
        return (active.version if active else None) not in (operation.previous, operation.version)
    standardized = platform.catalog.load(platform.rules.databases.standardized_table(operation.topic))
    if operation.attempts or standardized is None or standardized.head == operation.back_to:
        return False
    if operation.work == Work.ROLLBACK and find_topic(platform, operation.topic).reason == operation.pause_reason:
        return False
    return not is_same_data(standardized, operation.standardized_head)


def cancel(platform: Platform, topic: str) -> Operation:
    """Cancel an operation, as long as nothing of it is live."""
    with hold_topic(platform, topic, wait_s=platform.rules.operations.wait_s) as held:
        unfinished = _unfinished(platform, topic)
        operation = unfinished.operation
        if unfinished.stage == Stage.GOING:
            _check_undoable(platform, operation)
            _refuse_late(platform, operation)
            # A worker just before its swap may have been quicker; from here on none can be.
            _check_undoable(platform, operation)
            held.check()
            restore_errors(platform, operation)
            if operation.work == Work.ROLLBACK:
                undo_pause(platform, topic, operation.pause_reason)
        held.check()
        forget_shadows(platform, operation)
        close(held, operation)
        forget_failures(platform, topic, OPERATION)
    record_action(platform, "cancel", [topic], {"work": operation.work.value})
    return operation


def _check_undoable(platform: Platform, operation: Operation) -> None:
    if _is_live(platform, operation):
        topic = operation.topic
        raise UsageError(
            f"{topic}: its {operation.work.value} can no longer be cancelled; finish it with: "
            f"leanops rebuild {topic} --resume"
        )


def _refuse_late(platform: Platform, operation: Operation) -> None:
    """Give live tables a newer head, so that a worker just before its swap is refused."""
    for view in _live_tables(platform, operation).values():
        if view and view.head is not None:
            summary = {KIND: "cancelled", "leanops.operation": operation.operation_id}
            platform.catalog.mark(view.name, summary)


def _live_tables(platform: Platform, operation: Operation) -> dict[str, TableView | None]:
    """The live tables by layer, as they are now."""
    databases = platform.rules.databases
    schema = platform.schemas.version(operation.topic, operation.version)
    curated = platform.catalog.load(databases.curated_table(schema.table_name)) if schema else None
    return {STANDARDIZED: platform.catalog.load(databases.standardized_table(operation.topic)), CURATED: curated}


def _live_heads(platform: Platform, operation: Operation) -> dict[str, int | None]:
    return {layer: view.head if view else None for layer, view in _live_tables(platform, operation).items()}


def _is_live(platform: Platform, operation: Operation) -> bool:
    """Whether anything of the operation is live."""
    if operation.scope == Scope.NONE and operation.work == Work.DEPLOY:
        # It consists of a single write, and a worker just before that cannot be refused.
        return True
    standardized, curated = _live_tables(platform, operation).values()
    return (
        (standardized is not None and _is_back(standardized, operation))
        or (standardized is not None and has_batch(standardized, operation.standardized_batch) is not None)
        or (curated is not None and has_batch(curated, operation.curated_batch) is not None)
    )


def _is_back(standardized: TableView, operation: Operation) -> bool:
    """Whether a rollback has moved the head, whatever was committed on top of it since."""
    if operation.back_to is None or not is_ancestor(standardized, operation.back_to):
        return False
    before = operation.standardized_head
    return standardized.head == operation.back_to or before is None or not is_ancestor(standardized, before)


def _unfinished(platform: Platform, topic: str) -> UnfinishedOperation:
    unfinished = unfinished_operation(platform, topic)
    if unfinished is None:
        raise UsageError(f"topic {topic!r} has no unfinished operation; there is nothing to resume or cancel")
    return unfinished
