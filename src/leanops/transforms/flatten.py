"""Payloads become cells: one Arrow pass over RAW rows, the same cells whatever batch a row arrives in."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from leanops.domain.limits import Limits
from leanops.domain.payload.fast_flatten import Columns, Layout
from leanops.domain.payload.flatten import ARRAY, NULL, Cell, Kind, ParseError, flat
from leanops.domain.schema.model import VersionFormat
from leanops.transforms.keys import Texts, keyed
from leanops.transforms.mask import hmac_of

RAW_COLUMNS = ("message_id", "publish_time", "ingestion_ts", "idempotency_key", "json_payload")
_BLANKS = " \t\n\x0b\f\r"
_LONGEST_KEY = 1024
_AT_ONCE = 1_000
"""How many payloads Python goes through at a time: what it makes of them stays in the processor's cache."""
_PERIOD, _VERSION = "period text", "version text"


@dataclass(frozen=True)
class ReportedPaths:
    """Which paths are reported to the driver: those it knows, and of all others the first `most` in path order.

    Of many such lists the first `most` are those of all paths, so nothing that can get a column is left out.
    """

    known: frozenset[str]
    most: int

    def bounded(self, kinds: Mapping[str, set[Kind]]) -> dict[str, set[Kind]]:
        """The paths to report, with their kinds."""
        others = [path for path in kinds if path not in self.known]
        # A path that is only ever null asks for no column, and must not be in the way of one that does.
        filled = sorted((path for path in others if kinds[path] != {NULL}), key=str.encode)[: self.most]
        empty = sorted((path for path in others if kinds[path] == {NULL}), key=str.encode)[: self.most]
        return {path: kinds[path] for path in (*(path for path in kinds if path in self.known), *filled, *empty)}


@dataclass(frozen=True)
class FlattenPlan:
    """All that decides the cells of a batch; travels to the Python workers."""

    expected: dict[str, Kind]
    limits: Limits
    key_path: str
    period_paths: tuple[str, ...]
    version_path: str | None
    version_format: VersionFormat = "iso"
    key_secret: bytes | None = field(default=None, repr=False)
    reported: ReportedPaths | None = None
    """None reports every path."""

    @property
    def columns(self) -> list[str]:
        """One column per expected path, by position: names are given only after all paths are known."""
        return [f"c{position}" for position in range(len(self.expected))]


def observed_kinds(observed: Iterable[str]) -> dict[str, set[Kind]]:
    """The paths of a batch with every kind they had, from the `observed` cells."""
    kinds_by_path: dict[str, set[Kind]] = {}
    for text in observed:
        for path, kinds in json.loads(text).items():
            kinds_by_path.setdefault(path, set()).update(kinds)
    return kinds_by_path


def flattened(raw: pa.RecordBatch, layout: Layout, plan: FlattenPlan) -> pa.Table:
    """One row per RAW row: what identifies and orders it, and its cells by position, others in `extra`.

    One that is not an event has `rule` and `problem` instead. Some rows have in `observed` the paths there were. There
    must be a row.
    """
    starts = range(0, raw.num_rows, _AT_ONCE)
    cells = pa.Table.from_batches([_Batch(raw.slice(start, _AT_ONCE), layout, plan).result() for start in starts])
    cells = cells.combine_chunks()
    key, period, version = (cells.column(name).combine_chunks() for name in ("idempotency_key", _PERIOD, _VERSION))
    keys = keyed(raw, Texts(key, period, version), plan.version_format if plan.version_path else None)
    for name, column in keys.items():
        cells = cells.append_column(name, column)
    return cells.drop_columns([_PERIOD, _VERSION])


class _Batch:
    """One Arrow batch on its way from payloads to columns."""

    def __init__(self, batch: pa.RecordBatch, layout: Layout, plan: FlattenPlan) -> None:
        self.batch, self.layout, self.plan = batch, layout, plan
        self.size = batch.num_rows
        payloads = batch.column("json_payload")
        self.payloads: list[str] = payloads.fill_null("").to_pylist()
        self.columns: Columns
        self.columns, odd = layout.read(self.payloads)
        self.extra: dict[int, list[tuple[str, str]]] = {}
        self.failures: dict[int, ParseError] = {}
        self.nulls: set[str] = set()
        self.odd_cells: dict[int, dict[str, Cell]] = {}
        for position in odd:
            self._read_slowly(position)

    def _read_slowly(self, position: int) -> None:
        try:
            cells, nulls = flat(self.payloads[position], self.plan.limits)
        except ParseError as failure:
            self.failures[position] = failure
            return
        self.odd_cells[position] = cells
        self.nulls.update(nulls)
        rest = dict(cells)
        for index, path in enumerate(self.layout.paths):
            cell = rest.pop(path, None)
            if cell is not None:
                self.columns[index][position] = cell.text
        if rest:
            self.extra[position] = [(path, cell.text) for path, cell in rest.items()]

    def result(self) -> pa.RecordBatch:
        text = pa.string()
        keys = self._keys()
        if self.plan.key_secret is not None:
            self._seal_cells(self.plan.key_path, self.plan.key_secret)
        cells = [pa.array(texts, text) for texts in self.columns]
        columns = {
            **{name: self.batch.column(name) for name in ("message_id", "publish_time", "ingestion_ts")},
            "_payload_hash": pa.array(map(payload_hash, self.payloads), pa.int64()),
            "idempotency_key": pa.array(keys, text),
            _PERIOD: pa.array(self._first_text(self.plan.period_paths), text),
            _VERSION: pa.array(self._first_text((self.plan.version_path,) if self.plan.version_path else ()), text),
            **self._failures(),
            **dict(zip(self.plan.columns, cells, strict=True)),
            "extra": self._extra(),
            "observed": pa.array([json.dumps(self._kinds(cells)), *([None] * (self.size - 1))], text),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _extra(self) -> pa.Array:
        cells = pa.map_(pa.string(), pa.string())
        if not self.extra:
            return pa.nulls(self.size, cells)
        return pa.array([self.extra.get(position) for position in range(self.size)], cells)

    def _failures(self) -> dict[str, pa.Array]:
        failures = (
            [self.failures.get(position) for position in range(self.size)] if self.failures else [None] * self.size
        )
        return {
            "rule": pa.array([failure and failure.rule.value for failure in failures], pa.string()),
            "problem": pa.array([failure and failure.message for failure in failures], pa.string()),
        }

    def _column(self, path: str) -> list[str | None]:
        """The texts of one path, expected or not."""
        if path in self.plan.expected:
            return self.columns[self.layout.paths.index(path)]
        texts: list[str | None] = [None] * self.size
        for position, row in self.odd_cells.items():
            if path in row:
                texts[position] = row[path].text
        return texts

    def _first_text(self, paths: Sequence[str]) -> list[str | None]:
        texts: list[str | None] = [None] * self.size
        for path in reversed(paths):
            over = self._column(path)
            texts = over if None not in over else [a if a is not None else b for a, b in zip(over, texts, strict=True)]
        return texts

    def _keys(self) -> list[str | None]:
        """The payload's key where it is usable, else the envelope's."""
        path = self.plan.key_path
        texts = self._column(path)
        in_payload = list(texts) if _are_surely_usable(texts) else [_usable(text) for text in texts]
        if self.plan.expected.get(path) == ARRAY:
            in_payload = [None] * self.size
        for position, row in self.odd_cells.items():
            cell = row.get(path)
            in_payload[position] = None if cell is None or cell.kind == ARRAY else _usable(cell.text)
        if None in in_payload:
            in_envelope = self.batch.column("idempotency_key").to_pylist()
            pairs = zip(in_payload, in_envelope, strict=True)
            in_payload = [text if text is not None else _usable(envelope) for text, envelope in pairs]
        secret = self.plan.key_secret
        return in_payload if secret is None else [_sealed(text, secret) for text in in_payload]

    def _seal_cells(self, path: str, secret: bytes) -> None:
        """A sealed key is readable only in RAW: its own cells hold the HMAC too."""
        if path in self.plan.expected:
            index = self.layout.paths.index(path)
            self.columns[index] = [_sealed(text, secret) for text in self.columns[index]]
            return
        for position, row in self.odd_cells.items():
            if path in row:
                sealed = (path, hmac_of(row[path].text, secret))
                self.extra[position] = [sealed if cell[0] == path else cell for cell in self.extra[position]]

    def _kinds(self, cells: Sequence[pa.Array]) -> dict[str, list[Kind]]:
        """Every path that occurs in this batch with the kinds it had; `cells` are those of the expected paths."""
        kinds_by_path: dict[str, set[Kind]] = {}
        for index, path in enumerate(self.layout.paths):
            present = self.size - cells[index].null_count
            if present > sum(path in row for row in self.odd_cells.values()):
                kinds_by_path[path] = {self.layout.kinds[index]}
        for row in self.odd_cells.values():
            for path, cell in row.items():
                kinds_by_path.setdefault(path, set()).add(cell.kind)
        # A member that is always null belongs to the shape too: remembered, it no longer costs the long way.
        only_null = {
            path: {NULL} for path in self.nulls if path not in kinds_by_path and path not in self.plan.expected
        }
        observed = {**kinds_by_path, **only_null}
        if self.plan.reported:
            observed = self.plan.reported.bounded(observed)
        return {path: sorted(kinds) for path, kinds in observed.items()}


def payload_hash(payload: str) -> int:
    """The first 64 bits of the SHA-256 of a payload, as a signed number: the same wherever it is made."""
    return int.from_bytes(hashlib.sha256(payload.encode()).digest()[:8], signed=True)


def _are_surely_usable(texts: Sequence[str | None]) -> bool:
    """Whether a glance shows that every text can be a key."""
    return None not in texts and max(map(len, texts)) * 4 <= _LONGEST_KEY and all(map(str.strip, texts))  # type: ignore[arg-type]


def _usable(text: str | None) -> str | None:
    """The text if it can be a key: not blank, not too long."""
    if text is None or not text.strip(_BLANKS) or (len(text) * 4 > _LONGEST_KEY and len(text.encode()) > _LONGEST_KEY):
        return None
    return text


def _sealed(text: str | None, secret: bytes) -> str | None:
    """The HMAC that replaces a key the schema says is PII."""
    return None if text is None else hmac_of(text, secret)
