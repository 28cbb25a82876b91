"""JSON paths: their canonical text, and the segments behind it."""

import json
import re
from functools import lru_cache

import msgspec

from leanops.domain.errors import InvalidPathError

Segments = tuple[str, ...]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(r'\.([A-Za-z_][A-Za-z0-9_]*)|\[("(?:[^"\\]|\\.)*")\]')
_string = msgspec.json.Decoder(str)


@lru_cache(maxsize=65_536)
def path_of(segments: Segments) -> str:
    """The canonical text: `$.event.userId`, with `["a.b"]` for a segment that is not a plain word."""
    steps = (f".{name}" if _PLAIN.fullmatch(name) else f"[{json.dumps(name, ensure_ascii=False)}]" for name in segments)
    return "$" + "".join(steps)


def segments_of(path: str) -> Segments:
    """The segments of a path text; `$.a["b c"]` gives ("a", "b c")."""
    segments: list[str] = []
    at = 1
    while path.startswith("$") and at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            break
        try:
            segments.append(step[1] if step[1] is not None else _string.decode(step[2]))
        except (msgspec.DecodeError, UnicodeEncodeError):
            break  # a broken escape, or a lone surrogate, which no column comment can hold
        at = step.end()
    if at != len(path) or not segments:
        raise InvalidPathError(path)
    return tuple(segments)


def canonical(path: str) -> str:
    """The canonical spelling of any accepted path text."""
    return path_of(segments_of(path))
