"""JSON as people write it in a file: numbers keep their text, and every member has a pointer and a line."""

import json
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leanops.domain.problems import Code, Problem, quoted

LARGEST = 1_000_000
DEEPEST = 64
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Number:
    """A JSON number as it was written: a float could not hold a limit of twenty digits."""

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
    """The value of a JSON text, and what is wrong with it as JSON."""

    value: Any
    offsets: Mapping[str, int] = field(default_factory=dict)
    """Every pointer, and where its value begins; none where the text cannot be read."""
    problems: tuple[Problem, ...] = ()


def step(pointer: str, name: str | int) -> str:
    """The pointer of a member, as RFC 6901 writes it."""
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"


def read_document(text: str) -> Document:
    """Read a JSON text; its problems are those of any JSON file, not of a schema."""
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
    problems = list(_repeated(places))
    value = _encodable(value, "", problems)
    return Document(value, dict(places), tuple(problems))


def lines_of(text: str, pointers: Iterable[str]) -> list[int]:
    """The line of each member, of the parent where it is missing, and of the fault where the text is not JSON."""
    try:
        json.loads(text, parse_int=Number)
    except json.JSONDecodeError as broken:
        return [broken.lineno for _ in pointers]
    except RecursionError:
        return [1 for _ in pointers]
    offsets = dict(places_in(text))
    breaks = [newline.start() for newline in re.finditer("\n", text)]
    return [bisect_left(breaks, offsets[nearest(pointer, offsets)]) + 1 for pointer in pointers]


def nearest(pointer: str, known: Container[str]) -> str:
    """The member itself, or the closest one above it that is known."""
    while pointer and pointer not in known:
        pointer = pointer.rpartition("/")[0]
    return pointer


def places_in(text: str) -> Iterator[Place]:
    """Every value of a valid JSON text in the order of the file; a repeated name comes twice.

    It ends with the first value that is nested too deeply: pointers of thousands of levels would take all memory.
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
    """Names that are in one object twice; what is within a repeated member is not looked at."""
    seen: set[str] = set()
    repeated: set[str] = set()
    for pointer, _ in places:
        if pointer in seen and not is_beneath(pointer, repeated):
            repeated.add(pointer)
            message = f"{quoted(pointer.rpartition('/')[2])} appears twice in one object"
            yield Problem(Code.DUPLICATE_KEY, pointer, message, "keep one of the two")
        seen.add(pointer)


def is_beneath(pointer: str, pointers: Container[str]) -> bool:
    """Whether the member, or one it is in, is among the pointers."""
    return nearest(pointer, pointers) in pointers


def _encodable(value: Any, pointer: str, problems: list[Problem]) -> Any:
    """The value without what UTF-8 cannot hold; adds that, and NaN and the like, to the problems."""
    match value:
        case Constant(name):
            hint = "write a number, or leave the member out"
            problems.append(Problem(Code.NOT_JSON, pointer, f"{name} is not JSON", hint))
        case str() if _SURROGATE.search(value):
            problems.append(_lone_surrogate(pointer))
            return _SURROGATE.sub("?", value)
        case list():
            return [_encodable(member, step(pointer, at), problems) for at, member in enumerate(value)]
        case dict():
            members = {name: member for name, member in value.items() if not _SURROGATE.search(name)}
            problems += [_lone_surrogate(pointer)] if len(members) < len(value) else []
            return {name: _encodable(member, step(pointer, name), problems) for name, member in members.items()}
    return value


def _lone_surrogate(pointer: str) -> Problem:
    return Problem(Code.NOT_UTF8, pointer, "contains half a character (a lone surrogate)", "write the character itself")
