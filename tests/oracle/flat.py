"""Strict JSON to flat cells, written from the specification alone."""

import json
import re
from dataclasses import dataclass, field

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+)"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"true": "boolean", "false": "boolean", "null": "null"}
_ESCAPE = re.compile(r"\\(?:u(....)|(.))")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Limits:
    """The limits of the specification with their defaults."""

    payload_bytes: int = 1_000_000
    depth: int = 64
    keys: int = 5_000
    columns: int = 1_000
    new_columns: int = 200


@dataclass(frozen=True)
class Flat:
    """The cells of one event and the JSON kind of each."""

    cells: dict[str, str]
    kinds: dict[str, str]


@dataclass(frozen=True)
class Bad:
    """An event that does not parse."""

    rule: str


Node = tuple  # (kind, text), or ("object", dict of key -> Node)


@dataclass
class _Open:
    """A container being read; only objects keep members, an array keeps its text."""

    start: int
    is_object: bool
    members: dict[str, Node] = field(default_factory=dict)
    key: str = ""

    @property
    def closer(self) -> str:
        return "}" if self.is_object else "]"

    def close(self, text: str, pos: int) -> Node:
        return ("object", self.members) if self.is_object else ("array", text[self.start : pos + 1])


def flatten(payload: str, limits: Limits) -> Flat | Bad:
    """The cells of a payload, or the first rule it breaks."""
    try:
        if len(payload.encode()) > limits.payload_bytes:
            return Bad("too_large")
        (kind, value), end, depth = _scan(payload)
    except ValueError:
        return Bad("not_json")
    if _skip(payload, end) < len(payload):
        return Bad("trailing_text" if kind == "object" else "not_json")
    if kind != "object":
        return Bad("not_object")
    if depth > limits.depth:
        return Bad("too_deep")
    flat, keys = _walk(value)
    return Bad("too_many_keys") if keys > limits.keys else flat


def segment(key: str) -> str:
    """One key as it stands in a canonical path."""
    return f".{key}" if IDENTIFIER.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]"


def _walk(top: dict[str, Node]) -> tuple[Flat, int]:
    flat, keys, pending = Flat({}, {}), 0, [("$", top)]
    while pending:
        prefix, members = pending.pop()
        keys += len(members)
        for key, (kind, value) in members.items():
            path = prefix + segment(key)
            if kind == "object":
                pending.append((path, value))
            elif kind != "null":
                flat.cells[path], flat.kinds[path] = value, kind
    return flat, keys


def _scan(text: str) -> tuple[Node, int, int]:
    """The first value, its end and its depth; not recursive, so that depth is data and no crash."""
    stack: list[_Open] = []
    pos, depth = _skip(text, 0), 0
    while True:
        if text[pos : pos + 1] in ("{", "["):
            stack.append(_Open(pos, text[pos] == "{"))
            depth = max(depth, len(stack))
            pos = _skip(text, pos + 1)
            if text[pos : pos + 1] != stack[-1].closer:
                pos = _to_value(text, pos, stack[-1])
                continue
            node, pos = stack.pop().close(text, pos), pos + 1
        else:
            node, pos = _scalar(text, pos)
        while stack:
            if stack[-1].is_object:
                stack[-1].members[stack[-1].key] = node
            pos = _skip(text, pos)
            if text[pos : pos + 1] == ",":
                pos = _to_value(text, _skip(text, pos + 1), stack[-1])
                break
            if text[pos : pos + 1] != stack[-1].closer:
                raise ValueError(pos)
            node, pos = stack.pop().close(text, pos), pos + 1
        else:
            return node, pos, depth


def _skip(text: str, pos: int) -> int:
    return _SPACE.match(text, pos).end()


def _to_value(text: str, pos: int, container: _Open) -> int:
    """Reads the key in front of a member's value; an array's value has none."""
    if not container.is_object:
        return pos
    container.key, pos = _string(text, pos)
    pos = _skip(text, pos)
    if text[pos : pos + 1] != ":":
        raise ValueError(pos)
    return _skip(text, pos + 1)


def _scalar(text: str, pos: int) -> tuple[Node, int]:
    if text[pos : pos + 1] == '"':
        value, end = _string(text, pos)
        return ("string", value), end
    for word, kind in _WORDS.items():
        if text.startswith(word, pos):
            return (kind, word), pos + len(word)
    number = _NUMBER.match(text, pos)
    if not number:
        raise ValueError(pos)
    return ("number", number.group()), number.end()


def _string(text: str, pos: int) -> tuple[str, int]:
    match = _STRING.match(text, pos)
    if not match:
        raise ValueError(pos)
    value = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), match[1])
    # Joins escaped surrogate pairs; a lone one is a UnicodeDecodeError, which is a ValueError.
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le"), match.end()
