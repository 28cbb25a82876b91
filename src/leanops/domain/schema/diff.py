"""What changes between two schemas of a topic, and how bad that is."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from leanops.domain.schema.model import Keys, PayloadColumn, Schema
from leanops.domain.schema.rules import RULES, compared_by
from leanops.domain.schema.types import TEXT, ColumnType, is_widening


class Kind(StrEnum):
    """How bad a change is, in rising order; FIRST is a topic's first schema."""

    NEUTRAL = "neutral"
    ADDITIVE = "additive"
    RESTRICTIVE = "restrictive"
    BREAKING = "breaking"
    FIRST = "first"


_RISING = tuple(Kind)


@dataclass(frozen=True)
class Change:
    """One change: its place in the new file, or in the old one for what was removed."""

    kind: Kind
    pointer: str
    what: str
    changes_rows: bool = False
    """Whether Curated might hold something else for events that are already there."""
    needs_raw: bool = False
    """Whether Standardized itself depends on it."""


@dataclass(frozen=True)
class Difference:
    """All changes from one schema to the next."""

    changes: tuple[Change, ...] = ()

    @property
    def kind(self) -> Kind:
        """The worst of the changes; neutral where there are none."""
        return max((change.kind for change in self.changes), key=_RISING.index, default=Kind.NEUTRAL)

    @property
    def changes_rows(self) -> bool:
        return any(change.changes_rows for change in self.changes)

    @property
    def needs_raw(self) -> bool:
        return any(change.needs_raw for change in self.changes)

    def as_json(self) -> dict[str, Any]:
        """The changes and, unlike the fields, the kind they add up to."""
        return {"kind": self.kind.value, "changes": [asdict(change) for change in self.changes]}


def difference(active: Schema | None, new: Schema) -> Difference:
    """What deploying `new` changes; the version number is no change."""
    if active is None:
        # Rows that were standardized before there was a schema have the default keys and contract.
        changes = [*_keys(Keys(), new.keys), *_contract("evolve", new.policies.unknown_fields)]
        what = f"first schema, {len(new.payload_columns)} columns into {new.table_name}"
        return Difference((Change(Kind.FIRST, "", what, needs_raw=any(change.needs_raw for change in changes)),))
    return Difference(
        (
            *_table_name(active, new),
            *_keys(active.keys, new.keys),
            *_columns(active, new),
            *_contract(active.policies.unknown_fields, new.policies.unknown_fields),
            *_neutral(active, new),
        )
    )


def _table_name(active: Schema, new: Schema) -> Iterator[Change]:
    if active.table_name != new.table_name:
        yield _breaking("/table_name", f"table_name {active.table_name} → {new.table_name}")


def _keys(old: Keys, new: Keys) -> Iterator[Change]:
    for name in Keys.model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield _breaking(f"/keys/{name}", f"keys.{name} {_said(before)} → {_said(after)}", needs_raw=True)


def _contract(old: str, new: str) -> Iterator[Change]:
    """The contract holds for what arrives from now on: old rows stay as they are."""
    if old == new:
        return
    kinds = {new == "quarantine": Kind.RESTRICTIVE, old == "quarantine": Kind.ADDITIVE}
    kind = kinds.get(True, Kind.NEUTRAL)
    what = f"unknown_fields {old} → {new}"
    yield Change(kind, "/policies/unknown_fields", what, needs_raw=kind != Kind.NEUTRAL)


def _neutral(active: Schema, new: Schema) -> Iterator[Change]:
    for name in ("owner", "description", "measures", "envelope_columns"):
        if getattr(active, name) != getattr(new, name):
            yield Change(Kind.NEUTRAL, f"/{name}", f"{name} changed")
    for name in ("on_breaking", "cde_error_rate_alert", "cde_error_rate_fail", "lookback_months"):
        before, after = getattr(active.policies, name), getattr(new.policies, name)
        if before != after:
            yield Change(Kind.NEUTRAL, f"/policies/{name}", f"{name} {_said(before)} → {_said(after)}")
    after = {column.name for column in new.payload_columns}
    before = {column.name for column in active.payload_columns}
    kept = [column.name for column in new.payload_columns if column.name in before]
    if kept != [column.name for column in active.payload_columns if column.name in after]:
        yield Change(Kind.NEUTRAL, "/payload_columns", "columns in another order")


def _columns(active: Schema, new: Schema) -> Iterator[Change]:
    before = {column.name: column for column in active.payload_columns}
    after = {column.name: column for column in new.payload_columns}
    # A column that went and one that came with the same path.
    went = {column.path: column.name for column in active.payload_columns if column.name not in after and column.path}
    came = [column for column in new.payload_columns if column.name not in before]
    renamed = {column.name: went.pop(column.path) for column in came if column.path in went}
    for at, column in enumerate(new.payload_columns):
        place = f"/payload_columns/{at}"
        if column.name in before:
            yield from _column(place, before[column.name], column)
        else:
            yield _added(place, column, renamed.get(column.name))
    for at, column in enumerate(active.payload_columns):
        if column.name not in after:
            now = next((name for name, was in renamed.items() if was == column.name), None)
            why = f": {now} takes its path {column.path}, and a rename is a removal and an addition" if now else ""
            yield _breaking(f"/payload_columns/{at}", f"{column.name} removed{why}")


def _added(place: str, column: PayloadColumn, was: str | None) -> Change:
    terms = [term for term, holds in (("critical", column.cde), ("with rules", column.rules.written)) if holds]
    instead = f" in place of {was}" if was else ""
    what = f"{column.name} {column.type} added{instead}{', ' if terms else ''}{' and '.join(terms)}"
    return Change(Kind.RESTRICTIVE if terms else Kind.ADDITIVE, place, what, changes_rows=True)


def _column(place: str, old: PayloadColumn, new: PayloadColumn) -> Iterator[Change]:
    """What changed in a column of one name."""
    if old.type != new.type:
        kind, how = (Kind.ADDITIVE, "widened") if is_widening(old.type, new.type) else (Kind.BREAKING, "changed")
        yield Change(kind, f"{place}/type", f"{new.name}: type {how}, {old.type} → {new.type}", changes_rows=True)
    for name in ("path", "format", "pii"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield _breaking(f"{place}/{name}", f"{new.name}: {name} {_said(before)} → {_said(after)}")
    if old.cde != new.cde:
        kind, how = (Kind.RESTRICTIVE, "now critical") if new.cde else (Kind.ADDITIVE, "no longer critical")
        yield Change(kind, f"{place}/cde", f"{new.name}: {how}", changes_rows=True)
    if old.default != new.default:
        kind = Kind.ADDITIVE if old.default is None else Kind.RESTRICTIVE
        what = f"{new.name}: default {_said(old.default)} → {_said(new.default)}"
        yield Change(kind, f"{place}/default", what, changes_rows=True)
    yield from _rules(f"{place}/rules", old, new)
    if old.description != new.description:
        yield Change(Kind.NEUTRAL, f"{place}/description", f"{new.name}: description changed")


def _rules(place: str, old: PayloadColumn, new: PayloadColumn) -> Iterator[Change]:
    # Limits are compared as values of their type, or as texts where the two columns share none.
    are_alike = old.type.name == new.type.name or (old.type.is_exact and new.type.is_exact)
    for name in RULES:
        before, after = old.rules.written.get(name), new.rules.written.get(name)
        kind = _compared(name, before, after, new.type if are_alike else TEXT)
        if kind is None and before != after:
            # The file is another one all the same, and gets a version of its own.
            yield Change(Kind.NEUTRAL, f"{place}/{name}", f"{new.name}: rule {name} written in another way")
        elif kind is not None:
            how = {Kind.ADDITIVE: "relaxed", Kind.RESTRICTIVE: "tightened"}[kind]
            what = f"{new.name}: rule {name} {how}, {_said(before)} → {_said(after)}"
            yield Change(kind, f"{place}/{name}", what, changes_rows=True)


def _compared(name: str, before: Any, after: Any, kind: ColumnType) -> Kind | None:
    """Additive where all that was good stays good, None where nothing changes, else restrictive."""
    if before is None or after is None:
        return None if before is after else Kind.RESTRICTIVE if before is None else Kind.ADDITIVE
    old, new = compared_by(name, before, kind), compared_by(name, after, kind)
    if old == new:
        return None
    return Kind.ADDITIVE if RULES[name].is_relaxed(new, old) else Kind.RESTRICTIVE


def _breaking(pointer: str, what: str, *, needs_raw: bool = False) -> Change:
    return Change(Kind.BREAKING, pointer, what, changes_rows=True, needs_raw=needs_raw)


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return " | ".join(value)
    return "none" if value is None else str(value)
