"""Strict, lossless casts of text as SQL expressions; the same result on every Spark line.

Each takes the SQL of a text and gives a typed value that is NULL where the text does not hold one: nothing is
rounded, truncated or guessed. Needs `spark.sql.ansi.enabled=false` and a session in UTC.
"""

from leanops.domain.schema.model import ColumnType, DateFormat, TypeName
from leanops.domain.schema.types import epoch_bounds, micros_per_unit
from leanops.transforms.sql import literal

# Texts end at \z: in Java `$` would let a line break follow.
# Exponents stay within three digits: beyond them a number is no value of any of our types, and Java would
# still try to write it out.
_EXPONENT = r"(?:[eE]([+-]?0*[0-9]{1,3}))?"
_NUMBER = rf"^[+-]?([0-9]+)(?:\.([0-9]+))?{_EXPONENT}\z"
_ZERO = r"^[+-]?0+(?:\.0+)?(?:[eE][+-]?[0-9]+)?\z"
_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SECOND = r":[0-5][0-9](?:\.[0-9]{1,6}0{0,3})?"
_FINER = r"(:[0-5][0-9]\.[0-9]{6})[0-9]+"
_ZONE = r"(?:Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))?"
# On the first and the last day of the calendar an offset could leave it; there only UTC is accepted.
_OFF_CALENDAR = r"(?!(?:0001-01-01|9999-12-31).{6,}[+-](?!00(?::?00)?\z)[0-9:]+\z)"
_TIMESTAMP = rf"^{_OFF_CALENDAR}{_DATE}[T ]{_MINUTE}{_SECOND}{_ZONE}\z"
_TO_THE_MINUTE = rf"^{_OFF_CALENDAR}{_DATE}[T ]{_MINUTE}{_ZONE}\z"
_ISO_DATE = rf"^{_DATE}\z"
_LONG = r"^-?[0-9]{1,18}\z"
_DATE_PATTERNS = {
    DateFormat.DAY_MONTH_YEAR: (r"^[0-9]{2}/[0-9]{2}/(?!0000)[0-9]{4}\z", "dd/MM/yyyy"),
    DateFormat.MONTH_DAY_YEAR: (r"^[0-9]{2}/[0-9]{2}/(?!0000)[0-9]{4}\z", "MM/dd/yyyy"),
    DateFormat.DOTTED: (r"^[0-9]{2}\.[0-9]{2}\.(?!0000)[0-9]{4}\z", "dd.MM.yyyy"),
    DateFormat.COMPACT: (r"^(?!0000)[0-9]{8}\z", "yyyyMMdd"),
}


def cast(text: str, to: ColumnType, form: DateFormat = DateFormat.ISO) -> str:
    """The value of `text` as `to`, or NULL where it has none."""
    match to.name:
        case TypeName.STRING:
            return text
        case TypeName.INT | TypeName.BIGINT:
            return _integer(text, to.name.value)
        case TypeName.DECIMAL:
            return decimal(text, to.precision, to.scale)
        case TypeName.DOUBLE:
            return _double(text)
        case TypeName.BOOLEAN:
            return f"CASE lower({text}) WHEN 'true' THEN true WHEN 'false' THEN false END"
        case TypeName.DATE:
            return _date(text, form)
        case TypeName.TIMESTAMP:
            return timestamp(text) if form == DateFormat.ISO else epoch(text, form)


def timestamp(text: str) -> str:
    """An ISO 8601 date and time, UTC where no zone is given."""
    # Spark takes a zone only after seconds.
    with_seconds = f"concat(substr({text}, 1, 16), ':00', substr({text}, 17, 10))"
    return (
        f"CASE WHEN {_is(text, _TIMESTAMP)} THEN CAST({text} AS TIMESTAMP)"
        f" WHEN {_is(text, _TO_THE_MINUTE)} THEN CAST({with_seconds} AS TIMESTAMP) END"
    )


def moment(text: str) -> str:
    """A timestamp as far as an order needs it: digits of the second beyond the sixth are cut."""
    return timestamp(f"regexp_replace({text}, {literal(_FINER)}, '$1')")


def epoch(text: str, form: DateFormat) -> str:
    """A whole number of seconds or milliseconds since 1970 whose moment lies in the years 0001 to 9999."""
    least, greatest = epoch_bounds(form)
    number = _integer(text, TypeName.BIGINT.value)
    in_calendar = f"CASE WHEN {number} BETWEEN {least} AND {greatest} THEN {number} END"
    return f"timestamp_micros({in_calendar} * {micros_per_unit(form)})"


def decimal(text: str, precision: int, scale: int) -> str:
    """A number that fits DECIMAL(precision, scale) without rounding."""
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    whole = precision - scale
    plainly_fits = _is(text, rf"^[+-]?[0-9]{{1,{whole}}}{fraction}\z") if whole else "false"
    to = f"DECIMAL({precision},{scale})"
    return (
        f"CASE WHEN {plainly_fits} THEN CAST({text} AS {to})"
        f" WHEN {_is(text, _ZERO)} THEN CAST(0 AS {to})"
        f" WHEN {_is(text, _NUMBER)} AND {_decimals(text)} <= {scale} THEN CAST({text} AS {to}) END"
    )


def _decimals(text: str) -> str:
    """How many decimals the number needs when it is written out without an exponent."""
    whole, fraction, exponent = (f"regexp_extract({text}, {literal(_NUMBER)}, {group})" for group in (1, 2, 3))
    digits = f"concat({whole}, {fraction})"
    trailing_zeros = f"(length({digits}) - length(trim(TRAILING '0' FROM {digits})))"
    shift = f"CASE WHEN {exponent} = '' THEN 0 ELSE CAST({exponent} AS INT) END"
    return f"length({fraction}) - {shift} - {trailing_zeros}"


def _integer(text: str, to: str) -> str:
    whole = (
        f"CASE WHEN {_is(text, _LONG)} THEN CAST(CAST({text} AS BIGINT) AS DECIMAL(38,0))"
        f" ELSE {decimal(text, 38, 0)} END"
    )
    # A cast that overflows wraps around without a word, so the way back must arrive where it started.
    value = f"CAST({whole} AS {to})"
    return f"CASE WHEN CAST({value} AS DECIMAL(38,0)) = {whole} THEN {value} END"


def _double(text: str) -> str:
    value = f"CAST({text} AS DOUBLE)"
    is_real = f"{value} != 0 AND abs({value}) < double('Infinity')"
    return f"CASE WHEN {_is(text, _ZERO)} THEN 0.0D WHEN {_is(text, _NUMBER)} AND {is_real} THEN {value} END"


def _date(text: str, form: DateFormat) -> str:
    if form == DateFormat.ISO:
        return f"CASE WHEN {_is(text, _ISO_DATE)} THEN CAST({text} AS DATE) END"
    grammar, pattern = _DATE_PATTERNS[form]
    return f"CASE WHEN {_is(text, grammar)} THEN to_date({text}, {literal(pattern)}) END"


def _is(text: str, grammar: str) -> str:
    return f"{text} RLIKE {literal(grammar)}"
