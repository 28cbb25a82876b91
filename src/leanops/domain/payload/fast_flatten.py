"""The fast way through many payloads of the shape we expect; any other payload takes `flat`.

A layout turns expected paths into one compiled decoder. It is an optimisation and nothing else: a payload it
reads gives exactly the cells `flat` gives, and a payload it cannot read is handed back.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec

from leanops.domain.limits import Limits
from leanops.domain.payload.flatten import ARRAY, BOOLEAN, NULL, NUMBER, STRING, Flat, Kind
from leanops.domain.payload.paths import Segments, segments_of

Columns = list[list[str | None]]
_NO_FIELD = re.compile(r'["\\\x00-\x1f]')
_NUMBER_STARTS = frozenset("-0123456789")
_STARTS = {NUMBER: _NUMBER_STARTS, ARRAY: frozenset("[")}
_BOOLEANS = {None: None, True: "true", False: "false"}
_TYPES = {STRING: str | None, BOOLEAN: bool | None, NUMBER: msgspec.Raw, ARRAY: msgspec.Raw, NULL: None}


class Layout:
    """Expected paths with the kind expected of each; paths keep their order."""

    def __init__(self, expected: Mapping[str, Kind], limits: Limits) -> None:
        self.paths = tuple(expected)
        self.kinds = tuple(expected.values())
        self.limits = limits
        leaves = {segments_of(path): kind for path, kind in expected.items()}
        tree = _tree({segments: kind for segments, kind in leaves.items() if _can_be_fields(segments)})
        places: dict[Segments, str] = {}
        self._decoder = msgspec.json.Decoder(_struct(tree, (), "", places))
        getters = {at: places.get(segments_of(path)) for at, path in enumerate(self.paths)}
        self._readable = [at for at, getter in getters.items() if getter is not None]
        self._cells = _getter([getter for getter in getters.values() if getter is not None])
        self._is_usable = (
            _depth(tree) <= limits.depth and _keys(tree) <= limits.keys and limits.duplicate_keys != "error"
        )

    def read(self, payloads: Sequence[str]) -> tuple[Columns, list[int]]:
        """A column of texts per path, and the positions of payloads that must take the long way."""
        nothing: list[str | None] = [None] * len(payloads)
        columns: Columns = [nothing] * len(self.paths)
        rows, odd = self._decode(payloads)
        for at, values in zip(self._readable, zip(*rows, strict=True), strict=False):
            columns[at] = self._texts(at, values, odd)
        if odd:
            columns = [[None if at in odd else text for at, text in enumerate(column)] for column in columns]
        return columns, sorted(odd)

    def _decode(self, payloads: Sequence[str]) -> tuple[list[tuple[Any, ...]], set[int]]:
        """Decoded rows; the whole batch at once where every payload is as expected, else one by one."""
        if not self._is_usable:
            return [], set(range(len(payloads)))
        if self._are_surely_small(payloads):
            with contextlib.suppress(msgspec.DecodeError, AttributeError, RecursionError):
                return list(map(self._cells, map(self._decoder.decode, payloads))), set()
        rows: list[tuple[Any, ...]] = []
        odd: set[int] = set()
        for position, payload in enumerate(payloads):
            try:
                if not self._are_surely_small([payload]):
                    raise ValueError
                rows.append(self._cells(self._decoder.decode(payload)))
            except (msgspec.DecodeError, AttributeError, ValueError, RecursionError):
                odd.add(position)
                rows.append((None,) * len(self._readable))
        return rows, odd

    def _are_surely_small(self, payloads: Sequence[str]) -> bool:
        """Whether lengths and brackets alone show that no payload is too large or too deep."""
        brackets = (max(map(str.count, payloads, repeat(bracket)), default=0) for bracket in "{[")
        return (
            max(map(len, payloads), default=0) * 4 <= self.limits.payload_bytes and sum(brackets) <= self.limits.depth
        )

    def _texts(self, index: int, values: Sequence[Any], odd: set[int]) -> list[str | None]:
        """The texts of one column; a value of another kind than expected makes its payload odd."""
        kind = self.kinds[index]
        if kind == STRING:
            return list(values)
        if kind == BOOLEAN:
            return [_BOOLEANS[value] for value in values]
        texts = [None if value is None else str(value, "utf-8") for value in values]
        unexpected = {text[0] for text in texts if text is not None} - _STARTS[kind]
        if not unexpected:
            return texts
        odd.update(at for at, text in enumerate(texts) if text and text[0] in unexpected and text != "null")
        return [None if text == "null" else text for text in texts]


def learn(samples: Sequence[Flat]) -> dict[str, Kind]:
    """The paths of some payloads with the kind each is seen with most, NULL where it has no other; in path order."""
    counts: dict[str, dict[Kind, int]] = {path: {NULL: 0} for sample in samples for path in sample.nulls}
    for sample in samples:
        for path, cell in sample.cells.items():
            seen = counts.setdefault(path, {})
            seen[cell.kind] = seen.get(cell.kind, 0) + 1
    return {path: max(sorted(seen), key=seen.__getitem__) for path, seen in sorted(counts.items())}


_Tree = dict[str, Any]


def _can_be_fields(segments: Segments) -> bool:
    """Whether the decoder takes these names for fields; a payload that has others takes the long way."""
    return not any(_NO_FIELD.search(name) for name in segments)


def _tree(leaves: Mapping[Segments, Kind]) -> _Tree:
    """Nested members, a leaf as its kind; where a path is both a leaf and an object, the object stays."""
    root: _Tree = {}
    for segments in sorted(leaves, key=len, reverse=True):
        node = root
        for name in segments[:-1]:
            node = node.setdefault(name, {})
        node.setdefault(segments[-1], leaves[segments])
    return root


def _depth(tree: _Tree) -> int:
    return 1 + max((_depth(child) for child in tree.values() if isinstance(child, dict)), default=0)


def _keys(tree: _Tree) -> int:
    return len(tree) + sum(_keys(child) for child in tree.values() if isinstance(child, dict))


def _struct(tree: _Tree, above: Segments, getter: str, places: dict[Segments, str]) -> type[msgspec.Struct]:
    """A struct type for one object; unknown members and wrong kinds make it refuse the payload."""
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for position, (name, child) in enumerate(tree.items()):
        field = f"f{position}"
        names[field] = name
        if isinstance(child, dict):
            inner = _struct(child, (*above, name), f"{getter}{field}.", places)
            fields.append((field, inner, msgspec.field(default_factory=inner)))
        else:
            fields.append((field, _TYPES[child], None))
            if child != NULL:
                places[(*above, name)] = f"{getter}{field}"
    return msgspec.defstruct("Members", fields, rename=names, forbid_unknown_fields=True, gc=False)


def _getter(places: Sequence[str]) -> Any:
    """All cells of a decoded payload as one tuple."""
    if len(places) > 1:
        return attrgetter(*places)
    return lambda value: tuple(attrgetter(place)(value) for place in places)
