"""An operation from wherever it stands to its end: built beside, compared, put in place, recorded, cleared away."""

import msgspec

from leanops.domain.errors import OperationBlockedError, UnbalancedBatchError, UsageError
from leanops.domain.operations import Accept, Operation, Scope, Stage, Standing, Work
from leanops.usecases.activate import activate
from leanops.usecases.batches import schema_of_version
from leanops.usecases.carry_over import carry_over
from leanops.usecases.comparison import Comparison, compare
from leanops.usecases.leases import Lease, held
from leanops.usecases.operations import advance, begin, block, close, standing
from leanops.usecases.platform import Platform
from leanops.usecases.roll_back import roll_back
from leanops.usecases.shadow import Progress, Shadow, drop_shadow, quiet
from leanops.usecases.swap import swap


def carry_out(platform: Platform, found: Standing, lease: Lease, progress: Progress = quiet) -> Comparison | None:
    """Finish an operation; raises OperationBlockedError where a person has to agree first."""
    operation = found.operation
    shadow = _shadow(platform, operation, lease, progress) if operation.scope != Scope.NONE else None
    comparison = None
    if found.stage == Stage.BUILDING:
        comparison = _build(platform, operation, shadow, lease) if shadow else None
        advance(platform, operation, lease)
    if operation.work == Work.ROLLBACK:
        roll_back(platform, operation, lease)
    if shadow:
        swap(shadow)
    if operation.version != operation.previous:
        activate(platform, operation)
    if shadow:
        shadow.drop()
    close(platform, operation)
    return comparison


def _build(platform: Platform, operation: Operation, shadow: Shadow, lease: Lease) -> Comparison:
    """The new tables, and what they change; a key that would go missing without anybody's consent stops it here."""
    try:
        shadow.build()
    except OperationBlockedError as blocked:
        raise _blocked(platform, operation, blocked.reason, lease) from None
    carry_over(shadow)
    try:
        found = compare(shadow, same_keys=shadow.keeps_keys)
    except UnbalancedBatchError:
        shadow.drop()
        raise
    refused = found.refused(operation.accept)
    if refused:
        like = f"like those of messages {', '.join(found.examples)}"
        missing = f"{refused} keys of {shadow.live_curated} would be missing, {like}"
        raise _blocked(platform, operation, missing, lease)
    return found


def _blocked(platform: Platform, operation: Operation, why: str, lease: Lease) -> OperationBlockedError:
    """Note that the operation waits for a person, and how to answer."""
    again = f"leanops rebuild {operation.topic}"
    reason = f"{why}; let them go with: {again} --resume --accept-missing, or undo it with: {again} --cancel"
    block(platform, operation, reason, lease)
    return OperationBlockedError(operation.topic, reason)


def _shadow(platform: Platform, operation: Operation, lease: Lease, progress: Progress) -> Shadow:
    schema = schema_of_version(platform, operation.topic, operation.version)
    return Shadow(platform, platform.lake(), operation, schema, lease, progress)


def resume(
    platform: Platform, topic: str, *, accept_missing: bool = False, progress: Progress = quiet
) -> Comparison | None:
    """Go on with what a crash or a question stopped."""
    with held(platform, f"topic/{topic}", wait_s=platform.rules.wait_s) as lease:
        found = _found(platform, topic)
        if accept_missing:
            agreed = msgspec.structs.replace(found.operation, accept=Accept.ALL)
            found = begin(platform, agreed, found.stage, lease)
        return carry_out(platform, found, lease, progress)


def cancel(platform: Platform, topic: str) -> Operation:
    """Undo an operation that only built beside the live tables so far."""
    with held(platform, f"topic/{topic}", wait_s=platform.rules.wait_s):
        found = _found(platform, topic)
        operation = found.operation
        if found.stage == Stage.GOING:
            raise UsageError(
                f"{topic}: its {operation.work.value} is past the point of undoing; finish it with: "
                f"leanops rebuild {topic} --resume"
            )
        if operation.scope != Scope.NONE:
            drop_shadow(platform, topic)
        close(platform, operation)
        return operation


def _found(platform: Platform, topic: str) -> Standing:
    found = standing(platform, topic)
    if found is None:
        raise UsageError(f"topic {topic!r} has no unfinished operation; there is nothing to go on with or to undo")
    return found
