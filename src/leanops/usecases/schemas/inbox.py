"""Takes waiting schema files: each is deployed, or moved to failed/ with every reason."""

from collections.abc import Iterator

from leanops.domain.errors import InvalidSchemaError, LeaseHeldError, OperationBlockedError, TopicPausedError
from leanops.domain.problems import Code, Problem
from leanops.domain.schema.model import Schema
from leanops.domain.table.operation import Accept
from leanops.domain.words import counted
from leanops.ports.schemas import Pending
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.operations.execute import cancel
from leanops.usecases.operations.unfinished import finish, is_due
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import Consent, Deployed, deploy_schema
from leanops.usecases.schemas.plan_gate import gate
from leanops.usecases.schemas.validate import Candidate, Intake, Outcome, Verdict, judge, refuse


def take_pending(platform: Platform, pending: Pending) -> Verdict:
    """Deploy or refuse a waiting file; repeating it, or resuming after a crash, has the same result."""
    try:
        waits = _held_up(platform, pending.topic)
        return Verdict(pending, Outcome.WAITING, reason=waits) if waits else _taken(platform, pending)
    except (LeaseHeldError, TopicPausedError) as held:
        return Verdict(pending, Outcome.WAITING, reason=str(held))


def _taken(platform: Platform, pending: Pending) -> Verdict:
    intake = Intake(platform.schemas, platform.state, platform.clock)
    verdict = judge(intake, pending)
    candidate = verdict.candidate
    if candidate is None:
        return verdict
    try:
        deployed = _deployed(platform, pending, candidate)
    except InvalidSchemaError as invalid:
        return refuse(intake, pending, candidate.data, invalid.problems)
    except OperationBlockedError as blocked:
        # Nobody is there to answer, and a file that waits must not hold its topic up.
        cancel(platform, pending.topic)
        what = str(blocked).partition("; ")[0]
        return refuse(intake, pending, candidate.data, [_unasked(pending, what, "all|N")])
    platform.schemas.clear_failed(pending.topic)
    # Last, so that a crash before it is made up for when the file is seen again.
    platform.schemas.withdraw(pending.topic, pending.name, candidate.data)
    return Verdict(pending, Outcome.ACTIVE if deployed.is_new else Outcome.UNCHANGED, deployed.schema.version)


def _held_up(platform: Platform, topic: str) -> str | None:
    """Resume an unfinished operation, which may be of this very file; returns why the topic is not available."""
    begun = unfinished_operation(platform, topic)
    if begun and is_due(platform, begun):
        finish(platform, begun)
        begun = unfinished_operation(platform, topic)
    if begun and begun.blocked and begun.operation.is_from_a_file:
        # Blocked only after a crash: it is undone, and the file, still there, is refused in its turn.
        cancel(platform, topic)
        begun = None
    return begun.sentence() if begun else None


def _deployed(platform: Platform, pending: Pending, candidate: Candidate) -> Deployed:
    """Deploy the file; raises InvalidSchemaError with the problems that its key or the rows have."""
    schema, consent = candidate.schema, Consent(missing=Accept.NONE)
    problems = list(_missing_key(platform, schema))
    if problems:
        raise InvalidSchemaError(pending.name, problems)
    result = gate(platform, pending.topic, schema, candidate.difference, consent)
    unasked = [_unasked(pending, f"{counted(result.leaving, 'key')} would leave Curated", f"{result.leaving}")]
    if result.problems or result.leaving:
        raise InvalidSchemaError(pending.name, result.problems or unasked)
    return deploy_schema(platform, pending.topic, candidate.text, f"pending/{pending.name}", consent, result.plan)


def _unasked(pending: Pending, what: str, many: str) -> Problem:
    hint = f"look at them, then: leanops schema deploy {pending.topic} FILE --accept-missing {many}"
    return Problem(Code.BLOCKED, "", what, hint)


def _missing_key(platform: Platform, schema: Schema) -> Iterator[Problem]:
    sealed = [f"/payload_columns/{at}/pii" for at, column in enumerate(schema.payload_columns) if column.pii == "hmac"]
    if platform.secret is None:
        for pointer in [*(["/keys/pii"] if schema.keys.pii else []), *sealed]:
            yield Problem(Code.NO_PII_KEY, pointer, "asks for an HMAC and no key is set", "set LEANOPS_PII_KEY")
