"""Texts become typed values, many at once: what Arrow casts exactly, it casts; every other text is read by itself."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.schema.casts import BEYOND_MICROS, DateFormat, Plain
from leanops.domain.schema.model import VersionFormat
from leanops.domain.schema.types import TEXT, ColumnType, column_value

VERSION_DIGITS = (38, 9)
"""Digits of a version that is a number, and how many of them are decimals."""
MICROS = pa.timestamp("us", "UTC")
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": MICROS,
    "binary": pa.binary(),
}
"""Iceberg's types in Arrow, those that no type of ours has yet among them."""
_DAY_ONE = 719_163
"""The number that Python gives to the first day of 1970."""
_POSITIVE_ZERO = 0.0
"""Added to a zero, it takes away the sign."""


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The type of a column's values in Arrow."""
    return pa.decimal128(kind.precision, kind.scale) if kind.entry.has_scale else _TYPES[kind.entry.iceberg]


def cast(texts: pa.Array, kind: ColumnType, form: DateFormat = DateFormat.ISO) -> pa.Array:
    """The value of each text, NULL where it has none."""
    if kind == TEXT:
        return texts
    values, is_open = pa.nulls(len(texts), arrow_type(kind)), texts.is_valid()
    for plain in kind.entry.plain(kind, form):
        is_plain = pc.and_(is_open, _matches(texts, plain.grammar))
        values = pc.replace_with_mask(values, is_plain, _converted(texts.filter(is_plain), plain, values.type))
        is_open = pc.and_not(is_open, is_plain)
    if not pc.any(is_open).as_py():
        return values
    # The same text often comes again: each is read once.
    others = texts.filter(is_open).dictionary_encode()
    read = pa.array([exact_value(text, kind, form) for text in others.dictionary.to_pylist()], values.type)
    return pc.replace_with_mask(values, is_open, read.take(others.indices))


def versions(texts: pa.Array, form: VersionFormat) -> pa.Array:
    """What texts say a version is: a time, as far as an order needs it, or a number."""
    if form == "number":
        return cast(texts, ColumnType("DECIMAL", *VERSION_DIGITS))
    if form == "iso":
        texts = pc.replace_substring_regex(texts, BEYOND_MICROS, r"\1")
    return cast(texts, ColumnType("TIMESTAMP"), DateFormat(form))


def exact_value(text: str, kind: ColumnType, form: DateFormat = DateFormat.ISO) -> Any:
    """What Arrow stores for a text, None where the column cannot hold it."""
    value = column_value(text, kind, form)
    return None if value is None else stored_value(value, kind, text)


def stored_value(value: Any, kind: ColumnType, text: str) -> Any:
    """What Arrow stores for a text that is compared by this value."""
    match kind.entry.iceberg:
        case "string":
            return text
        case "date":
            return value - _DAY_ONE
        case "float" | "double":
            return value + _POSITIVE_ZERO
        case "decimal":
            return Decimal(f"{value * 10**kind.scale}e-{kind.scale}")
    return int(value) if kind.is_exact else value


def _matches(texts: pa.Array, grammar: str) -> pa.Array:
    return pc.match_substring_regex(texts, rf"\A(?:{grammar})\z").fill_null(False)


def _converted(texts: pa.Array, plain: Plain, to: pa.DataType) -> pa.Array:
    if plain.unit:
        return texts.cast(pa.int64()).cast(pa.timestamp(plain.unit)).cast(to)
    if plain.rewritten:
        texts = pc.replace_substring_regex(texts, rf"\A(?:{plain.grammar})\z", plain.rewritten)
    values = texts.cast(to)
    return pc.add(values, _POSITIVE_ZERO) if pa.types.is_floating(to) else values
