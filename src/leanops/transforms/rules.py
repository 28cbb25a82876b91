"""The rules of Curated columns, checked on many cells at once."""

import math
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.schema.model import PayloadColumn
from leanops.domain.schema.regex import whole
from leanops.domain.schema.rules import RULES, Test, compared_by, is_refused
from leanops.domain.schema.types import ColumnType, column_value, limit_value
from leanops.transforms.cast import arrow_type, exact_value, stored_value


def broken(name: str, limit: Any, texts: pa.Array, values: pa.Array, column: PayloadColumn) -> pa.Array:
    """Which cells break a rule; what it says of cells without a value does not count."""
    entry = RULES[name]
    match entry.test:
        case Test.LESS | Test.MORE if entry.about == "length":
            return _is_beyond(entry.test, pc.utf8_length(texts), limit)
        case Test.LESS | Test.MORE:
            bound = _bound(limit, column.type, entry.test)
            return all_are(bound, len(texts)) if isinstance(bound, bool) else _is_beyond(entry.test, values, bound)
        case Test.OTHER:
            return pc.invert(pc.is_in(values, value_set=_allowed(limit, column.type)))
        case Test.NO_MATCH if entry.fault(limit):
            # Only a plan meets such a pattern, beside the schema that replaces it.
            return all_are(True, len(texts))
        case Test.NO_MATCH:
            longest = column.rules.written.get("max_length")
            # A longer text fails for its length, and is not tried: so the owner bounds what a pattern can cost.
            tried = texts if longest is None else pc.if_else(pc.less_equal(pc.utf8_length(texts), longest), texts, None)
            return pc.invert(pc.match_substring_regex(tried, whole(limit))).fill_null(False)
    return _one_by_one(name, limit, texts, column)


def all_are(answer: bool, rows: int) -> pa.Array:
    """The same answer for every row."""
    return pa.array(np.full(rows, answer))


def _is_beyond(test: Literal[Test.LESS, Test.MORE], values: pa.Array, bound: Any) -> pa.Array:
    compare = pc.less if test == Test.LESS else pc.greater
    return compare(values, bound).fill_null(False)


@lru_cache(1_024)
def _allowed(limit: tuple[str, ...], kind: ColumnType) -> pa.Array:
    values = [exact_value(text, kind) for text in limit]
    return pa.array([value for value in values if value is not None], arrow_type(kind))


@lru_cache(1_024)
def _bound(limit: str, kind: ColumnType, test: Literal[Test.LESS, Test.MORE]) -> pa.Scalar | bool:
    """A limit as a value of the column; where the column has none as great or as small, whether all break the rule."""
    value = limit_value(limit, kind)
    if kind.is_exact:
        # A limit may be finer than the column: what is less than 0.5 is, of whole numbers, what is less than 1.
        grid = value * 10**kind.scale
        value = type(value)(math.ceil(grid) if test == Test.LESS else math.floor(grid), 10**kind.scale)
        if not kind.holds(value):
            return (value > 0) == (test == Test.LESS)
    return pa.scalar(stored_value(value, kind, limit), arrow_type(kind))


def _one_by_one(name: str, limit: Any, texts: pa.Array, column: PayloadColumn) -> pa.Array:
    compared, distinct = compared_by(name, limit, column.type), texts.dictionary_encode()
    answers = []
    for text in distinct.dictionary.to_pylist():
        value = column_value(text, column.type, column.format)
        answers.append(value is not None and is_refused(name, compared, text, value))
    return pa.array(answers, pa.bool_()).take(distinct.indices).fill_null(False)
