"""A schema planned on real rows: what it would do to them, to the tables, and for how long."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from leanops.domain.columns import register
from leanops.domain.compatibility import Difference, Kind
from leanops.domain.evolution import is_promotion
from leanops.domain.schema import Schema, changed_types, iceberg_type

Source = Literal["standardized", "raw", "nothing", "retired"]
"""Where rows were read: nowhere without events, nor where RAW, which is needed, no longer holds them."""
Needs = Literal["nothing", "recurate", "rebuild"]


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
class Rate:
    """Rows a second, and where that was measured."""

    rows_s: float
    measured: str


@dataclass(frozen=True)
class SchemaPlan:
    """The difference, and what it does to the rows that are there."""

    topic: str
    difference: Difference
    source: Source
    rows: int
    """Rows read; those of RAW may be older versions of a key, copies, or no events."""
    judged: int
    """Current versions among them: the rows Curated would be made from."""
    is_sample: bool
    failing: int = 0
    failing_today: int = 0
    leaving: int = 0
    """Keys in Curated, at the version Standardized has, whose row would fail."""
    resolved: int = 0
    changed: int = 0
    """Rows of Curated that would hold another value, or one in a new column, or be made from another message."""
    cde_missing: int = 0
    """Rows that lack any critical value, as a batch counts them."""
    failures: tuple[FailureGroup, ...] = ()
    parse_errors: int | None = None
    missing_keys: int | None = None
    version_fallback: int | None = None
    ddl: tuple[str, ...] = ()
    needs: Needs = "nothing"
    estimate_s: float | None = None
    rates: Mapping[str, Rate] = field(default_factory=dict)
    """By layer, the rates the estimate comes from."""

    @property
    def is_safe(self) -> bool:
        """Whether it can be deployed as it is: no row would leave Curated or be lost, and nothing breaks."""
        is_breaking = self.needs == "rebuild" and self.difference.kind != Kind.FIRST
        is_lost = self.source == "retired" and self.needs == "rebuild"
        return self.leaving == 0 and not is_lost and not is_breaking and self.difference.kind != Kind.BREAKING

    def without_values(self) -> "SchemaPlan":
        """The same plan for readers who may not read the rows: its examples have message ids, and no values."""
        groups = [
            replace(group, examples=tuple(Example(one.message_id, None) for one in group.examples))
            for group in self.failures
        ]
        return replace(self, failures=tuple(groups))

    def as_json(self) -> dict[str, Any]:
        """The form of `schema plan --json`."""
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
        made = {tables.curated: tables.columns}
        if difference.needs_raw:
            made = {tables.standardized: tables.paths, **made}
        return tuple(
            f"CREATE TABLE {name}" if there is None else f"replace {name} (rebuild)" for name, there in made.items()
        )
    added = register(tables.paths or {}, [path for path in new.named_paths if path not in (tables.paths or {})])
    lines = [f"ALTER TABLE {tables.standardized} ADD COLUMN {name} STRING" for name in added.values()]
    if tables.paths is None:
        lines = [f"CREATE TABLE {tables.standardized}"]
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
    """What has to be made anew; a restrictive schema holds for what comes, and is applied to old rows on demand."""
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
    wanted = next(iceberg_type(column.type) for column in new.payload_columns if column.name == name)
    today = columns[name].replace(" ", "")
    return today == wanted or is_promotion(today, wanted)
