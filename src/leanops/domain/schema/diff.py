"""What changes between two schemas of a topic, and how bad that is."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from leanops.domain.schema.model import Keys, PayloadColumn, Schema
from leanops.domain.schema.rules import RULES, compared_by
from leanops.domain.schema.types import TEXT, ColumnType, is_widening
from leanops.domain.words import counted


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
    """What deploying `new` changes; the version number is not a change."""
    if active is None:
        # Rows that were standardized before there was a schema have the default keys and contract.
        changes = [*_keys(Keys(), new.keys), *_contract("evolve", new.policies.unknown_fields)]
        what = f"first schema, {counted(len(new.payload_columns), 'column')} into {new.table_name}"
        return Difference((Change(Kind.FIRST, "", what, needs_raw=any(change.needs_raw for change in changes)),))
    return Difference(
        (
            *(_breaking("/table_name", what) for _, what in _changed(active, new, "table_name")),
            *_keys(active.keys, new.keys),
            *_columns(active, new),
            *_contract(active.policies.unknown_fields, new.policies.unknown_fields),
            *_neutral(active, new),
        )
    )


def _changed(old: BaseModel, new: BaseModel, *names: str) -> Iterator[tuple[str, str]]:
    """The members that differ, each with a text of what it was and is."""
    for name in names:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield name, f"{name} {_written(before)} → {_written(after)}"


def _keys(old: Keys, new: Keys) -> Iterator[Change]:
    for name, what in _changed(old, new, *Keys.model_fields):
        yield _breaking(f"/keys/{name}", f"keys.{what}", needs_raw=True)


def _contract(old: str, new: str) -> Iterator[Change]:
    """The contract holds for what arrives from now on: old rows stay as they are."""
    if old == new:
        return
    kinds = {new == "quarantine": Kind.RESTRICTIVE, old == "quarantine": Kind.ADDITIVE}
    kind = kinds.get(True, Kind.NEUTRAL)
    what = f"unknown_fields {old} → {new}"
    yield Change(kind, "/policies/unknown_fields", what, needs_raw=kind != Kind.NEUTRAL)


def _neutral(active: Schema, new: Schema) -> Iterator[Change]:
    for name, _ in _changed(active, new, "owner", "description", "measures", "envelope_columns"):
        yield Change(Kind.NEUTRAL, f"/{name}", f"{name} changed")
    policies = ("on_breaking", "cde_error_rate_alert", "cde_error_rate_fail", "lookback_months")
    for name, what in _changed(active.policies, new.policies, *policies):
        yield Change(Kind.NEUTRAL, f"/policies/{name}", what)
    before, after = ([column.name for column in schema.payload_columns] for schema in (active, new))
    if [name for name in after if name in before] != [name for name in before if name in after]:
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
    for name, what in _changed(old, new, "path", "format", "pii"):
        yield _breaking(f"{place}/{name}", f"{new.name}: {what}")
    if old.cde != new.cde:
        kind, how = (Kind.RESTRICTIVE, "now critical") if new.cde else (Kind.ADDITIVE, "no longer critical")
        yield Change(kind, f"{place}/cde", f"{new.name}: {how}", changes_rows=True)
    for name, what in _changed(old, new, "default"):
        kind = Kind.ADDITIVE if old.default is None else Kind.RESTRICTIVE
        yield Change(kind, f"{place}/{name}", f"{new.name}: {what}", changes_rows=True)
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
            what = f"{new.name}: rule {name} {how}, {_written(before)} → {_written(after)}"
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


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return " | ".join(map(str, value))
    return "none" if value is None else str(value)
