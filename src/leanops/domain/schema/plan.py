"""A schema planned on real rows: what it would do to them and to the tables."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from leanops.domain.problems import Code, Problem
from leanops.domain.schema.diff import Difference, Kind
from leanops.domain.schema.model import Schema, changed_types
from leanops.domain.schema.types import is_promotion

Source = Literal["standardized", "raw", "nothing", "retired"]
"""Where rows were read: nowhere without events, nor where RAW, which is needed, no longer holds them."""
Needs = Literal["nothing", "recurate", "rebuild"]
ALIKE = 0.8
"""Paths of one object are alike by what they share; below this, one is not a misspelling of the other."""


@dataclass(frozen=True)
class Example:
    """A row that fails; the value as the error table would hold it."""

    message_id: str
    value: str | None


@dataclass(frozen=True)
class FailureGroup:
    """All rows that fail one rule of one column."""

    rule: str
    column: str
    message: str
    rows: int
    examples: tuple[Example, ...]


@dataclass(frozen=True)
class Unseen:
    """A path of the schema that no event has."""

    pointer: str
    """Where the schema names it."""
    name: str
    """The column that is read there, or keys.version and the like."""
    path: str
    events: int
    """How many events were looked at."""
    nearest: str | None
    """The path most like it among those that events have."""

    @property
    def is_key(self) -> bool:
        """Whether key, version or period is read there: without it every event is keyed or ordered in another way."""
        return self.pointer.startswith("/keys/")

    @property
    def what(self) -> str:
        return f"{self.path} is in 0 of {self.events:,} events"

    @property
    def hint(self) -> str:
        return f"did you mean {self.nearest}?" if self.nearest else "no event has a similar path"

    def problem(self) -> Problem:
        """Why a deployment refuses it, where it is a key's."""
        later = f"f events will have {self.path} later, add --accept-unseen"
        hint = f"{self.hint} I{later}" if self.nearest else f"{self.hint}; i{later}"
        return Problem(Code.PATH_UNSEEN, self.pointer, self.what, hint)


def unseen_paths(schema: Schema, seen: Collection[str], events: int, *, with_keys: bool) -> tuple[Unseen, ...]:
    """The paths of the schema that are not among those seen; key, version and period are asked for apart."""
    keys = [(f"/keys/{name}", f"keys.{name}", path) for name, path in schema.keys.named.items()]
    columns = [
        (f"/payload_columns/{at}/path", column.name, column.path) for at, column in enumerate(schema.payload_columns)
    ]
    known = sorted(seen)
    return tuple(
        Unseen(pointer, name, path, events, next(iter(get_close_matches(path, known, 1, ALIKE)), None))
        for pointer, name, path in [*(keys if with_keys else []), *columns]
        if path and path not in seen
    )


@dataclass(frozen=True)
class SchemaPlan:
    """The difference, and what it does to the rows that are there."""

    topic: str
    difference: Difference
    source: Source
    rows: int
    """Rows read; those of RAW may be older versions of a key, copies, or no events."""
    judged: int
    """Current versions among them: the rows Curated would be built from."""
    is_sample: bool
    failing: int = 0
    failing_today: int = 0
    leaving: int = 0
    """Keys in Curated that would not be in a rebuilt one."""
    resolved: int = 0
    changed: int = 0
    """Rows of Curated that would hold another value, or one in a new column, or be built from another message."""
    cde_missing: int = 0
    """Rows that lack any critical value, as a batch counts them."""
    failures: tuple[FailureGroup, ...] = ()
    parse_errors: int | None = None
    missing_keys: int | None = None
    version_fallback: int | None = None
    ddl: tuple[str, ...] = ()
    needs: Needs = "nothing"
    unseen: tuple[Unseen, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Why a deployment would refuse it, whatever is agreed to."""

    @property
    def is_safe(self) -> bool:
        """Whether it can be deployed as it is: no row would leave Curated or be lost, and nothing breaks."""
        kind, is_rebuilt = self.difference.kind, self.needs == "rebuild"
        is_breaking = kind == Kind.BREAKING or (is_rebuilt and kind != Kind.FIRST)
        is_lost = is_rebuilt and self.source == "retired"
        return not (self.leaving or is_lost or is_breaking or self.problems or self.unseen_keys)

    @property
    def unseen_keys(self) -> tuple[Unseen, ...]:
        """The paths of key, version and period that no event has."""
        return tuple(unseen for unseen in self.unseen if unseen.is_key)

    def without_values(self) -> "SchemaPlan":
        """The same plan for readers who may not read the rows: its examples have message ids, and no values."""
        groups = [
            replace(group, examples=tuple(Example(example.message_id, None) for example in group.examples))
            for group in self.failures
        ]
        return replace(self, failures=tuple(groups))

    def as_json(self) -> dict[str, Any]:
        """The fields and, beside them, what they add up to."""
        return {**asdict(self), "difference": self.difference.as_json(), "safe": self.is_safe}


@dataclass(frozen=True)
class Tables:
    """The tables of a topic as they are: their names, and their columns where they exist."""

    standardized: str
    paths: Mapping[str, str] | None
    curated: str
    columns: Mapping[str, str] | None


def ddl_of(new: Schema, difference: Difference, tables: Tables) -> tuple[str, ...]:
    """What would be done to the tables, one line each."""
    if _is_rebuilt(new, difference, tables):
        rebuilt = {tables.curated: tables.columns}
        if difference.needs_raw:
            rebuilt = {tables.standardized: tables.paths, **rebuilt}
        return tuple(
            f"CREATE TABLE {name}" if live is None else f"replace {name} (rebuild)" for name, live in rebuilt.items()
        )
    # A path gets its column of Standardized from the first event that has it.
    lines = [f"CREATE TABLE {tables.standardized}"] if tables.paths is None else []
    if tables.columns is None:
        return (*lines, f"CREATE TABLE {tables.curated} ({len(new.payload_columns)} payload columns)")
    widened = changed_types(new, tables.columns)
    for column in new.payload_columns:
        if column.name not in tables.columns:
            lines.append(f"ALTER TABLE {tables.curated} ADD COLUMN {column.name} {column.type}")
        elif column.name in widened:
            lines.append(f"ALTER TABLE {tables.curated} ALTER COLUMN {column.name} TYPE {column.type}")
    return tuple(lines)


def needed(new: Schema, difference: Difference, tables: Tables, *, old_rows_change: bool) -> Needs:
    """What has to be rebuilt; a restrictive schema holds for new rows, and is applied to old ones on demand."""
    if _is_rebuilt(new, difference, tables):
        return "rebuild"
    return "recurate" if difference.kind == Kind.ADDITIVE and old_rows_change else "nothing"


def _is_rebuilt(new: Schema, difference: Difference, tables: Tables) -> bool:
    """A breaking change, other keys than rows without a schema have, or a type the table cannot take in place."""
    changed = changed_types(new, tables.columns or {})
    if difference.kind == Kind.FIRST and difference.needs_raw and tables.paths is not None:
        return True
    return difference.kind == Kind.BREAKING or any(not is_promotion(*pair) for pair in changed.values())


def is_comparable(new: Schema, name: str, columns: Mapping[str, str]) -> bool:
    """Whether a column's live values can be compared with new ones: it has the same type, or one that widens to it."""
    changed = changed_types(new, columns)
    return name not in changed or is_promotion(*changed[name])
