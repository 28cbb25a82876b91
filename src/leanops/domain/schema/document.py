"""JSON as people write it in a file: numbers keep their text, and every member has a pointer and a line."""

import json
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leanops.domain.problems import Code, Problem, quoted

LARGEST = 1_000_000
DEEPEST = 64
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Number:
    """A JSON number as it was written: a limit of twenty digits is no float."""

    text: str


@dataclass(frozen=True)
class Constant:
    """NaN or Infinity, which Python reads and JSON does not know."""

    name: str


class Place(NamedTuple):
    """Where a value of the text begins: that of a member at its name."""

    pointer: str
    offset: int


@dataclass(frozen=True)
class Document:
    """A JSON text that could be read: its value, and what is wrong with it as JSON."""

    value: Any
    order: dict[str, int] = field(default_factory=dict)
    """Every pointer, and how many come before it."""
    problems: tuple[Problem, ...] = ()

    @property
    def is_readable(self) -> bool:
        return bool(self.order)


def step(pointer: str, name: str | int) -> str:
    """The pointer of a member, as RFC 6901 writes it."""
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"


def parent(pointer: str) -> str:
    """The pointer of what a member belongs to."""
    return pointer.rpartition("/")[0]


def read_document(text: str) -> Document:
    """The value of a JSON text, and its problems as one."""
    if len(text) > LARGEST:
        return _unreadable(Code.TOO_LARGE, f"{len(text):,} characters", f"keep it below {LARGEST:,}")
    if not text.strip():
        return _unreadable(Code.NOT_JSON, "not JSON: the file is empty", "write a JSON object with a table_name")
    if text.startswith("\ufeff"):
        return _unreadable(Code.NOT_JSON, "not JSON: it starts with a byte order mark", "save it as UTF-8 without BOM")
    try:
        value = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Constant)
    except json.JSONDecodeError as broken:
        where = f"not JSON: {broken.msg} at line {broken.lineno}, column {broken.colno}"
        return _unreadable(Code.NOT_JSON, where, "correct the text there; JSON has double quotes and no comments")
    except RecursionError:
        return _too_deep()
    places = list(places_in(text))
    last = places[-1].pointer
    if last.count("/") > DEEPEST:
        return _too_deep("/".join(last.split("/")[:2]))
    order = {place.pointer: at for at, place in enumerate(places)}
    return Document(_encodable(value), order, (*_repeated(places), *_odd_values(value)))


def lines_of(text: str, pointers: Iterable[str]) -> list[int]:
    """Lines of members: of what a missing one would belong to, and of the fault where the text is no JSON."""
    try:
        json.loads(text, parse_int=Number)
    except json.JSONDecodeError as broken:
        return [broken.lineno for _ in pointers]
    except RecursionError:
        return [1 for _ in pointers]
    offsets = {place.pointer: place.offset for place in places_in(text)}
    breaks = [found.start() for found in re.finditer("\n", text)]
    return [bisect_left(breaks, offsets[_nearest(pointer, offsets)]) + 1 for pointer in pointers]


def _nearest(pointer: str, known: Container[str]) -> str:
    """The member itself, or the closest one above it that is there."""
    while pointer and pointer not in known:
        pointer = parent(pointer)
    return pointer


def places_in(text: str) -> Iterator[Place]:
    """Every value of a valid JSON text in the order of the file; a name that stands twice comes twice.

    It ends with the first one that lies too deep: pointers of thousands of levels would take all memory.
    """
    above: list[tuple[str, bool]] = []
    name: Place | None = None
    count = [0]
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "}" | "]":
                above.pop()
                count.pop()
            case ",":
                count[-1] += 1
                name = None
            case ":":
                pass
            case word:
                in_object = bool(above) and above[-1][1]
                if in_object and name is None:
                    name = Place(step(above[-1][0], json.loads(word)), token.start())
                    continue
                place = name or Place(step(above[-1][0], count[-1]) if above else "", token.start())
                yield place
                if len(above) > DEEPEST:
                    return
                name = None
                if word in "{[":
                    above.append((place.pointer, word == "{"))
                    count.append(0)


def _unreadable(code: Code, message: str, hint: str, pointer: str = "") -> Document:
    return Document(None, problems=(Problem(code, pointer, message, hint),))


def _too_deep(pointer: str = "") -> Document:
    message = f"nested deeper than {DEEPEST} levels"
    return _unreadable(Code.TOO_DEEP, message, "a schema file needs five at most", pointer)


def _repeated(places: list[Place]) -> Iterator[Problem]:
    """Names that stand twice in one object; of those within a repeated one nothing can be said."""
    seen: set[str] = set()
    told: set[str] = set()
    for pointer, _ in places:
        if pointer in seen and pointer not in told and not is_beneath(pointer, told):
            told.add(pointer)
            name = pointer.rpartition("/")[2]
            yield Problem(
                Code.DUPLICATE_KEY, pointer, f"{quoted(name)} stands twice in one object", "keep one of the two"
            )
        seen.add(pointer)


def is_beneath(pointer: str, pointers: Container[str]) -> bool:
    """Whether the member, or one it lies in, is among these."""
    return _nearest(pointer, pointers) in pointers


def _odd_values(value: Any, pointer: str = "") -> Iterator[Problem]:
    """Values that Python reads and JSON in UTF-8 cannot hold."""
    match value:
        case Constant(name):
            yield Problem(Code.NOT_JSON, pointer, f"{name} is no JSON", "write a number, or leave the member out")
        case str() if _SURROGATE.search(value):
            yield _lone_surrogate(pointer)
        case list():
            for at, one in enumerate(value):
                yield from _odd_values(one, step(pointer, at))
        case dict():
            if any(_SURROGATE.search(name) for name in value):
                yield _lone_surrogate(pointer)
                return
            for name, one in value.items():
                yield from _odd_values(one, step(pointer, name))


def _encodable(value: Any) -> Any:
    """The value without the names and texts that no UTF-8 can hold."""
    match value:
        case str():
            return _SURROGATE.sub("?", value)
        case list():
            return [_encodable(one) for one in value]
        case dict():
            return {name: _encodable(one) for name, one in value.items() if not _SURROGATE.search(name)}
    return value


def _lone_surrogate(pointer: str) -> Problem:
    return Problem(Code.NOT_UTF8, pointer, "holds half of a character (a lone surrogate)", "write the character itself")
