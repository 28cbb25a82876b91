"""Types of Curated columns, and what may be written as a value of one."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple


class TypeName(StrEnum):
    """The types a Curated column can have."""

    STRING = "STRING"
    INT = "INT"
    BIGINT = "BIGINT"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"


class ColumnType(NamedTuple):
    """A type with its precision and scale where it has them."""

    name: TypeName
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.name == TypeName.DECIMAL else self.name.value

    @property
    def is_exact(self) -> bool:
        """Whether its values are exact numbers."""
        return self.name in (TypeName.INT, TypeName.BIGINT, TypeName.DECIMAL)

    @property
    def is_number(self) -> bool:
        return self.is_exact or self.name == TypeName.DOUBLE


class DateFormat(StrEnum):
    """How the text of a DATE or TIMESTAMP is written; `iso` is ISO 8601."""

    ISO = "iso"
    EPOCH_SECONDS = "epoch_s"
    EPOCH_MILLIS = "epoch_ms"
    DAY_MONTH_YEAR = "dd/MM/yyyy"
    MONTH_DAY_YEAR = "MM/dd/yyyy"
    DOTTED = "dd.MM.yyyy"
    COMPACT = "yyyyMMdd"

    def goes_with(self, kind: ColumnType) -> bool:
        if self == DateFormat.ISO:
            return True
        return kind.name == (TypeName.TIMESTAMP if self in _MICROS else TypeName.DATE)


_MICROS = {DateFormat.EPOCH_SECONDS: 1_000_000, DateFormat.EPOCH_MILLIS: 1_000}
_DAYS = {
    DateFormat.ISO: ("[0-9]{4}-[0-9]{2}-[0-9]{2}", "%Y-%m-%d"),
    DateFormat.DAY_MONTH_YEAR: ("[0-9]{2}/[0-9]{2}/[0-9]{4}", "%d/%m/%Y"),
    DateFormat.MONTH_DAY_YEAR: ("[0-9]{2}/[0-9]{2}/[0-9]{4}", "%m/%d/%Y"),
    DateFormat.DOTTED: (r"[0-9]{2}\.[0-9]{2}\.[0-9]{4}", "%d.%m.%Y"),
    DateFormat.COMPACT: ("[0-9]{8}", "%Y%m%d"),
}
_NUMBER = r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
_ZONE = r"(Z|[+-](0[0-9]|1[0-7])(:?[0-5][0-9])?)?"
_TIMESTAMP = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{{1,6}})?)?{_ZONE}"
# The casts take no offset there: it could leave the calendar.
_OFF_CALENDAR = r"(0001-01-01|9999-12-31).{6,}[+-][0-9:]+"
_LONGEST = 38
_START = datetime(1970, 1, 1, tzinfo=UTC)
_CALENDAR = tuple(
    (end.replace(tzinfo=UTC) - _START) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)
_WHOLE = {TypeName.INT: 2**31, TypeName.BIGINT: 2**63}


def micros_per_unit(form: DateFormat) -> int:
    """Microseconds in what an epoch counts."""
    return _MICROS[form]


def epoch_bounds(form: DateFormat) -> tuple[int, int]:
    """The least and the greatest count of an epoch whose moment lies in the years 0001 to 9999."""
    first, last = _CALENDAR
    return first // _MICROS[form], last // _MICROS[form]


def iceberg_type(kind: ColumnType) -> str:
    """The type of a Curated column as Iceberg writes it."""
    names = {TypeName.BIGINT: "long", TypeName.TIMESTAMP: "timestamptz"}
    if kind.name == TypeName.DECIMAL:
        return f"decimal({kind.precision},{kind.scale})"
    return names.get(kind.name, kind.name.value.lower())


def limit_value(text: str, kind: ColumnType) -> Any:
    """What a limit is compared by, or None if it is none; a limit may be finer or wider than the column.

    Stricter than the casts of Curated: what it takes for a value, they do too.
    """
    return _READERS[kind.name](text, DateFormat.ISO)


def column_value(text: str, kind: ColumnType, form: DateFormat) -> Any:
    """What a value of the column is compared by, or None if the column cannot hold the text."""
    value = _READERS[kind.name](text, form)
    if value is None or not kind.is_exact:
        return value
    if kind.name == TypeName.DECIMAL:
        digits = value * 10**kind.scale
        return value if digits.denominator == 1 and abs(digits) < 10**kind.precision else None
    bound = _WHOLE[kind.name]
    return value if value.denominator == 1 and -bound <= value < bound else None


def leaves_room(low: Any, high: Any, kind: ColumnType) -> bool:
    """Whether a value of the type can lie between two limits."""
    if not kind.is_exact:
        return bool(low <= high)
    grid = 10**kind.scale
    return bool(math.ceil(low * grid) <= math.floor(high * grid))


def _text(text: str, _: DateFormat) -> str:
    # Python orders texts by code point, which is how their bytes are ordered.
    return text


def _exact(text: str, _: DateFormat) -> Fraction | None:
    if not _is(text, _NUMBER) or sum(one.isdigit() for one in f"{Decimal(text):f}") > _LONGEST:
        return None
    return Fraction(text)


def _double(text: str, _: DateFormat) -> float | None:
    if not _is(text, _NUMBER) or math.isinf(float(text)):
        return None
    is_lost = float(text) == 0 and re.search("[1-9]", text.lower().split("e")[0])
    return None if is_lost else float(text)


def _boolean(text: str, _: DateFormat) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _date(text: str, form: DateFormat) -> int | None:
    grammar, pattern = _DAYS[form]
    try:
        return datetime.strptime(text, pattern).toordinal() if _is(text, grammar) else None
    except ValueError:
        return None


def _timestamp(text: str, form: DateFormat) -> int | None:
    if form in _MICROS:
        return _epoch(text, form)
    if not _is(text, _TIMESTAMP) or _is(text, _OFF_CALENDAR):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _START) // timedelta(microseconds=1)


def _epoch(text: str, form: DateFormat) -> int | None:
    count, (least, greatest) = _exact(text, form), epoch_bounds(form)
    if count is None or count.denominator != 1 or not least <= count <= greatest:
        return None
    return int(count) * _MICROS[form]


def _is(text: str, grammar: str) -> bool:
    return re.fullmatch(grammar, text, re.ASCII) is not None


_READERS: dict[TypeName, Callable[[str, DateFormat], Any]] = {
    **dict.fromkeys((TypeName.INT, TypeName.BIGINT, TypeName.DECIMAL), _exact),
    TypeName.STRING: _text,
    TypeName.DOUBLE: _double,
    TypeName.BOOLEAN: _boolean,
    TypeName.DATE: _date,
    TypeName.TIMESTAMP: _timestamp,
}
