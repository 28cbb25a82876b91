"""Deploys a schema: validates it, compares it with the active one, and rebuilds tables if needed."""

import json
from dataclasses import dataclass

import msgspec

from leanops.domain.errors import InvalidSchemaError
from leanops.domain.schema.diff import Difference, Kind, difference
from leanops.domain.schema.lint import sealed_key_problems
from leanops.domain.schema.model import Schema, schema_from_json
from leanops.domain.schema.plan import SchemaPlan
from leanops.domain.table.comparison import Comparison
from leanops.domain.table.operation import Accepted, Scope, Stage, Work, agrees
from leanops.usecases.audit import record_action
from leanops.usecases.leases import HeldTopic, hold_topic
from leanops.usecases.operation_log import begin, check_free
from leanops.usecases.operations.activate import fingerprint, record_version
from leanops.usecases.operations.execute import execute
from leanops.usecases.operations.shadow import Progress, quiet
from leanops.usecases.operations.start import has_rows, new_operation, rebuild_held, settle
from leanops.usecases.platform import Platform, secret_key
from leanops.usecases.schemas.validate import breaking_problems, table_problems, version_problems
from leanops.usecases.topics.registry import check_running, enable_topic, find_topic


@dataclass(frozen=True)
class Consent:
    """What the owner agrees to beyond events that come from now on."""

    rebuild: bool = False
    """A breaking change may rebuild tables."""
    recurate: bool | None = None
    """Old rows follow the new schema; None lets the plan decide where the change is additive."""
    missing: Accepted = 0
    """Which keys may leave Curated, or at most how many."""


NOTHING_MORE = Consent()


@dataclass(frozen=True)
class Deployed:
    """The schema that is active now, and what was done for it."""

    schema: Schema
    is_new: bool
    scope: Scope = Scope.NONE
    comparison: Comparison | None = None


def deploy_schema(
    platform: Platform,
    topic: str,
    text: str,
    source: str,
    consent: Consent = NOTHING_MORE,
    plan: SchemaPlan | None = None,
    progress: Progress = quiet,
    *,
    action: str = "schema deploy",
) -> Deployed:
    """Activate the schema in `text` and put it on record; the same content twice changes nothing."""
    deployed = _deploy(platform, topic, text, source, consent, plan, progress)
    _audit(platform, topic, deployed, source, action)
    return deployed


def _deploy(
    platform: Platform,
    topic: str,
    text: str,
    source: str,
    consent: Consent,
    plan: SchemaPlan | None,
    progress: Progress,
) -> Deployed:
    find_topic(platform, topic)
    schema = schema_from_json(text, source)
    _check_secret(platform, topic, schema)
    with hold_topic(platform, topic, wait_s=platform.rules.operations.wait_s) as held:
        check_free(platform, topic)
        active = platform.schemas.active(topic)
        if active and fingerprint(active) == fingerprint(schema):
            record_version(platform, topic, active, "", platform.actor.name)
            enable_topic(platform, topic, active.version)
            return _again(held, active, consent, progress)
        changes = difference(active, schema)
        problems = [*table_problems(platform.schemas, topic, active, schema), *version_problems(active, schema)]
        problems += [*sealed_key_problems(schema), *([] if consent.rebuild else breaking_problems(schema, changes))]
        if problems:
            raise InvalidSchemaError(source, problems)
        scope = _scope(platform, topic, schema, changes, consent, plan)
        if scope != Scope.NONE:
            check_running(platform, topic)
        numbered = _kept(platform, topic, text, source, max(schema.version, active.version + 1 if active else 1))
        # A batch that was started under the old schema would be repeated with it, whatever keys the new one has.
        settle(held, active)
        kind = changes.kind.value
        operation = new_operation(
            held, Work.DEPLOY, schema=numbered, active=active, scope=scope, accept=consent.missing, classification=kind
        )
        stage = Stage.GOING if scope == Scope.NONE else Stage.BUILDING
        return Deployed(numbered, True, scope, execute(held, begin(held, operation, stage), progress))


def _audit(platform: Platform, topic: str, deployed: Deployed, source: str, action: str) -> None:
    """Record a version once, even after an interruption; record every re-curation of old rows."""
    details, log = {"version": deployed.schema.version, "file": source}, platform.rules.databases.ops_table("audit_log")
    rows = platform.catalog.select(log, ["details"], {"topic_name": topic})
    versions = {json.loads(row["details"]).get("version") for row in rows if row["details"]}
    is_again = not deployed.is_new and deployed.scope != Scope.NONE
    if is_again or deployed.schema.version not in versions:
        record_action(platform, action, [topic], details)


def unapproved_keys(
    platform: Platform, topic: str, schema: Schema, changes: Difference, consent: Consent, plan: SchemaPlan
) -> int:
    """How many keys would leave Curated, by the plan, that nobody has let go; of a sample only building tells."""
    if plan.is_sample:
        return 0
    is_again = not changes.changes and consent.recurate
    leaves = is_again or _scope(platform, topic, schema, changes, consent, plan) != Scope.NONE
    return plan.leaving if leaves and not agrees(consent.missing, plan.leaving) else 0


def _again(held: HeldTopic, active: Schema, consent: Consent, progress: Progress) -> Deployed:
    """The active schema once more: nothing is left to do, unless old rows shall follow it."""
    curated = held.platform.rules.databases.curated_table(active.table_name)
    if not consent.recurate or not has_rows(held.platform, curated):
        return Deployed(active, False)
    check_running(held.platform, held.topic)
    settle(held, active)
    comparison = rebuild_held(held, active, scope=Scope.CURATED, accept=consent.missing, progress=progress)
    return Deployed(active, False, Scope.CURATED, comparison)


def _scope(
    platform: Platform, topic: str, schema: Schema, changes: Difference, consent: Consent, plan: SchemaPlan | None
) -> Scope:
    """Which tables have to be rebuilt: those that exist, if the change or the owner asks for it."""
    databases = platform.rules.databases
    if not has_rows(platform, databases.standardized_table(topic)):
        return Scope.NONE
    is_breaking = changes.kind == Kind.BREAKING
    if changes.needs_raw and (is_breaking or changes.kind == Kind.FIRST or consent.rebuild):
        return Scope.BOTH
    curated = databases.curated_table(schema.table_name)
    # A first batch that failed leaves a table without rows, and with columns of the old schema.
    if is_breaking and platform.catalog.load(curated):
        return Scope.CURATED
    if not has_rows(platform, curated):
        return Scope.NONE
    if consent.recurate:
        return Scope.CURATED
    # Rows do not leave Curated without consent, even if the schema only adds.
    is_free = plan is not None and plan.needs == "recurate" and plan.leaving == 0
    asks = consent.recurate is None and changes.kind == Kind.ADDITIVE
    return Scope.CURATED if asks and is_free else Scope.NONE


def _kept(platform: Platform, topic: str, text: str, source: str, version: int) -> Schema:
    """Keep the file under the first free number; a version that was kept and never activated has used up its own."""
    while platform.schemas.text(topic, version) not in (None, kept := _with_version(text, version)):
        version += 1
    # Read again, because what is kept must stay readable.
    numbered = schema_from_json(kept, source)
    platform.step("before keep")
    platform.schemas.keep(topic, version, kept)
    return numbered


def _with_version(text: str, version: int) -> str:
    """The file with its version number, every other member as it was written."""
    members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    members["version"] = msgspec.Raw(str(version).encode())
    return msgspec.json.format(msgspec.json.encode(members), indent=2).decode() + "\n"


def _check_secret(platform: Platform, topic: str, schema: Schema) -> None:
    if schema.seals:
        secret_key(platform, topic)
