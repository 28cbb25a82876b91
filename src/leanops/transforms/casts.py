"""Strict, lossless casts of text; the same result on every Spark line.

Each cast gives a typed column that is NULL where the text does not hold such a value: nothing is rounded,
truncated or guessed. Needs `spark.sql.ansi.enabled=false` and a session in UTC.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from leanops.domain.schema import ColumnType, DateFormat, TypeName

# Texts end at \z: in Java `$` would let a line break follow.
# Exponents stay within three digits: beyond them a number is no value of any of our types, and Java would
# still try to write it out.
_EXPONENT = r"(?:[eE]([+-]?0*[0-9]{1,3}))?"
_NUMBER = rf"^[+-]?([0-9]+)(?:\.([0-9]+))?{_EXPONENT}\z"
_ZERO = r"^[+-]?0+(?:\.0+)?(?:[eE][+-]?[0-9]+)?\z"
_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SECOND = r":[0-5][0-9](?:\.[0-9]{1,6}0{0,3})?"
_ZONE = r"(?:Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))?"
# On the first and the last day of the calendar an offset could leave it; there only UTC is accepted.
_OFF_CALENDAR = r"(?!(?:0001-01-01|9999-12-31).{6,}[+-](?!00(?::?00)?\z)[0-9:]+\z)"
_TIMESTAMP = rf"^{_OFF_CALENDAR}{_DATE}[T ]{_MINUTE}{_SECOND}{_ZONE}\z"
_TO_THE_MINUTE = rf"^{_OFF_CALENDAR}{_DATE}[T ]{_MINUTE}{_ZONE}\z"
_DATE_PATTERNS = {
    DateFormat.DAY_MONTH_YEAR: (r"^[0-9]{2}/[0-9]{2}/[0-9]{4}\z", "dd/MM/yyyy"),
    DateFormat.MONTH_DAY_YEAR: (r"^[0-9]{2}/[0-9]{2}/[0-9]{4}\z", "MM/dd/yyyy"),
    DateFormat.DOTTED: (r"^[0-9]{2}\.[0-9]{2}\.[0-9]{4}\z", "dd.MM.yyyy"),
    DateFormat.COMPACT: (r"^[0-9]{8}\z", "yyyyMMdd"),
}


def cast(text: Column, to: ColumnType, form: DateFormat = DateFormat.ISO) -> Column:
    """The value of `text` as `to`, or NULL where it has none."""
    match to.name:
        case TypeName.STRING:
            return text
        case TypeName.INT | TypeName.BIGINT:
            return _integer(text, to.name.value.lower())
        case TypeName.DECIMAL:
            return decimal(text, to.precision, to.scale)
        case TypeName.DOUBLE:
            return _double(text)
        case TypeName.BOOLEAN:
            return F.when(F.lower(text) == "true", F.lit(True)).when(F.lower(text) == "false", F.lit(False))
        case TypeName.DATE:
            return _date(text, form)
        case TypeName.TIMESTAMP:
            return (
                _epoch(text, form) if form in (DateFormat.EPOCH_SECONDS, DateFormat.EPOCH_MILLIS) else timestamp(text)
            )


def timestamp(text: Column) -> Column:
    """An ISO 8601 date and time, UTC where no zone is given."""
    # Spark takes a zone only after seconds.
    with_seconds = F.concat(text.substr(1, 16), F.lit(":00"), text.substr(17, 10))
    return F.when(text.rlike(_TIMESTAMP), text.cast("timestamp")).when(
        text.rlike(_TO_THE_MINUTE), with_seconds.cast("timestamp")
    )


def decimal(text: Column, precision: int, scale: int) -> Column:
    """A number that fits DECIMAL(precision, scale) without rounding."""
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    whole = precision - scale
    plainly_fits = text.rlike(rf"^[+-]?[0-9]{{1,{whole}}}{fraction}\z") if whole else F.lit(False)
    to = f"decimal({precision},{scale})"
    value = text.cast(to)
    fits = text.rlike(_NUMBER) & _fits_scale(text, scale)
    return F.when(plainly_fits, value).when(text.rlike(_ZERO), F.lit(0).cast(to)).when(fits, value)


def _fits_scale(text: Column, scale: int) -> Column:
    """Whether the number, written out without an exponent, has at most `scale` decimals."""
    fraction = F.regexp_extract(text, _NUMBER, 2)
    exponent = F.regexp_extract(text, _NUMBER, 3)
    digits = F.concat(F.regexp_extract(text, _NUMBER, 1), fraction)
    trailing_zeros = F.length(digits) - F.length(F.regexp_replace(digits, "0+$", ""))
    shift = F.when(exponent == "", F.lit(0)).otherwise(exponent.cast("int"))
    return F.length(fraction) - shift - trailing_zeros <= scale


def _integer(text: Column, to: str) -> Column:
    plain = text.rlike(r"^-?[0-9]{1,18}\z")
    whole = F.when(plain, text.cast("bigint").cast("decimal(38,0)")).otherwise(decimal(text, 38, 0))
    # A cast that overflows wraps around without a word, so the way back must arrive where it started.
    value = whole.cast(to)
    return F.when(value.cast("decimal(38,0)") == whole, value)


def _double(text: Column) -> Column:
    value = text.cast("double")
    is_real = (value != 0) & (F.abs(value) < F.lit(float("inf")))
    return F.when(text.rlike(_ZERO), F.lit(0.0)).when(text.rlike(_NUMBER) & is_real, value)


def _date(text: Column, form: DateFormat) -> Column:
    if form == DateFormat.ISO:
        return F.when(text.rlike(rf"^{_DATE}\z"), text.cast("date"))
    grammar, pattern = _DATE_PATTERNS[form]
    return F.when(text.rlike(grammar), F.to_date(text, pattern))


def _epoch(text: Column, form: DateFormat) -> Column:
    units = 1_000_000 if form == DateFormat.EPOCH_SECONDS else 1_000
    return F.timestamp_micros(F.when(text.rlike(r"^-?(?:[0-9]{1,12}|1[0-9]{12})\z"), text.cast("bigint")) * units)
