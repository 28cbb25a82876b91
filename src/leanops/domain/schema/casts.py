"""Texts of each type: one grammar, the value Python reads in it, and the strict, lossless cast of rows as SQL.

A cast takes the SQL of a text and gives a typed value that is NULL where the text does not hold one: nothing is
rounded, truncated or guessed. Needs `spark.sql.ansi.enabled=false` and a session in UTC.
"""

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from leanops.domain.event.envelope import EARLIEST_MICROS, LATEST_MICROS, micros
from leanops.domain.table.sql import literal


class DateFormat(StrEnum):
    """How the text of a DATE or TIMESTAMP is written; `iso` is ISO 8601."""

    ISO = "iso"
    EPOCH_SECONDS = "epoch_s"
    EPOCH_MILLIS = "epoch_ms"
    DAY_MONTH_YEAR = "dd/MM/yyyy"
    MONTH_DAY_YEAR = "MM/dd/yyyy"
    DOTTED = "dd.MM.yyyy"
    COMPACT = "yyyyMMdd"


def _day_pattern(form: DateFormat) -> str:
    return "yyyy-MM-dd" if form == DateFormat.ISO else form.value


def _day_grammar(form: DateFormat) -> str:
    grammar = _day_pattern(form).replace(".", r"\.").replace("yyyy", "(?!0000)[0-9]{4}")
    return grammar.replace("MM", "[0-9]{2}").replace("dd", "[0-9]{2}")


# Grammars hold for the whole text, and mean the same to Java and Python.
# Exponents stay within three digits: beyond them none of our types holds the number, and Java would still try to
# write it out.
_NUMBER = r"[+-]?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?0*[0-9]{1,3}))?"
_ZERO = r"[+-]?0+(?:\.0+)?(?:[eE][+-]?[0-9]+)?"
_LONG = r"-?[0-9]{1,18}"
# On the first and the last day of the calendar an offset could leave it; there only UTC is accepted.
_OFF_CALENDAR = r"(?!(?:0001-01-01|9999-12-31).{6,}[+-][0-9:]*[1-9])"
_MINUTE = rf"{_OFF_CALENDAR}{_day_grammar(DateFormat.ISO)}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SECOND = r":[0-5][0-9](?:\.[0-9]{1,6}0{0,3})?"
_FINER = r"(:[0-5][0-9]\.[0-9]{6})[0-9]+"
_ZONE = r"(?:Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))?"
_TIMESTAMP, _TO_THE_MINUTE = f"{_MINUTE}{_SECOND}{_ZONE}", f"{_MINUTE}{_ZONE}"
_LONGEST = 38
_MICROS = {DateFormat.EPOCH_SECONDS: 1_000_000, DateFormat.EPOCH_MILLIS: 1_000}


def exact_in(text: str, _: DateFormat) -> Fraction | None:
    """A number of at most 38 digits when it is written out."""
    if not _is(text, _NUMBER) or sum(character.isdigit() for character in f"{Decimal(text):f}") > _LONGEST:
        return None
    return Fraction(Decimal(text))


def double_in(text: str, _: DateFormat) -> float | None:
    """A number that is finite as a double; only a zero becomes zero."""
    value = float(text) if _is(text, _NUMBER) else math.inf
    return None if math.isinf(value) or (value == 0 and not _is(text, _ZERO)) else value


def date_in(text: str, form: DateFormat) -> int | None:
    """The number of a day of the calendar."""
    pattern = _day_pattern(form).replace("yyyy", "%Y").replace("MM", "%m").replace("dd", "%d")
    try:
        return datetime.strptime(text, pattern).toordinal() if _is(text, _day_grammar(form)) else None
    except ValueError:
        return None


def timestamp_in(text: str, form: DateFormat) -> int | None:
    """Microseconds since 1970."""
    if form in _MICROS:
        count, (least, greatest) = exact_in(text, form), _epoch_bounds(form)
        is_known = count is not None and count.denominator == 1 and least <= count <= greatest
        return int(count) * _MICROS[form] if is_known and count is not None else None
    if not _is(text, _TIMESTAMP) and not _is(text, _TO_THE_MINUTE):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def as_timestamp(text: str, form: DateFormat = DateFormat.ISO) -> str:
    """An ISO 8601 date and time, UTC where no zone is given; or seconds or milliseconds since 1970."""
    if form in _MICROS:
        least, greatest = _epoch_bounds(form)
        number = as_integer(text, "BIGINT")
        in_calendar = f"CASE WHEN {number} BETWEEN {least} AND {greatest} THEN {number} END"
        return f"timestamp_micros({in_calendar} * {_MICROS[form]})"
    # Spark takes a zone only after seconds.
    with_seconds = f"concat(substr({text}, 1, 16), ':00', substr({text}, 17, 10))"
    return (
        f"CASE WHEN {_matches(text, _TIMESTAMP)} THEN CAST({text} AS TIMESTAMP)"
        f" WHEN {_matches(text, _TO_THE_MINUTE)} THEN CAST({with_seconds} AS TIMESTAMP) END"
    )


def as_moment(text: str) -> str:
    """A timestamp as far as an order needs it: digits of the second beyond the sixth are cut."""
    return as_timestamp(f"regexp_replace({text}, {literal(_FINER)}, '$1')")


def as_decimal(text: str, precision: int, scale: int) -> str:
    """A number that fits DECIMAL(precision, scale) without rounding."""
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    whole = precision - scale
    plainly_fits = _matches(text, rf"[+-]?[0-9]{{1,{whole}}}{fraction}") if whole else "false"
    to = f"DECIMAL({precision},{scale})"
    return (
        f"CASE WHEN {plainly_fits} THEN CAST({text} AS {to})"
        f" WHEN {_matches(text, _ZERO)} THEN CAST(0 AS {to})"
        f" WHEN {_matches(text, _NUMBER)} AND {_decimals(text)} <= {scale} THEN CAST({text} AS {to}) END"
    )


def as_integer(text: str, to: str) -> str:
    """A number whose value is whole and in the range of INT or BIGINT."""
    whole = (
        f"CASE WHEN {_matches(text, _LONG)} THEN CAST(CAST({text} AS BIGINT) AS DECIMAL(38,0))"
        f" ELSE {as_decimal(text, 38, 0)} END"
    )
    # A cast that overflows wraps around silently, so the way back must arrive where it started.
    value = f"CAST({whole} AS {to})"
    return f"CASE WHEN CAST({value} AS DECIMAL(38,0)) = {whole} THEN {value} END"


def as_double(text: str) -> str:
    """A number that is finite as a double; only a zero becomes zero."""
    value = f"CAST({text} AS DOUBLE)"
    is_real = f"{value} != 0 AND abs({value}) < double('Infinity')"
    return f"CASE WHEN {_matches(text, _ZERO)} THEN 0.0D WHEN {_matches(text, _NUMBER)} AND {is_real} THEN {value} END"


def as_date(text: str, form: DateFormat) -> str:
    """A day of the calendar."""
    value = f"CAST({text} AS DATE)" if form == DateFormat.ISO else f"to_date({text}, {literal(form.value)})"
    return f"CASE WHEN {_matches(text, _day_grammar(form))} THEN {value} END"


def _decimals(text: str) -> str:
    """How many decimals the number needs when it is written out without an exponent."""
    whole, fraction, exponent = (f"regexp_extract({text}, {literal(_whole(_NUMBER))}, {group})" for group in (1, 2, 3))
    digits = f"concat({whole}, {fraction})"
    trailing_zeros = f"(length({digits}) - length(trim(TRAILING '0' FROM {digits})))"
    shift = f"CASE WHEN {exponent} = '' THEN 0 ELSE CAST({exponent} AS INT) END"
    return f"length({fraction}) - {shift} - {trailing_zeros}"


def _epoch_bounds(form: DateFormat) -> tuple[int, int]:
    """The least and the greatest count of an epoch whose moment is in the years 0001 to 9999."""
    return EARLIEST_MICROS // _MICROS[form], LATEST_MICROS // _MICROS[form]


def _is(text: str, grammar: str) -> bool:
    return re.fullmatch(grammar, text) is not None


def _matches(text: str, grammar: str) -> str:
    return f"{text} RLIKE {literal(_whole(grammar))}"


def _whole(grammar: str) -> str:
    # In Java `$` would let a line break follow.
    return rf"^{grammar}\z"
