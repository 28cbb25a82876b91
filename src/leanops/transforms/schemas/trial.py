"""Rows under two schemas at once: what a new one makes of them, beside what the active one does."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.errors import UsageError
from leanops.domain.failures import Rule
from leanops.domain.schema.model import PayloadColumn, Schema
from leanops.domain.schema.plan import Example, FailureGroup
from leanops.domain.table.definitions import STANDARDIZED_SYSTEM_COLUMNS
from leanops.transforms.cast import cast
from leanops.transforms.curate import Flags
from leanops.transforms.judge import KEY, Judged, Source, judged, rescued_cells, sources_of

# No column can have a point in its name, so these columns of the active schema meet none of the new one.
_TODAY = "today."
_SYSTEM = ("last_updated_ts", "period_reference")
"""What the keys of a schema decide beside the key itself."""
_MESSAGE, _VALUES = "message_id", "values"
_NOTHING = "\0"
"""NULL in a fingerprint, where no text can be mistaken for it."""


Groups = Mapping[tuple[str, str], FailureGroup]
"""What is wrong with rows, by rule and column."""


@dataclass(frozen=True)
class Both:
    """Columns of the new schema, and those of the active one that it does not judge alike."""

    new: Sequence[Source]
    active: Sequence[Source]
    keeps_key: bool
    """Whether a row that has no key under the new schema has none today."""
    by_key: bool
    """Whether a key may be made from another message than today."""
    live: Mapping[str, bool] | None
    """Columns of Curated, and whether their values can be compared with the new schema's."""

    @property
    def today(self) -> list[Source]:
        """What only the active schema says, under names of its own."""
        known = [_judgement(source) for source in self.new]
        alone = [source for source in self.active if _judgement(source) not in known]
        return [
            replace(source, column=source.column.model_copy(update={"name": _TODAY + source.column.name}))
            for source in alone
        ]

    @property
    def only_new(self) -> list[str]:
        """Names of the columns whose failures say nothing about today."""
        known = [_judgement(source) for source in self.active]
        alone = [source.column.name for source in self.new if _judgement(source) not in known]
        return alone if self.keeps_key else [*alone, KEY]

    @property
    def read(self) -> list[str]:
        """The columns of Standardized that are read of a row."""
        payload = [source.standardized_name for source in (*self.new, *self.active) if source.standardized_name]
        return list(dict.fromkeys((KEY, _MESSAGE, *_SYSTEM, "_rescued", *payload)))

    @property
    def compared(self) -> list[PayloadColumn]:
        """The columns of the new schema, and those of the active one that it lets go of, where Curated has rows."""
        if self.live is None:
            return []
        new = [source.column for source in self.new]
        gone = self.live.keys() - {column.name for column in new}
        return [*new, *(source.column for source in self.active if source.column.name in gone)]

    def is_compared(self, name: str) -> bool:
        """Whether the new values of a column can be compared with those of Curated, not only whether there are any."""
        new, active = _column(self.new, name), _column(self.active, name)
        is_alike = new is not None and active is not None and active.pii == new.pii
        return is_alike and bool((self.live or {}).get(name))


def both_of(
    topic: str,
    new: Schema,
    active: Schema | None,
    paths: Mapping[str, str],
    columns: Collection[str],
    *,
    keeps_key: bool,
    by_key: bool,
    live: Mapping[str, bool] | None,
) -> Both:
    """Where both schemas read their columns; raises if the new one has a column that can be read nowhere."""
    kinds = dict.fromkeys(columns, "")
    wanted = sources_of(new, paths, kinds)
    nowhere = [source.column.name for source in wanted if not _is_somewhere(source)]
    if nowhere:
        raise UsageError(
            f"{topic}: the schema names {', '.join(nowhere)} without a path, and Standardized has no such column; "
            "give it a path"
        )
    today = [source for source in sources_of(active, paths, kinds) if _is_somewhere(source)] if active else []
    return Both(wanted, today, keeps_key, by_key, live)


def _is_somewhere(source: Source) -> bool:
    """Whether a column can be read at all: by its path, or by its name; a default alone makes no column."""
    column, name = source.column, source.standardized_name
    return bool(column.path) or (name is not None and name not in STANDARDIZED_SYSTEM_COLUMNS)


def _judgement(source: Source) -> tuple[PayloadColumn, str | None]:
    """All that decides what becomes of a text."""
    return source.column.model_copy(update={"description": None}), source.standardized_name


def _column(sources: Sequence[Source], name: str) -> PayloadColumn | None:
    return next((source.column for source in sources if source.column.name == name), None)


class Outcomes:
    """What becomes of rows of Standardized under both schemas."""

    def __init__(self, rows: pa.RecordBatch, both: Both) -> None:
        self._rows, self._both = rows, both
        self._sources = [*both.new, *both.today]
        self._judged: Judged = judged(rows, self._sources, None)
        self.failures = _listed(self._judged.failures)

    def table(self) -> pa.Table:
        """Of each row its key and message, what is wrong with it, and a fingerprint of what it would hold."""
        failures, size = self.failures, len(self._rows)
        is_new = pc.invert(pc.starts_with(failures.column("column"), _TODAY))
        is_today = pc.invert(pc.is_in(failures.column("column"), value_set=pa.array(self._both.only_new, pa.string())))
        is_cde = pc.and_(is_new, pc.equal(failures.column("rule"), Rule.CDE_MISSING.value))
        columns = {
            KEY: self._rows.column(KEY),
            _MESSAGE: self._rows.column(_MESSAGE),
            "fails": _rows_with(failures, is_new, size),
            "fails_today": _rows_with(failures, is_today, size),
            "lacks_cde": _rows_with(failures, is_cde, size),
            _VALUES: fingerprints([*_system(self._rows), *map(self._value, self._both.compared)], size),
        }
        return pa.table(columns)

    def groups(self) -> Groups:
        """What is wrong under the new schema, by rule and column."""
        failures = self.failures.filter(pc.invert(pc.starts_with(self.failures.column("column"), _TODAY)))
        messages = self._rows.column(_MESSAGE).take(failures.column("row").combine_chunks())
        failures = failures.append_column(_MESSAGE, messages)
        names = zip(*(failures.column(name).to_pylist() for name in ("rule", "column")), strict=True)
        groups = {}
        for rule, column in sorted(set(names)):
            is_it = pc.and_(pc.equal(failures.column("rule"), rule), pc.equal(failures.column("column"), column))
            rows = failures.filter(is_it)
            examples = _some_of([rows.column(name).to_pylist() for name in (_MESSAGE, "value")])
            message = pc.min(rows.column("message")).as_py()
            groups[rule, column] = FailureGroup(rule, column, message, len(rows), examples)
        return groups

    def _value(self, column: PayloadColumn) -> pa.Array:
        """What the row would hold, in a form that can be compared with what it holds."""
        size = len(self._rows)
        if column.pii == "drop" or _column(self._both.new, column.name) is None:
            return pa.nulls(size, pa.string())
        value = self._values(column.name)
        if not self._both.is_compared(column.name):
            return _presence(value, "2")
        if column.pii == "hmac":
            # The same text gives the same seal: no need to make it.
            before = self._values(_TODAY + column.name, column.name)
            is_same = pc.equal(texts_of(value), texts_of(before)).fill_null(False)
            return pc.if_else(value.is_valid(), pc.if_else(is_same, "1", "2"), pa.scalar(None, pa.string()))
        return texts_of(value)

    def _values(self, *names: str) -> pa.Array:
        """The values of the first of these columns that there is."""
        by_name = {source.column.name: at for at, source in enumerate(self._sources)}
        return self._judged.values[next(by_name[name] for name in names if name in by_name)]


def live_rows(rows: pa.Table, both: Both) -> pa.Table:
    """Rows of Curated as key, message and the fingerprint to compare with the new one."""
    known, nothing = both.live or {}, pa.array([], pa.string())

    def value(column: PayloadColumn) -> pa.Array:
        if column.name not in known or column.name not in rows.column_names:
            return pa.nulls(len(rows), pa.string())
        stored = rows.column(column.name)
        if not both.is_compared(column.name) or column.pii in ("hmac", "drop"):
            return _presence(stored, "1")
        return texts_of(stored.cast(cast(nothing, column.type, column.format).type))

    values = fingerprints([*_system(rows), *map(value, both.compared)], len(rows))
    return pa.table([rows.column(KEY), rows.column(_MESSAGE), values], [KEY, _MESSAGE, _VALUES])


def counted(outcomes: pa.Table, live: pa.Table, both: Both, *, all_read: bool) -> Counter[str]:
    """What becomes of rows whose live rows are all there; `all_read` says that every event of RAW was read.

    Of a row that fails `is_kept` says whether an older version of its key passes.
    """
    text = KEY if both.keeps_key else _MESSAGE
    at = pc.index_in(outcomes.column(text), value_set=live.column(text).combine_chunks(), skip_nulls=True)
    at = at.combine_chunks() if isinstance(at, pa.ChunkedArray) else at
    is_there, beside = _flags(at.is_valid()), live.take(at)
    is_same = is_there & _flags(pc.equal(outcomes.column(_MESSAGE), beside.column(_MESSAGE)).fill_null(False))
    # Where keys are those of today and rows those of Standardized, another message is another row.
    is_live = is_same if both.keeps_key and not both.by_key else is_there
    is_alike = _flags(pc.equal(outcomes.column(_VALUES), beside.column(_VALUES)).fill_null(False))
    fails, fails_today = _flags(outcomes.column("fails")), _flags(outcomes.column("fails_today"))
    if both.keeps_key:
        is_kept = _flags(outcomes.column("is_kept"))
        unread = pc.invert(pc.is_in(live.column(KEY), value_set=outcomes.column(KEY).combine_chunks()))
        leaving = (fails & is_there & ~is_kept).sum() + (_flags(unread).sum() if both.by_key and all_read else 0)
    else:
        leaving = (fails & is_same).sum()
    return Counter(
        judged=len(outcomes),
        failing=int(fails.sum()),
        failing_today=int(fails_today.sum()),
        cde_missing=int(_flags(outcomes.column("lacks_cde")).sum()),
        leaving=int(leaving),
        resolved=int((~fails & fails_today).sum()),
        changed=int((~fails & is_live & ~(is_same & is_alike)).sum()),
    )


def together(parts: Iterable[Groups]) -> Groups:
    """The groups of several parts of the rows."""
    groups: dict[tuple[str, str], FailureGroup] = {}
    for part in parts:
        for name, group in part.items():
            known = groups.get(name)
            if known is None:
                groups[name] = group
                continue
            examples = [*known.examples, *group.examples]
            some = _some_of([[example.message_id for example in examples], [example.value for example in examples]])
            groups[name] = replace(
                known, rows=known.rows + group.rows, message=min(known.message, group.message), examples=some
            )
    return groups


def seen_paths(rows: pa.Table, paths: Mapping[str, str], wanted: Collection[str]) -> set[str]:
    """Those of the wanted paths that any of these rows of Standardized has, in its column or in `_rescued`."""
    seen = {path for path in wanted if path in paths and rows.column(paths[path]).null_count < len(rows)}
    missing = set(wanted) - seen
    for text in rows.column("_rescued").drop_null().to_pylist() if missing else ():
        seen |= missing & rescued_cells(text).keys()
    return seen


def fingerprints(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """A hash of each row, in which a NULL counts."""
    texts = [column.fill_null(_NOTHING) for column in columns]
    whole = pc.binary_join_element_wise(*texts, "\x1f")
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    hashes = [int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True) for text in whole.to_pylist()]
    assert len(hashes) == rows
    return pa.array(hashes, pa.int64())


def texts_of(values: pa.Array) -> pa.Array:
    """Values as texts that are equal where the values are."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return values.cast(pa.string())


def _system(rows: pa.RecordBatch | pa.Table) -> list[pa.Array]:
    return [texts_of(rows.column(name)) for name in _SYSTEM]


def _presence(values: pa.Array, shown: str) -> pa.Array:
    return pc.if_else(values.is_valid(), shown, pa.scalar(None, pa.string()))


def _listed(failures: pa.Array) -> pa.Table:
    """One row per failure, with the number of the row that has it."""
    structs = failures.flatten()
    names = ("rule", "column", "message", "value")
    columns = [pc.list_parent_indices(failures), *(pc.struct_field(structs, name) for name in names)]
    return pa.table(columns, ["row", *names])


def _rows_with(failures: pa.Table, which: pa.ChunkedArray, size: int) -> pa.Array:
    """Whether each row has one of these failures."""
    flags = np.zeros(size, bool)
    flags[failures.column("row").filter(which).to_numpy()] = True
    return pa.array(flags)


def _some_of(rows: Sequence[Sequence[str | None]]) -> tuple[Example, ...]:
    """The first and the last message, and one from anywhere; each once."""
    examples = [Example(message or "", value) for message, value in zip(*rows, strict=True)]

    def by_message(example: Example) -> str:
        return example.message_id

    def anywhere(example: Example) -> bytes:
        return blake2b(example.message_id.encode(), digest_size=8).digest()

    some = (min(examples, key=by_message), min(examples, key=anywhere), max(examples, key=by_message))
    return tuple(dict.fromkeys(some))


def _flags(values: pa.Array | pa.ChunkedArray) -> Flags:
    return np.array(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy(), bool)
