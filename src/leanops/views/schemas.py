"""Schemas in words: what one holds, what a new one would change, and what its plan found."""

import json
from typing import Any

from leanops.domain.schema.diff import Difference, Kind
from leanops.domain.schema.model import PayloadColumn
from leanops.domain.schema.plan import FailureGroup, SchemaPlan
from leanops.views.sources import Sources

GROUPS_SHOWN = 12
_VERSION_COLUMNS = ("version", "activated_ts", "actor", "classification", "fingerprint")


def rules_of(column: PayloadColumn) -> str:
    """The rules of a column in one line."""
    default = [f"default {column.default}"] if column.default is not None else []
    return ", ".join([*default, *(f"{name} {_listed(value)}" for name, value in column.rules.written.items())])


def _listed(value: object) -> str:
    return " | ".join(str(one) for one in value) if isinstance(value, tuple) else str(value)


def difference_lines(difference: Difference) -> list[str]:
    """Every change, one line each."""
    if not difference.changes:
        return ["nothing changes"]
    if difference.kind == Kind.FIRST:
        return [change.what for change in difference.changes]
    width = max(len(change.kind.value) for change in difference.changes)
    return [f"{change.kind.value:<{width}}  {change.what}" for change in difference.changes]


def plan_lines(plan: SchemaPlan) -> list[str]:
    """A plan for people: the changes, the rows, the tables, and what follows."""
    return [
        *difference_lines(plan.difference),
        "",
        *_row_lines(plan),
        *(f"  {one.name}: {one.what}; {one.hint}" for one in plan.unseen if not one.is_key),
        *(["", *plan.ddl] if plan.ddl else []),
        "",
        *(f"a deployment would refuse it: {problem}" for problem in plan.problems),
        *(f"a deployment would refuse it: {one.problem()}" for one in plan.unseen_keys),
        *([] if plan.problems or plan.unseen_keys else [_verdict(plan)]),
    ]


def _row_lines(plan: SchemaPlan) -> list[str]:
    if plan.source == "nothing":
        return ["no events yet: there are no rows to try it on"]
    if plan.source == "retired":
        return ["RAW no longer holds the events: there are no rows to try it on"]
    where = "Standardized" if plan.source == "standardized" else "RAW"
    lines = [f"{'a sample of ' if plan.is_sample else 'all '}{plan.rows:,} rows of {where}"]
    if plan.source == "raw":
        lines[0] += f", which give {plan.judged:,} keys"
        odd = {"are no events": plan.parse_errors, "have no key": plan.missing_keys}
        odd["have a version that keys.version_format does not take"] = plan.version_fallback
        lines += [f"  {count:>9,} {what}" for what, count in odd.items() if count]
    figures = {
        f"fail; today {plan.failing_today:,} do": plan.failing,
        "would leave Curated if old rows followed": plan.leaving,
        "fail today and would pass": plan.resolved,
        "in Curated would hold other values": plan.changed,
    }
    lines += [f"  {count:>9,} {what}" for what, count in figures.items() if count or what.startswith("fail;")]
    lines += [f"    {_group_line(group)}" for group in plan.failures[:GROUPS_SHOWN]]
    hidden = len(plan.failures) - GROUPS_SHOWN
    return [*lines, f"    and {hidden} more reasons; --json has them all"] if hidden > 0 else lines


def _group_line(group: FailureGroup) -> str:
    examples = "; ".join(
        one.message_id if one.value is None else f"{one.message_id} has {json.dumps(one.value, ensure_ascii=False)}"
        for one in group.examples
    )
    return f"{group.rows:,} {group.rule} {group.column}: {group.message}; {examples}"


def _verdict(plan: SchemaPlan) -> str:
    """What it takes to deploy it."""
    leaving = f" --accept-missing {plan.leaving}" if plan.leaving else ""
    if plan.needs == "rebuild" and plan.source == "retired":
        return "do not deploy it: what Standardized holds could not be made again"
    if plan.needs == "rebuild" and plan.difference.kind == Kind.FIRST and plan.difference.needs_raw:
        return "it can be deployed as it is; Standardized has other keys, and is made anew from RAW"
    if plan.needs == "rebuild":
        return f"it breaks what is there: deploy it with --rebuild{leaving}"
    if plan.leaving:
        return f"old rows stay as they are; --recurate{leaving} applies it to them, and those that fail leave Curated"
    if plan.needs == "recurate":
        return "it can be deployed as it is; old rows are re-curated"
    if plan.changed or plan.resolved:
        return "it can be deployed as it is; --recurate brings old rows in line with it too"
    return "it can be deployed as it is"


def schema_versions(sources: Sources, topic: str) -> list[dict[str, Any]]:
    """Every version that was activated, oldest first, and which is active now."""
    table = sources.databases.ops_table("schema_versions")
    active = sources.schemas.active(topic)
    rows = sources.catalog.select(table, _VERSION_COLUMNS, {"topic_name": topic})
    return [
        {**row, "active": active is not None and row["version"] == active.version}
        for row in sorted(rows, key=lambda row: int(row["version"]))
    ]
