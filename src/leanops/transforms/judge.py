"""What a schema makes of rows: the text of each column, its value, and everything that is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.failures import HIDDEN, Rule
from leanops.domain.schema.model import PayloadColumn, Schema
from leanops.domain.schema.rules import RULES
from leanops.domain.schema.types import TEXT
from leanops.transforms.cast import cast
from leanops.transforms.mask import masked, sealed, sealed_once
from leanops.transforms.rules import all_are, broken

KEY = "idempotency_key"
FAILURE = pa.struct([(name, pa.string()) for name in ("rule", "column", "path", "message", "value")])
_LONGEST_VALUE = 256
NOT_BLANK = r"[^ \t\n\x0b\f\r]"


@dataclass(frozen=True)
class Source:
    """Where the text of a payload column is in Standardized."""

    column: PayloadColumn
    standardized_name: str | None
    is_sealed: bool = False
    """Whether it has the HMAC of the text, but for rows from before the column was sealed."""


class Judged(NamedTuple):
    """The values of each column, and of each row its failures, NULL where it is good."""

    values: list[pa.Array]
    failures: pa.Array


class _Failure(NamedTuple):
    """One thing that can be wrong with a row, and the rows it is wrong with."""

    is_broken: pa.Array
    rule: str
    column: str
    path: str | None
    message: str
    texts: pa.Array | None
    """What may be shown of the cells, None where they are personal."""


def sources_of(schema: Schema, paths: Mapping[str, str], columns: Mapping[str, str]) -> list[Source]:
    """Where each payload column is read; one without a path is the Standardized column of its name."""
    return [
        Source(
            column,
            paths.get(column.path) if column.path else (column.name if column.name in columns else None),
            schema.reads_sealed_key(column),
        )
        for column in schema.payload_columns
    ]


def judged(rows: pa.RecordBatch, sources: Sequence[Source], secret: bytes | None) -> Judged:
    """What becomes of rows of Standardized, which have their key, `_rescued` and the columns of `sources`.

    Values are as Curated may show them, but that without a secret nothing is sealed.
    """
    rescued = _rescued(rows.column("_rescued"), [source.column.path for source in sources if source.column.path])
    no_text = pa.nulls(len(rows), pa.string())
    failures = [_Failure(rows.column(KEY).is_null(), Rule.CDE_MISSING, KEY, None, "no usable key", no_text)]
    values = []
    for source in sources:
        texts = rows.column(source.standardized_name) if source.standardized_name else no_text
        others = rescued.get(source.column.path or "", no_text)
        texts = pc.coalesce(texts, others, pa.scalar(source.column.default, pa.string()))
        value, column_failures = _judged_column(texts, source.column)
        values.append(_protected(value, source, secret))
        failures += column_failures
    return Judged(values, _listed(failures, len(rows)))


def _rescued(rescued: pa.Array, paths: Sequence[str]) -> dict[str, pa.Array]:
    """The texts that got no column, by path: none for most rows."""
    if rescued.null_count == len(rescued) or not paths:
        return {}
    cells = [rescued_cells(text) if text else {} for text in rescued.to_pylist()]
    return {path: pa.array([row.get(path) for row in cells], pa.string()) for path in paths}


def rescued_cells(rescued: str) -> dict[str, str]:
    """Texts by path; none if another tool has written something else there, which does not stop a batch."""
    try:
        return msgspec.json.decode(rescued, type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def _judged_column(texts: pa.Array, column: PayloadColumn) -> tuple[pa.Array, list[_Failure]]:
    value = cast(texts, column.type, column.format)
    is_missing = all_are(False, len(texts))
    if column.cde:
        is_missing = pc.invert(pc.match_substring_regex(texts, NOT_BLANK).fill_null(False))

    def failure(is_broken: pa.Array, rule: str, message: str) -> _Failure:
        return _Failure(is_broken, rule, column.name, column.path, message, None if column.pii else texts)

    failures = [failure(is_missing, Rule.CDE_MISSING, "critical, and NULL or blank")] if column.cde else []
    if column.type != TEXT:
        is_no_value = pc.and_(pc.and_not(texts.is_valid(), is_missing), value.is_null())
        failures.append(failure(is_no_value, Rule.CAST_FAILED, f"is not a valid {column.type}"))
    is_asked = pc.and_not(value.is_valid(), is_missing)
    for name, limit in column.rules.written.items():
        is_broken = pc.and_(broken(name, limit, texts, value, column), is_asked)
        failures.append(failure(is_broken, RULES[name].reports, RULES[name].message.format(limit)))
    return value, failures


def _protected(values: pa.Array, source: Source, secret: bytes | None) -> pa.Array:
    match source.column.pii:
        case "mask":
            return masked(values)
        case "drop":
            return pa.nulls(len(values), values.type)
        case "hmac" if secret is not None:
            return sealed_once(values, secret) if source.is_sealed else sealed(values, secret)
    return values


def _listed(failures: Sequence[_Failure], rows: int) -> pa.Array:
    """Of each row its failures, in the order of the columns and of their rules."""
    positions = [np.flatnonzero(failure.is_broken.to_numpy(zero_copy_only=False)) for failure in failures]
    at = np.concatenate(positions)
    if not len(at):
        return pa.nulls(rows, pa.list_(FAILURE))
    pieces = [
        _described(failure, broken_rows)
        for failure, broken_rows in zip(failures, positions, strict=True)
        if len(broken_rows)
    ]
    in_order = pa.concat_arrays(pieces).take(pa.array(np.argsort(at, kind="stable")))
    counts = np.bincount(at, minlength=rows)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), in_order, mask=pa.array(counts == 0))


def _described(failure: _Failure, positions: "np.ndarray[Any, Any]") -> pa.Array:
    def always(text: str | None) -> pa.Array:
        return pa.repeat(pa.scalar(text, pa.string()), len(positions))

    shown = always(HIDDEN)
    if failure.texts is not None:
        shown = pc.utf8_slice_codeunits(failure.texts.take(pa.array(positions)), 0, _LONGEST_VALUE)
    members = (failure.rule, failure.column, failure.path, failure.message)
    return pa.StructArray.from_arrays([*map(always, members), shown], fields=list(FAILURE))
