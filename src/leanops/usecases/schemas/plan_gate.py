"""Tries a schema on rows before it is deployed, if they could speak against it."""

from collections.abc import Iterator
from dataclasses import dataclass

from leanops.domain.errors import InvalidSchemaError, UsageError
from leanops.domain.failures import Rule
from leanops.domain.problems import Code, Problem
from leanops.domain.schema.diff import Difference, Kind
from leanops.domain.schema.model import Schema
from leanops.domain.schema.plan import SchemaPlan
from leanops.usecases.operations.start import has_rows
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import Consent, unapproved_keys

LOOKED_AT = 10_000
"""About how many events are searched for the keys of a file that nobody reviews."""


@dataclass(frozen=True)
class Gate:
    """The result of trying a schema on rows before it is deployed."""

    plan: SchemaPlan | None
    problems: list[Problem]
    leaving: int
    """Keys that would leave Curated, and that nobody has agreed to."""


def gate(
    platform: Platform,
    topic: str,
    schema: Schema,
    changes: Difference,
    consent: Consent,
    *,
    accept_unseen: bool = False,
    is_shown: bool = False,
) -> Gate:
    """Try a schema on rows, if they could speak against it or somebody reads the plan."""
    plan = plan_on_rows(platform, topic, schema, changes, is_shown=is_shown, recurates=bool(consent.recurate))
    if plan is None:
        return Gate(None, [], 0)
    problems = problems_on_rows(schema, plan, accept_unseen=accept_unseen)
    return Gate(plan, problems, unapproved_keys(platform, topic, schema, changes, consent, plan))


def plan_on_rows(
    platform: Platform,
    topic: str,
    schema: Schema,
    difference: Difference,
    *,
    is_shown: bool = False,
    recurates: bool = False,
) -> SchemaPlan | None:
    """The plan, for which Spark is started; None if no row could change what is done and nobody reads it."""
    if difference.kind is Kind.NEUTRAL and not recurates:
        return None
    decides = recurates or _decides(platform, schema, difference)
    if not (decides or is_shown or _changes_keys(schema, difference)):
        return None
    databases = platform.rules.databases
    raw = platform.catalog.load(databases.raw_table(topic))
    if not has_rows(platform, databases.standardized_table(topic)) and (raw is None or raw.head is None):
        return None
    from leanops.usecases.schemas.plan import ALL, plan_schema

    try:
        sample = None if decides else ALL if is_shown else LOOKED_AT
        return plan_schema(platform, topic, schema, sample=sample)
    except UsageError as unreadable:
        what, _, hint = str(unreadable).partition("; ")
        raise InvalidSchemaError(topic, [Problem(Code.BAD_PATH, "/payload_columns", what, hint)]) from None


def _decides(platform: Platform, schema: Schema, difference: Difference) -> bool:
    """Whether the plan can refuse the schema, or have old rows follow it."""
    curated = platform.rules.databases.curated_table(schema.table_name)
    follows = difference.kind is Kind.ADDITIVE and difference.changes_rows and has_rows(platform, curated)
    return follows or schema.policies.cde_error_rate_fail is not None


def _changes_keys(schema: Schema, difference: Difference) -> bool:
    """Whether the file names a key, a version or a period that events are not keyed and ordered by today."""
    return difference.needs_raw and bool(schema.keys.named)


def problems_on_rows(schema: Schema, plan: SchemaPlan, *, accept_unseen: bool = False) -> list[Problem]:
    """The problems found on rows: too many lack a critical value, or no event has the key, version or period."""
    unseen = [] if accept_unseen else [path.problem() for path in plan.unseen_keys]
    return [*missing_values(schema, plan), *unseen]


def missing_values(schema: Schema, plan: SchemaPlan) -> Iterator[Problem]:
    """The critical columns that rows lack, if more rows do than the schema's own policy lets pass in a batch."""
    most = schema.policies.cde_error_rate_fail
    if most is None or not plan.judged or plan.cde_missing / plan.judged <= most:
        return
    names = [column.name for column in schema.payload_columns]
    for group in plan.failures:
        if group.rule != Rule.CDE_MISSING:
            continue
        at = names.index(group.column) if group.column in names else None
        yield Problem(
            Code.CDE_MISSING,
            "/keys/idempotency_key" if at is None else f"/payload_columns/{at}/cde",
            f"critical values are missing in {plan.cde_missing:,} of {plan.judged:,} rows ({group.column} in "
            f"{group.rows:,}), and cde_error_rate_fail is {most}",
            "raise cde_error_rate_fail, give the column a default, or do not make it critical",
        )
