"""Schemas in words: what one holds, and what a new one would change."""

from leanops.domain.schema import PayloadColumn, Schema


def changes(active: Schema | None, new: Schema) -> list[str]:
    """What deploying `new` would change, one line each; nothing where both say the same."""
    if active is None:
        return [f"first schema, {len(new.payload_columns)} columns into {new.table_name}"]
    before = {column.name: column for column in active.payload_columns}
    after = {column.name: column for column in new.payload_columns}
    added = [f"adds {name} {after[name].type}" for name in after if name not in before]
    dropped = [f"no longer fills {name}" for name in before if name not in after]
    changed = [f"changes {name}: {_difference(before[name], after[name])}" for name in after if name in before]
    others = [
        f"changes {part}" for part in ("keys", "policies", "measures") if getattr(active, part) != getattr(new, part)
    ]
    return [*added, *dropped, *(line for line in changed if not line.endswith(": ")), *others]


def _difference(before: PayloadColumn, after: PayloadColumn) -> str:
    parts = [part for part in PayloadColumn.model_fields if getattr(before, part) != getattr(after, part)]
    return ", ".join(
        f"{part} {getattr(before, part)} → {getattr(after, part)}" if part in ("type", "path", "cde", "pii") else part
        for part in parts
    )


def rules_of(column: PayloadColumn) -> str:
    """The rules of a column in one line."""
    said = column.rules.model_dump(exclude_none=True)
    default = [f"default {column.default}"] if column.default is not None else []
    return ", ".join([*default, *(f"{name} {_listed(value)}" for name, value in said.items())])


def _listed(value: object) -> str:
    return " | ".join(str(one) for one in value) if isinstance(value, tuple) else str(value)
