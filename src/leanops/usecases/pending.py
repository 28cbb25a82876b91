"""A schema file that waits goes live, or into failed/ with every reason."""

import json

from leanops.domain.errors import InvalidSchemaError, LeaseHeldError
from leanops.domain.problems import Code, Problem
from leanops.ports.schemas import Pending
from leanops.usecases.audit import Actor, record_action
from leanops.usecases.deploy_schema import deploy_schema
from leanops.usecases.judge_schema import Candidate, Intake, Outcome, Verdict, judge, refuse
from leanops.usecases.platform import Platform

DEPLOYED = "schema deploy"


def take_pending(platform: Platform, pending: Pending, *, actor: Actor) -> Verdict:
    """Deploy or refuse a file that waits; taking it twice, or after a crash anywhere, comes to the same end."""
    intake = Intake(platform.schemas, platform.state, platform.clock)
    verdict = judge(intake, pending)
    candidate = verdict.candidate
    if candidate is None:
        return verdict
    missing = _missing_key(platform, candidate)
    if missing:
        return refuse(intake, pending, candidate.data, [missing])
    try:
        schema, is_new = deploy_schema(platform, pending.topic, candidate.text, pending.name, actor.name)
    except LeaseHeldError as held:
        return Verdict(pending, Outcome.WAITING, reason=str(held))
    except InvalidSchemaError as invalid:
        return refuse(intake, pending, candidate.data, invalid.problems)
    _audit(platform, pending, schema.version, actor)
    platform.schemas.clear_failed(pending.topic)
    # Last, so that whatever a crash leaves undone is done when the file is seen again.
    platform.schemas.withdraw(pending.topic, pending.name, candidate.data)
    return Verdict(pending, Outcome.ACTIVE if is_new else Outcome.UNCHANGED, schema.version)


def _missing_key(platform: Platform, candidate: Candidate) -> Problem | None:
    schema = candidate.schema
    sealed = [at for at, column in enumerate(schema.payload_columns) if column.pii == "hmac"]
    if platform.secret or not (schema.keys.pii or sealed):
        return None
    pointer = "/keys/pii" if schema.keys.pii else f"/payload_columns/{sealed[0]}/pii"
    return Problem(Code.NO_PII_KEY, pointer, "seals PII with an HMAC and no key is set", "set LEANOPS_PII_KEY")


def _audit(platform: Platform, pending: Pending, version: int, actor: Actor) -> None:
    """Who deployed a version is written once; a crash may have come before it."""
    log = platform.rules.databases.ops_table("audit_log")
    where = f"topic_name = '{pending.topic}' and action = '{DEPLOYED}'"
    known = [json.loads(row["details"]) for row in platform.catalog.select(log, ["details"], where) if row["details"]]
    if not any(details.get("version") == version for details in known):
        details = {"version": version, "file": f"pending/{pending.name}"}
        record_action(platform, actor, DEPLOYED, [pending.topic], details)
