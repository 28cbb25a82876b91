"""Flattening one payload: row-local, exact, total within the limits, and strict."""

import json
import re
from typing import NamedTuple

import msgspec

from leanops.domain.failures import Rule
from leanops.domain.limits import Limits
from leanops.domain.payload.paths import Segments, path_of

Kind = str
STRING, NUMBER, BOOLEAN, ARRAY = "string", "number", "boolean", "array"
NULL = "null"
"""Not a kind of cell: a member that is there and has no value."""
KINDS = (STRING, NUMBER, BOOLEAN, ARRAY)


class Cell(NamedTuple):
    """The text of a scalar as sent, a string unescaped, or an array's JSON verbatim."""

    text: str
    kind: Kind


class ParseError(Exception):
    """A payload that is not an event: the rule it broke and where; never its text."""

    def __init__(self, rule: Rule, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.rule, self.message, self.position = rule, message, position


_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string = msgspec.json.Decoder(str)
_any = msgspec.json.Decoder(msgspec.Raw)
_BYTE = re.compile(r"\(byte (\d+)\)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(r"[][{}]")


class Flat(NamedTuple):
    """A payload taken apart: its cells by path, and the paths that are there and null."""

    cells: dict[str, Cell]
    nulls: list[str]
    """They give no cells, but belong to the payload's shape."""


def flat(payload: str, limits: Limits) -> Flat:
    """Every leaf of the payload by its canonical path; raises ParseError with a rule and a position."""
    check_size(payload, limits)
    members = _top_level(payload)
    check_depth(payload, limits)
    if limits.duplicate_keys == "error":
        _refuse_duplicate_keys(payload)
    walk = _Walk(limits)
    walk.visit(members, ())
    return Flat(walk.cells, walk.nulls)


def check_size(payload: str, limits: Limits) -> None:
    """Raise if the payload has more bytes than the limit."""
    # A character has at most four bytes: most payloads need no encoding to be cleared.
    if len(payload) * 4 <= limits.payload_bytes:
        return
    if len(payload.encode(errors="surrogatepass")) > limits.payload_bytes:
        raise ParseError(Rule.TOO_LARGE, f"payload is larger than {limits.payload_bytes:,} bytes")


def check_depth(payload: str, limits: Limits) -> None:
    """Raise if objects and arrays nest below the limit; brackets inside strings do not count."""
    if payload.count("{") + payload.count("[") <= limits.depth:
        return
    level = 0
    for bracket in _BRACKETS.findall(_QUOTED.sub("", payload)):
        level += 1 if bracket in "{[" else -1
        if level > limits.depth:
            raise ParseError(Rule.TOO_DEEP, f"nested deeper than {limits.depth}")


def _top_level(payload: str) -> dict[str, msgspec.Raw]:
    try:
        return _object.decode(payload)
    except msgspec.ValidationError:
        _check_syntax(payload)
        raise ParseError(Rule.NOT_OBJECT, "the top level is not an object", 0) from None
    except msgspec.DecodeError as broken:
        raise _syntax_error(broken, payload) from None
    except RecursionError:
        raise ParseError(Rule.TOO_DEEP, "nested too deeply to be read") from None
    except UnicodeEncodeError:
        raise ParseError(Rule.NOT_JSON, "holds a lone surrogate, which no UTF-8 text can") from None


def _check_syntax(payload: str) -> None:
    try:
        _any.decode(payload)
    except msgspec.DecodeError as broken:
        raise ParseError(Rule.NOT_JSON, *_reason(broken, payload)) from None
    except RecursionError:
        raise ParseError(Rule.TOO_DEEP, "nested too deeply to be read") from None


def _syntax_error(broken: msgspec.DecodeError, payload: str) -> ParseError:
    if "trailing characters" in str(broken):
        _, position = _reason(broken, payload)
        return ParseError(Rule.TRAILING_TEXT, f"text after the end of the object at byte {position}", position)
    return ParseError(Rule.NOT_JSON, *_reason(broken, payload))


def _reason(broken: msgspec.DecodeError, payload: str) -> tuple[str, int]:
    """The decoder's reason, with the byte it stopped at; it never quotes the payload."""
    message = str(broken)
    byte = _BYTE.search(message)
    if byte is None:
        end = len(payload.encode())
        return f"the text ends too early, at byte {end}", end
    reason = message.removeprefix("JSON is malformed: ").split(" (byte")[0]
    # Of trailing text the decoder names the byte after the one it stopped at.
    position = int(byte[1]) - (reason == "trailing characters")
    return f"{reason} at byte {position}", position


class _Walk:
    """Collects the cells of nested objects and counts keys on the way."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.keys = limits, 0
        self.cells: dict[str, Cell] = {}
        self.nulls: list[str] = []

    def visit(self, members: dict[str, msgspec.Raw], above: Segments) -> None:
        self.keys += len(members)
        if self.keys > self.limits.keys:
            raise ParseError(Rule.TOO_MANY_KEYS, f"more than {self.limits.keys:,} keys")
        for name, raw in members.items():
            text = bytes(raw)
            first = text[:1]
            if first == b"{":
                self.visit(_object.decode(text), (*above, name))
            elif first == b"n":
                self.nulls.append(path_of((*above, name)))
            else:
                self.cells[path_of((*above, name))] = _cell(text, first)


def _cell(text: bytes, first: bytes) -> Cell:
    if first == b'"':
        return Cell(_string.decode(text), STRING)
    if first == b"[":
        return Cell(text.decode(), ARRAY)
    return Cell(text.decode(), BOOLEAN if first in b"tf" else NUMBER)


def _refuse_duplicate_keys(payload: str) -> None:
    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        unique = dict(pairs)
        if len(unique) != len(pairs):
            raise ParseError(Rule.DUPLICATE_KEY, "a key appears twice in one object")
        return unique

    try:
        json.loads(payload, object_pairs_hook=members, parse_int=str, parse_float=str)
    except RecursionError:
        raise ParseError(Rule.TOO_DEEP, "nested too deeply to be read") from None
