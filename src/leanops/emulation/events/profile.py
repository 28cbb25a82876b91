"""A profile: what the events of a topic look like, as values, as text and as a schema."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from itertools import repeat
from operator import is_, itemgetter
from random import Random
from typing import Any, NamedTuple

import msgspec

Cells = list[str | None]
"""A value for each event of a chunk, as Standardized will hold it; None if the event has none."""
KEY, PERIOD, VERSION = 0, 1, 2
"""The positions of the leaves for the key of an event, its month and its version."""
_MARK = re.compile("<([0-9]+)>")
MICROS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Draw:
    """What the values of a chunk are drawn from."""

    random: Random
    numbers: Sequence[int]
    """The number of the entity each event is about."""
    moments: Sequence[int]
    """When it happened, in microseconds since 1970."""


Maker = Callable[[Draw], Cells]


class Form(StrEnum):
    """How a value is written in JSON."""

    PLAIN = "plain"
    """A text with nothing to escape."""
    PROSE = "prose"
    """A text that must be escaped."""
    BARE = "bare"
    """A number, a boolean or an array, as it is."""


@dataclass(frozen=True)
class Leaf:
    """A value of an event; with a `type` it has a column in Curated."""

    path: str
    make: Maker
    form: Form = Form.PLAIN
    type: str | None = None
    cde: bool = False
    default: str | None = None
    rules: Mapping[str, Any] = field(default_factory=dict)
    pii: str | None = None
    shape: str | None = None
    """A regular expression that finds personal data in plain text, wherever it is."""
    wrong: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Rule → values, as JSON, that break this rule and no other."""

    @property
    def canonical(self) -> str:
        return f"$.{self.path}"

    @property
    def column(self) -> str:
        """Its name in Curated."""
        return "_".join(_snake(part) for part in self.path.split("."))

    @property
    def kind(self) -> str:
        """The JSON kind of its values."""
        if self.form != Form.BARE:
            return "string"
        return {"BOOLEAN": "boolean", "STRING": "array"}.get(self.type or "", "number")

    def token(self, cell: str) -> str:
        """The value as JSON."""
        if self.form == Form.BARE:
            return cell
        return f'"{cell}"' if self.form == Form.PLAIN else escaped(cell)


@lru_cache(maxsize=1_000)
def escaped(text: str) -> str:
    """A text as JSON."""
    return json.dumps(text, ensure_ascii=False)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def numbered(pattern: str) -> Maker:
    """The number of the entity in a pattern."""
    return lambda draw: [pattern % number for number in draw.numbers]


def one_of(*values: str | None) -> Maker:
    """One of these values; None leaves the value out."""
    return lambda draw: list(draw.random.choices(values, k=len(draw.numbers)))


def whole(low: int, high: int) -> Maker:
    return one_of(*map(str, range(low, high + 1)))


def decimal(low: float, high: float, places: int, kinds: int = 4_001) -> Maker:
    """Numbers with this many decimal places, spread evenly between two."""
    return one_of(*(f"{low + (high - low) * step / (kinds - 1):.{places}f}" for step in range(kinds)))


def person(pattern: str, people: int) -> Maker:
    """Personal data of one of this many people."""
    return one_of(*(pattern % number for number in range(people)))


def second(before: timedelta = timedelta()) -> Maker:
    """The second in which it happened, or some time before."""
    earlier = int(before.total_seconds())
    return lambda draw: [f"{text_of(at // MICROS - earlier)}Z" for at in draw.moments]


def day() -> Maker:
    """The day it happened on."""
    return lambda draw: [text_of(at // MICROS)[:10] for at in draw.moments]


def listed(low: int, high: int, pattern: str) -> Maker:
    """An array of `low` to `high` elements, each a number in a pattern of JSON."""
    sizes = range(low, high + 1)
    return one_of(
        *(f"[{','.join(pattern % (at * 7 + part) for part in range(size))}]" for size in sizes for at in range(97))
    )


def sometimes(share: float, maker: Maker) -> Maker:
    """Present in a share of the events."""
    return lambda draw: [cell if draw.random.random() < share else None for cell in maker(draw)]


@lru_cache(maxsize=100_000)
def text_of(second: int) -> str:
    """A second since 1970 as events write it, without its time zone."""
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:19]


_GAPS = {Form.PLAIN: '"%s"', Form.PROSE: "%s", Form.BARE: "%s"}


@dataclass(frozen=True, eq=False)
class Profile:
    """Leaves in the order in which events hold them; the first three are key, period and version."""

    name: str
    description: str
    owner: str
    leaves: tuple[Leaf, ...]
    measures: tuple[str, ...] = ()
    has_version: bool = True
    """Whether events carry a version; if not, their publish time is their version."""

    @cached_property
    def optional(self) -> tuple[int, ...]:
        """The leaves that a valid event may lack."""
        return tuple(at for at, leaf in enumerate(self.leaves) if at > VERSION and not leaf.cde)

    def cells(self, draw: Draw, periods: Cells, versions: Cells) -> Iterator[tuple[str | None, ...]]:
        """The cells of each event of a chunk."""
        columns = [leaf.make(draw) for leaf in self.leaves]
        columns[PERIOD] = periods
        columns[VERSION] = versions if self.has_version else [None] * len(versions)
        return zip(*columns, strict=True)

    def text(self, cells: Sequence[str | None]) -> str:
        """An event as JSON."""
        template = _template(self, tuple(map(is_, cells, repeat(None))))
        if template.prose:
            cells = list(cells)
            for at in template.prose:
                cells[at] = escaped(cells[at] or "")
        return template.text % template.chosen(cells)

    def schema(self, table: str) -> dict[str, Any]:
        """The schema file of a topic with this profile."""
        keys = {"idempotency_key": self.leaves[KEY].canonical, "period": self.leaves[PERIOD].canonical}
        if self.has_version:
            keys["version"] = self.leaves[VERSION].canonical
        return {
            "table_name": table,
            "owner": self.owner,
            "description": self.description,
            "keys": keys,
            "envelope_columns": [{"name": "message_id", "type": "STRING"}],
            "payload_columns": [_column(leaf) for leaf in self.leaves if leaf.type],
            "measures": list(self.measures),
        }


class _Template(NamedTuple):
    """A text with gaps, the cells that fill them in order, and those that must be escaped first."""

    text: str
    chosen: Callable[[Sequence[str | None]], tuple[str, ...]]
    prose: frozenset[int]


@cache
def _template(profile: Profile, missing: tuple[bool, ...]) -> _Template:
    """The text of events that lack some leaves, with gaps for the others."""
    present = [(at, leaf) for at, leaf in enumerate(profile.leaves) if not missing[at]]
    marked = written((leaf.path, f"<{at}>") for at, leaf in present)
    order = [int(at) for at in _MARK.findall(marked)]
    text = _MARK.sub(lambda mark: _GAPS[profile.leaves[int(mark[1])].form], marked)
    return _Template(text, itemgetter(*order), frozenset(at for at, leaf in present if leaf.form == Form.PROSE))


def _column(leaf: Leaf) -> dict[str, Any]:
    column: dict[str, Any] = {"name": leaf.column, "path": leaf.canonical, "type": leaf.type, "cde": leaf.cde}
    column |= {"default": leaf.default, "rules": dict(leaf.rules), "pii": leaf.pii}
    return {name: value for name, value in column.items() if value}


def written(values: Iterable[tuple[str, str]]) -> str:
    """A JSON object, from paths and the JSON at each of them."""
    tree: dict[str, Any] = {}
    for path, token in values:
        *outer, last = path.split(".")
        at = tree
        for name in outer:
            at = at.setdefault(name, {})
        at[last] = msgspec.Raw(token)
    return msgspec.json.encode(tree).decode()
