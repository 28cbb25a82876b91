"""The types of Curated columns, in one table: a new type is one entry."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from leanops.domain.payload.flatten import BOOLEAN, NUMBER, STRING, Kind
from leanops.domain.schema import casts
from leanops.domain.schema.casts import DateFormat, Plain

_ICEBERG = re.compile(r"([a-z]+)(?:\(([0-9]+),([0-9]+)\))?")


class ColumnType(NamedTuple):
    """A type with its precision and scale where it has them."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"{self.name}{self._digits}"

    @property
    def entry(self) -> "TypeEntry":
        return TYPES[self.name]

    @property
    def iceberg(self) -> str:
        """The type as Iceberg writes it."""
        return f"{self.entry.iceberg}{self._digits}"

    @property
    def is_exact(self) -> bool:
        """Whether its values are exact numbers."""
        return self.entry.numbers == "exact"

    @property
    def whole_digits(self) -> int:
        """Digits before the point of an exact number."""
        return self.precision - self.scale if self.entry.has_scale else len(str(self.entry.bound))

    def holds(self, value: Fraction) -> bool:
        """Whether an exact number is one of its values."""
        grid = value * 10**self.scale
        bound = 10**self.precision if self.entry.has_scale else self.entry.bound
        # Whole numbers reach one further below zero; a DECIMAL holds the same digits on both sides.
        least = 1 - bound if self.entry.has_scale else -bound
        return grid.denominator == 1 and bool(least <= grid < bound)

    @property
    def _digits(self) -> str:
        return f"({self.precision},{self.scale})" if self.precision else ""


@dataclass(frozen=True)
class TypeEntry:
    """All that is known of a type."""

    iceberg: str
    """Its Iceberg type, without precision and scale."""
    like: str
    """What to write, for hints."""
    read: Callable[[str, DateFormat], Any]
    """What a text is compared by; None where it holds no value."""
    accepts: str
    """Documentation: the texts it takes, examples of them, and some it refuses."""
    examples: str
    refuses: str = ""
    plain: Callable[[ColumnType, DateFormat], Sequence[Plain]] = lambda _kind, _form: ()
    """The texts that need not be read one by one."""
    numbers: Literal["exact", "real"] | None = None
    bound: int = 0
    """Whole numbers are below it, and not below its negative."""
    has_scale: bool = False
    """Whether a precision and a scale follow its name."""
    formats: tuple[DateFormat, ...] = (DateFormat.ISO,)
    widens_to: str | None = None
    """The type that takes all its values in place, with the same scale and no less precision."""
    inferred_from: frozenset[Kind] = frozenset()
    """The JSON values for which inference tries it."""


TEXT = ColumnType("STRING")
_DAYS = (DateFormat.DAY_MONTH_YEAR, DateFormat.MONTH_DAY_YEAR, DateFormat.DOTTED, DateFormat.COMPACT)
_WHOLE: dict[str, Any] = {
    "like": "a number like 7",
    "read": casts.exact_in,
    # One digit fewer than the greatest number has: all of those fit.
    "plain": lambda kind, _: casts.plain_integers(kind.whole_digits - 1),
    "accepts": "a number whose value is whole and in range",
    "examples": "`7`, `+7`, `007`, `7.0`, `7e2`, `700e-2`",
    "numbers": "exact",
    "inferred_from": frozenset({NUMBER}),
}

TYPES: dict[str, TypeEntry] = {
    "STRING": TypeEntry(
        iceberg="string",
        like="a text",
        # Python orders texts by code point, which is how their bytes are ordered.
        read=lambda text, _: text,
        accepts="any",
        examples="` a ` stays ` a `",
    ),
    "INT": TypeEntry(
        "int", **_WHOLE, refuses="`7.5`, `7,000`, ` 7`, `0x7`, `2147483648`", bound=2**31, widens_to="BIGINT"
    ),
    "BIGINT": TypeEntry("long", **_WHOLE, refuses="`7.5`, `7,000`, ` 7`, `0x7`, `9223372036854775808`", bound=2**63),
    "DECIMAL": TypeEntry(
        iceberg="decimal",
        like="a number like 7.50",
        read=casts.exact_in,
        plain=lambda kind, _: casts.plain_decimals(kind.precision, kind.scale),
        accepts="a number that needs at most `s` decimals and `p` digits",
        examples="as (18,2): `1.10`, `1.100`, `1.5e3`, `-0`",
        refuses="`1.005`, `1e30`, `1.`",
        numbers="exact",
        has_scale=True,
        widens_to="DECIMAL",
        inferred_from=frozenset({NUMBER}),
    ),
    "DOUBLE": TypeEntry(
        iceberg="double",
        like="a number like 7.5",
        read=casts.double_in,
        plain=lambda _kind, _form: casts.plain_doubles(),
        accepts="a number that is finite as a double; only a zero becomes zero",
        examples="`1.5`, `-1e-300`",
        refuses="`NaN`, `Infinity`, `1e999`, `1e-999`",
        numbers="real",
        inferred_from=frozenset({NUMBER}),
    ),
    "BOOLEAN": TypeEntry(
        iceberg="boolean",
        like="true or false",
        read=casts.boolean_in,
        accepts="`true` or `false`, in any case",
        examples="`TRUE`, `false`",
        refuses="`1`, `yes`, `t`",
        inferred_from=frozenset({BOOLEAN, STRING}),
    ),
    "DATE": TypeEntry(
        iceberg="date",
        like="a day like 2026-01-31",
        read=casts.date_in,
        accepts="`yyyy-MM-dd`, a day of the calendar",
        examples="`2026-02-28`",
        refuses="`2026-02-30`, `2026-2-8`, `2026-02-28T00:00:00`",
        formats=(DateFormat.ISO, *_DAYS),
        inferred_from=frozenset({NUMBER, STRING}),
    ),
    "TIMESTAMP": TypeEntry(
        iceberg="timestamptz",
        like="a time like 2026-01-31T12:00:00Z",
        read=casts.timestamp_in,
        plain=lambda _, form: casts.plain_timestamps(form),
        accepts="`yyyy-MM-dd`, then `T` or one space, then `HH:mm`, `HH:mm:ss` or `HH:mm:ss.f`, then nothing or a zone",
        examples="`2026-02-28T12:30:00Z`, `2026-02-28 12:30`, `2026-02-28T12:30:00.123456+01:00`",
        refuses="`2026-02-28`, `…12:30:00z`, `…24:00:00`",
        formats=(DateFormat.ISO, DateFormat.EPOCH_SECONDS, DateFormat.EPOCH_MILLIS),
        inferred_from=frozenset({NUMBER, STRING}),
    ),
}


def type_names() -> list[str]:
    """The types as a schema file may name them."""
    return [f"{name}(p,s)" if entry.has_scale else name for name, entry in TYPES.items()]


def limit_value(text: str, kind: ColumnType) -> Any:
    """What a limit is compared by, or None if it is not a value; a limit may be finer or wider than the column."""
    return kind.entry.read(text, DateFormat.ISO)


def column_value(text: str, kind: ColumnType, form: DateFormat) -> Any:
    """What a value of the column is compared by, or None if the column cannot hold the text."""
    value = kind.entry.read(text, form)
    return None if value is None or (kind.is_exact and not kind.holds(value)) else value


def is_promotion(today: str, wanted: str) -> bool:
    """Whether Iceberg can widen a column from one of its types to the other in place."""
    old, new = type_from_iceberg(today), type_from_iceberg(wanted)
    return old is not None and new is not None and is_widening(old, new)


def is_widening(old: ColumnType, new: ColumnType) -> bool:
    """Whether every value of a type is one of another, wider one that a table can take in place."""
    is_wider = new.name == old.entry.widens_to and new.scale == old.scale and new.precision >= old.precision
    return old != new and is_wider


def type_from_iceberg(text: str) -> ColumnType | None:
    """The type that has this Iceberg type, None where no type has."""
    parts = _ICEBERG.fullmatch(text.replace(" ", ""))
    name = next((name for name, entry in TYPES.items() if parts and entry.iceberg == parts[1]), None)
    return ColumnType(name, int(parts[2] or 0), int(parts[3] or 0)) if name and parts else None
