"""Texts of each type: the value that Python reads in one, and the texts that Arrow casts to the same value.

A text that does not hold a value of the type has none: nothing is rounded, truncated or guessed. Arrow casts the texts
that a grammar of `Plain` takes, all at once; every other text is read here, one by one.
"""

import math
import re
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NamedTuple

from leanops.domain.event.envelope import EARLIEST_MICROS, LATEST_MICROS, micros


class DateFormat(StrEnum):
    """How the text of a DATE or TIMESTAMP is written; `iso` is ISO 8601."""

    ISO = "iso"
    EPOCH_SECONDS = "epoch_s"
    EPOCH_MILLIS = "epoch_ms"
    DAY_MONTH_YEAR = "dd/MM/yyyy"
    MONTH_DAY_YEAR = "MM/dd/yyyy"
    DOTTED = "dd.MM.yyyy"
    COMPACT = "yyyyMMdd"


class Plain(NamedTuple):
    """Texts that Arrow casts exactly."""

    grammar: str
    """An RE2 expression of the whole text."""
    rewritten: str | None = None
    """What Arrow casts instead of the text: its groups, put together."""
    unit: Literal["s", "ms"] | None = None
    """What the text counts since 1970."""


_MOST_DIGITS = 38
"""Before and after the point: no exact type holds more."""
_NUMBER = re.compile(r"([+-]?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_LONGEST_EXPONENT = 18
"""No payload is long enough to make up for an exponent of more digits."""
_MINUTE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SECOND = r":[0-5][0-9](?:\.[0-9]{1,6}0{0,3})?"
_ZONE = r"(?:Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))?"
_TIMESTAMP = re.compile(f"{_MINUTE}(?:{_SECOND})?{_ZONE}")
BEYOND_MICROS = r"(:[0-5][0-9][.][0-9]{6})[0-9]+"
"""A second with more digits than an order needs; without those, it is its first group."""
# The 29th of February is left to Python, which knows the leap years; so are offsets at both ends of the calendar.
_MONTH_AND_DAY = "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
_PLAIN_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?"
_PLAIN_OFFSET = "[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?"
_PLAIN_TIMESTAMPS = (
    Plain(f"([1-9][0-9]{{3}}-{_MONTH_AND_DAY})[T ]({_PLAIN_TIME})Z?", r"\1T\2Z"),
    Plain(f"[1-8][0-9]{{3}}-{_MONTH_AND_DAY}[T ]{_PLAIN_TIME}{_PLAIN_OFFSET}"),
)
_PER_UNIT = {DateFormat.EPOCH_SECONDS: 1_000_000, DateFormat.EPOCH_MILLIS: 1_000}


def exact_in(text: str, _: DateFormat) -> Fraction | None:
    """A number of at most 38 digits before its point and 38 after it."""
    parts = _NUMBER.fullmatch(text)
    if parts is None:
        return None
    sign, whole, fraction, exponent_sign, exponent = (part or "" for part in parts.groups())
    digits = (whole + fraction).lstrip("0")
    significant, exponent = digits.rstrip("0"), exponent.lstrip("0") or "0"
    if not significant:
        return Fraction(0)
    if len(exponent) > _LONGEST_EXPONENT:
        return None
    power = int(exponent_sign + exponent) - len(fraction) + len(digits) - len(significant)
    if len(significant) + power > _MOST_DIGITS or power < -_MOST_DIGITS:
        return None
    return int(sign + significant) * Fraction(10) ** power


def double_in(text: str, _: DateFormat) -> float | None:
    """A number that is finite as a double; only a zero becomes zero."""
    parts = _NUMBER.fullmatch(text)
    value = float(text) if parts else math.inf
    is_zero = parts is not None and not (parts[2] + (parts[3] or "")).strip("0")
    return None if math.isinf(value) or (value == 0 and not is_zero) else value


def boolean_in(text: str, _: DateFormat) -> bool | None:
    """True or false, in any case."""
    return {"true": True, "false": False}.get(text.lower())


def date_in(text: str, form: DateFormat) -> int | None:
    """The number of a day of the calendar."""
    pattern = "yyyy-MM-dd" if form == DateFormat.ISO else form.value
    grammar = re.escape(pattern).replace("yyyy", "[0-9]{4}").replace("MM", "[0-9]{2}").replace("dd", "[0-9]{2}")
    directives = pattern.replace("yyyy", "%Y").replace("MM", "%m").replace("dd", "%d")
    try:
        return datetime.strptime(text, directives).toordinal() if re.fullmatch(grammar, text) else None
    except ValueError:
        return None


def timestamp_in(text: str, form: DateFormat) -> int | None:
    """Microseconds since 1970: of a time in UTC unless it says otherwise, or of a count of seconds or milliseconds."""
    if form in _PER_UNIT:
        count = exact_in(text, form)
        moment = count * _PER_UNIT[form] if count is not None and count.denominator == 1 else None
        return int(moment) if moment is not None and EARLIEST_MICROS <= moment <= LATEST_MICROS else None
    try:
        parsed = datetime.fromisoformat(text) if _TIMESTAMP.fullmatch(text) else None
    except ValueError:
        return None
    moment_us = micros(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) if parsed else None
    return moment_us if moment_us is not None and EARLIEST_MICROS <= moment_us <= LATEST_MICROS else None


def plain_integers(digits: int) -> tuple[Plain, ...]:
    """Whole numbers of at most this many digits."""
    return (Plain(f"-?[0-9]{{1,{digits}}}"),)


def plain_decimals(precision: int, scale: int) -> tuple[Plain, ...]:
    """Numbers that fit as they are written."""
    fraction = f"(?:[.][0-9]{{1,{scale}}})?" if scale else ""
    return (Plain(f"[+-]?[0-9]{{1,{precision - scale}}}{fraction}"),) if precision > scale else ()


def plain_doubles() -> tuple[Plain, ...]:
    """Numbers far from the ends of the range."""
    return (Plain("[+-]?[0-9]{1,30}(?:[.][0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?"),)


def plain_timestamps(form: DateFormat) -> tuple[Plain, ...]:
    """Times with seconds, or counts of so few digits that they are in the calendar."""
    match form:
        case DateFormat.EPOCH_SECONDS:
            return (Plain("[0-9]{1,11}", unit="s"),)
        case DateFormat.EPOCH_MILLIS:
            return (Plain("[0-9]{1,14}", unit="ms"),)
    return _PLAIN_TIMESTAMPS
