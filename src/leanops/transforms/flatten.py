"""Payloads become cells: one Arrow pass over RAW rows, the same cells whatever batch a row arrives in."""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType, TimestampType

from leanops.domain.flatten import ARRAY, Cell, Kind, Limits, ParseError, flatten
from leanops.domain.layout import Columns, Layout

if TYPE_CHECKING:
    import pyarrow as pa

RAW_COLUMNS = ("message_id", "publish_time", "ingestion_ts", "idempotency_key", "json_payload")
_BLANKS = " \t\n\x0b\f\r"
_LONGEST_KEY = 1024


@dataclass(frozen=True)
class FlattenPlan:
    """All that decides the cells of a batch; travels to the Python workers."""

    expected: dict[str, Kind]
    limits: Limits
    key_path: str
    period_paths: tuple[str, ...]
    version_path: str | None
    key_secret: bytes | None = None

    @property
    def columns(self) -> list[str]:
        """One column per expected path, by position: names are given only after all paths are known."""
        return [f"c{position}" for position in range(len(self.expected))]


def cells(raw: DataFrame, plan: FlattenPlan) -> DataFrame:
    """One row per RAW row: its cells by position, others in `extra`, or `rule` and `problem` if it is no event."""
    return raw.select(*RAW_COLUMNS).mapInArrow(_Flattener(plan), _result_type(plan))


def observed_kinds(observed: Iterable[str]) -> dict[str, set[Kind]]:
    """The paths of a batch with every kind they had, from the `observed` cells."""
    found: dict[str, set[Kind]] = {}
    for text in observed:
        for path, kinds in json.loads(text).items():
            found.setdefault(path, set()).update(kinds)
    return found


def _result_type(plan: FlattenPlan) -> StructType:
    text = StringType()
    return StructType(
        [
            StructField("message_id", text),
            StructField("publish_time", TimestampType()),
            StructField("ingestion_ts", LongType()),
            StructField("idempotency_key", text),
            StructField("period_text", text),
            StructField("version_text", text),
            StructField("rule", text),
            StructField("problem", text),
            StructField("position", LongType()),
            *(StructField(name, text) for name in plan.columns),
            StructField("extra", MapType(text, text)),
            StructField("observed", text),
        ]
    )


class _Flattener:
    """The function that runs in the workers; the layout is compiled there, once per task."""

    def __init__(self, plan: FlattenPlan) -> None:
        self.plan = plan

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        layout = Layout(self.plan.expected, self.plan.limits)
        for batch in batches:
            if batch.num_rows:
                yield _Batch(batch, layout, self.plan).result()


class _Batch:
    """One Arrow batch on its way from payloads to columns."""

    def __init__(self, batch: "pa.RecordBatch", layout: Layout, plan: FlattenPlan) -> None:
        self.batch, self.layout, self.plan = batch, layout, plan
        self.size = batch.num_rows
        self.payloads: list[str | None] = batch.column("json_payload").to_pylist()
        self.columns: Columns
        self.columns, odd = layout.read([payload or "" for payload in self.payloads])
        self.extra: list[list[tuple[str, str]] | None] = [None] * self.size
        self.failures: dict[int, ParseError] = {}
        self.odd_cells: dict[int, dict[str, Cell]] = {}
        for position in odd:
            self._read_slowly(position)

    def _read_slowly(self, position: int) -> None:
        try:
            found = flatten(self.payloads[position] or "", self.plan.limits)
        except ParseError as failure:
            self.failures[position] = failure
            return
        self.odd_cells[position] = found
        rest = dict(found)
        for index, path in enumerate(self.layout.paths):
            cell = rest.pop(path, None)
            if cell is not None:
                self.columns[index][position] = cell.text
        if rest:
            self.extra[position] = [(path, cell.text) for path, cell in rest.items()]

    def result(self) -> "pa.RecordBatch":
        """The batch in the order of the result type."""
        import pyarrow as pa

        text = pa.string()
        failures: Sequence[ParseError | None] = [self.failures.get(position) for position in range(self.size)]
        arrays = [
            *(self.batch.column(name) for name in ("message_id", "publish_time", "ingestion_ts")),
            pa.array(self._keys(), text),
            pa.array(self._first_text(self.plan.period_paths), text),
            pa.array(self._first_text((self.plan.version_path,) if self.plan.version_path else ()), text),
            pa.array([failure and failure.rule.value for failure in failures], text),
            pa.array([failure and failure.message for failure in failures], text),
            pa.array([failure and failure.position for failure in failures], pa.int64()),
            *(pa.array(column, text) for column in self.columns),
            pa.array(self.extra, pa.map_(text, text)),
            pa.array([json.dumps(self._kinds()), *([None] * (self.size - 1))], text),
        ]
        names = [field.name for field in _result_type(self.plan).fields]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _column(self, path: str) -> list[str | None]:
        """The texts of one path, expected or not."""
        if path in self.plan.expected:
            return self.columns[self.layout.paths.index(path)]
        found: list[str | None] = [None] * self.size
        for position, row in self.odd_cells.items():
            if path in row:
                found[position] = row[path].text
        return found

    def _first_text(self, paths: Sequence[str]) -> list[str | None]:
        texts: list[str | None] = [None] * self.size
        for path in reversed(paths):
            texts = [over if over is not None else under for over, under in zip(self._column(path), texts, strict=True)]
        return texts

    def _keys(self) -> list[str | None]:
        """The payload's key where it is usable, else the envelope's."""
        path = self.plan.key_path
        in_payload = list(self._column(path))
        expected_array = self.plan.expected.get(path) == ARRAY
        for position, text in enumerate(in_payload):
            row = self.odd_cells.get(position)
            is_array = row[path].kind == ARRAY if row is not None and path in row else expected_array
            if is_array or not _usable(text):
                in_payload[position] = None
        in_envelope = self.batch.column("idempotency_key").to_pylist()
        sealed = _seal(self.plan.key_secret)
        return [
            sealed(text) if text is not None else sealed(envelope) if _usable(envelope) else None
            for text, envelope in zip(in_payload, in_envelope, strict=True)
        ]

    def _kinds(self) -> dict[str, list[Kind]]:
        """Every path that occurs in this batch with the kinds it had."""
        found: dict[str, set[Kind]] = {}
        for index, path in enumerate(self.layout.paths):
            column = self.columns[index]
            present = sum(text is not None for text in column)
            slowly = sum(path in row for row in self.odd_cells.values())
            if present > slowly:
                found[path] = {self.layout.kinds[index]}
        for row in self.odd_cells.values():
            for path, cell in row.items():
                found.setdefault(path, set()).add(cell.kind)
        return {path: sorted(kinds) for path, kinds in found.items()}


def _usable(text: str | None) -> bool:
    if text is None or not text.strip(_BLANKS):
        return False
    return len(text) * 4 <= _LONGEST_KEY or len(text.encode()) <= _LONGEST_KEY


def _seal(secret: bytes | None) -> "Callable[[str | None], str | None]":
    """What a key becomes: itself, or its HMAC where the schema says the key is PII."""
    if secret is None:
        return lambda text: text
    return lambda text: None if text is None else hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
