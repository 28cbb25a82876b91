"""Schemas in words: the rules of a column, the changes of a new schema, and its plan."""

import json
from typing import Any

from leanops.domain.schema.diff import Difference, Kind
from leanops.domain.schema.model import PayloadColumn
from leanops.domain.schema.plan import FailureGroup, SchemaPlan
from leanops.views.sources import Sources

GROUPS_SHOWN = 12
_VERSION_COLUMNS = ("version", "activated_ts", "actor", "classification", "fingerprint")


def rules_of(column: PayloadColumn) -> str:
    """The default and the rules of a column in one line."""
    default = [f"default {column.default}"] if column.default is not None else []
    return ", ".join([*default, *(f"{name} {_listed(value)}" for name, value in column.rules.written.items())])


def _listed(value: object) -> str:
    return " | ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def difference_lines(difference: Difference) -> list[str]:
    """Every change, one line each."""
    if not difference.changes:
        return ["nothing changes"]
    if difference.kind == Kind.FIRST:
        return [change.what for change in difference.changes]
    width = max(len(change.kind.value) for change in difference.changes)
    return [f"{change.kind.value:<{width}}  {change.what}" for change in difference.changes]


def plan_lines(plan: SchemaPlan) -> list[str]:
    """A plan for people: the changes, the rows, the tables, and how to deploy it."""
    return [
        *difference_lines(plan.difference),
        "",
        *_row_lines(plan),
        *(f"  {unseen.name}: {unseen.what}; {unseen.hint}" for unseen in plan.unseen if not unseen.is_key),
        *(["", *plan.ddl] if plan.ddl else []),
        "",
        *(f"a deployment would refuse it: {problem}" for problem in plan.problems),
        *(f"a deployment would refuse it: {unseen.problem()}" for unseen in plan.unseen_keys),
        *([] if plan.problems or plan.unseen_keys else [_verdict(plan)]),
    ]


def _row_lines(plan: SchemaPlan) -> list[str]:
    if plan.source == "nothing":
        return ["no events yet: there are no rows to try it on"]
    if plan.source == "retired":
        return ["RAW no longer holds the events: there are no rows to try it on"]
    is_raw = plan.source == "raw"
    rows = f"{plan.rows:,} {_rows(plan.rows)} of {'RAW' if is_raw else 'Standardized'}"
    keys = f", {plan.judged:,} {'key' if plan.judged == 1 else 'keys'}" if is_raw else ""
    hidden = len(plan.failures) - GROUPS_SHOWN
    return [
        f"{'a sample of' if plan.is_sample else 'all'} {rows}{keys}",
        *(f"  {count:>9,} {_rows(count)} {what}" for count, what in _figures(plan)),
        *(f"    {_group_line(group)}" for group in plan.failures[:GROUPS_SHOWN]),
        *([f"    more reasons: {hidden:,}; --json has them all"] if hidden > 0 else []),
    ]


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def _figures(plan: SchemaPlan) -> list[tuple[int, str]]:
    """Numbers of rows and what happens to them; zero is shown only for rows that fail."""
    is_first = plan.difference.kind == Kind.FIRST
    today = "" if is_first else f" ({plan.failing_today:,} under the active schema)"
    failing = f"{'fails' if plan.failing == 1 else 'fail'}{today}"
    figures = {
        "cannot be parsed": plan.parse_errors,
        "without a key": plan.missing_keys,
        "with a version that keys.version_format does not match": plan.version_fallback,
        failing: plan.failing,
        "would leave Curated if old rows were re-curated": plan.leaving,
        "failing under the active schema would pass": plan.resolved,
        "of Curated would have other values": plan.changed,
    }
    return [(count or 0, what) for what, count in figures.items() if count or what == failing]


def _group_line(group: FailureGroup) -> str:
    examples = "; ".join(
        row.message_id if row.value is None else f"{row.message_id} has {json.dumps(row.value, ensure_ascii=False)}"
        for row in group.examples
    )
    return f"{group.rows:,} {group.rule} {group.column}: {group.message}; {examples}"


def _verdict(plan: SchemaPlan) -> str:
    """How to deploy it."""
    leaving = f" --accept-missing {plan.leaving}" if plan.leaving else ""
    if plan.needs == "rebuild" and plan.source == "retired":
        return "do not deploy it: Standardized could not be rebuilt"
    if plan.needs == "rebuild" and plan.difference.kind == Kind.FIRST and plan.difference.needs_raw:
        return "it can be deployed as it is; Standardized has other keys and is rebuilt from RAW"
    if plan.needs == "rebuild":
        return f"it is a breaking change: deploy it with --rebuild{leaving}"
    if plan.leaving:
        return f"old rows are left unchanged; --recurate{leaving} applies it to them, and those that fail leave Curated"
    if plan.needs == "recurate":
        return "it can be deployed as it is; old rows are re-curated"
    if plan.changed or plan.resolved:
        return "it can be deployed as it is; --recurate applies it to old rows too"
    return "it can be deployed as it is"


def schema_versions(sources: Sources, topic: str) -> list[dict[str, Any]]:
    """Every version that was activated, oldest first, and whether it is active now."""
    table = sources.databases.ops_table("schema_versions")
    active = sources.schemas.active(topic)
    rows = sources.catalog.select(table, _VERSION_COLUMNS, {"topic_name": topic})
    return [
        {**row, "active": active is not None and row["version"] == active.version}
        for row in sorted(rows, key=lambda row: int(row["version"]))
    ]
