"""Patterns of schema files: regular expressions that Java and Python read alike, as far as that can be checked."""

import math
import re
from typing import NamedTuple

from leanops.domain.problems import Code

LONGEST = 1_000
DEEPEST = 3_000
"""Steps of the matcher on the stack of Java at once: a stack of 512 kB was seen to hold them, and 1 MB is usual."""
# Of a pattern without its escapes.
_NOT_JAVA = re.compile(r"\(\?([P#(]|[a-zA-Z]*[xaL])|\{(?![0-9]{1,9}(,[0-9]{0,9})?\})")
_NESTED_CLASS = re.compile(r"\[\^?\]?[^\]]*?(\[|&&|\|\||--|~~)")
_OCTAL = re.compile(r"\\(?:0|[0-9]{2})|(?<!\\)\[[^\]]*\\[0-9]")
_REPEATS = re.compile(r"[*+?]|\{[0-9]+,[0-9]*\}")
_MOST_REPEATS = 3
_LONGEST_TEXT = 200
_PIECE = re.compile(
    r"(?P<what>\\.|\[\^?\]?(?:\\.|[^\]])*\]|\((?:\?(?:<?[=!]|[a-zA-Z-]*:|>))?|.)"
    r"(?P<repeat>[*+]|\{[0-9]+(?:,(?P<most>[0-9]*))?\})?",
    re.DOTALL,
)
# What these take may be one unit of UTF-16 or two, and then Java counts on the stack.
_WIDE = (".", "[^", r"\S", r"\D", r"\W")
_ROOMY = (1_000, 500, 200, 100, 50, 20, 10)
_MOST_STEPS = 3e7
"""About a second of Java for one text."""
_MANY = 100


class Fault(NamedTuple):
    """Why a pattern cannot be used, and what to do."""

    why: str
    hint: str = "write it in a simpler way"
    code: Code = Code.BAD_PATTERN
    """A slow one works, on texts that are short enough."""


def fault_of(pattern: str, max_length: int | None = None) -> Fault | None:
    """Why a pattern cannot be used for texts of this length, or None."""
    why = _misread(pattern)
    if why:
        return Fault(why)
    is_deep, quick = _depth(pattern, max_length) > DEEPEST, quick_length(pattern)
    is_slow = quick is not None and (max_length is None or max_length > quick)
    if not is_deep and not is_slow:
        return None
    room = next((length for length in _ROOMY if _depth(pattern, length) <= DEEPEST), None)
    why = (
        "repeats so much that a long text could overflow the stack of Java"
        if is_deep
        else "repeats so much that one long text could take hours"
    )
    hint = f"give the column a max_length of at most {min(room, quick or room)}" if room else Fault(why).hint
    return Fault(why, hint, Code.BAD_PATTERN if is_deep else Code.SLOW_PATTERN)


def quick_length(pattern: str) -> int | None:
    """The longest text on which a pattern surely ends soon; None where any will do.

    Each repeat without an end may try every place that the one before it leaves: two of them take the square of the
    text's length, three its cube.
    """
    repeats = _repeats(pattern)
    if repeats < 2:
        return None
    return next((length for length in _ROOMY if _steps(length, repeats) <= _MOST_STEPS), _ROOMY[-1])


def _steps(length: int, repeats: float) -> float:
    return math.inf if repeats > _MANY else length**repeats / math.gamma(repeats + 1)


def _repeats(pattern: str) -> float:
    """How many repeats without an end, or with a distant one, can follow each other."""
    counts: list[float] = [0]
    for piece in _PIECE.finditer(pattern):
        if piece["what"].startswith("("):
            counts.append(0)
            continue
        inside = counts.pop() if piece["what"] == ")" else 0
        is_open = _most(piece) - _least(piece) > _MANY
        counts[-1] += inside + 1 if is_open else inside * _most(piece)
    return counts[0]


def _misread(pattern: str) -> str | None:
    if len(pattern) > LONGEST:
        return f"is longer than {LONGEST:,} characters"
    if _OCTAL.search(pattern.replace(r"\\", "__")):
        return (
            "has \\0, \\ and two digits, or a \\ and a digit inside brackets, which are not for Java and Python alike"
        )
    bare = _without_escapes(pattern)
    if _NOT_JAVA.search(bare):
        return "has (?P, (?#, (?(, (?x, \\p or a { that counts nothing, which are not for Java and Python alike"
    if _NESTED_CLASS.search(bare):
        return "has [, &&, ||, -- or ~~ inside brackets, which are not for Java and Python alike"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as broken:
        return f"is not a regular expression: {getattr(broken, 'msg', 'too large')}"
    return None


def surely_refuses(pattern: str, text: str) -> bool:
    """Whether a good pattern does not match the whole text; False where that cannot be decided quickly and for sure."""
    bare = _without_escapes(pattern)
    is_plain = pattern.isascii() and text.isascii() and text.isprintable() and len(text) <= _LONGEST_TEXT
    # What repeats a group, or repeats too often, might run for years.
    is_quick = len(_REPEATS.findall(bare)) <= _MOST_REPEATS and not re.search(r"\)[*+?{]|\(\?(?!:)", bare)
    return is_plain and is_quick and re.fullmatch(pattern, text, re.ASCII) is None


def _without_escapes(pattern: str) -> str:
    return re.sub(r"\\.", "_", pattern, flags=re.DOTALL)


def _depth(pattern: str, longest: int | None) -> float:
    """How many steps can be on Java's stack: one for each piece, as often as the groups around it are repeated."""
    most_often = float("inf") if longest is None else longest
    sizes: list[float] = [0]
    for piece in _PIECE.finditer(pattern):
        what, size = piece["what"], 2.0 if piece["repeat"] else 1.0
        if what.startswith("("):
            sizes.append(3)
            continue
        is_counted = what == ")" or (what.startswith(_WIDE) and (piece["repeat"] or "").startswith("{"))
        if what == ")":
            size = sizes.pop()
        sizes[-1] += size * (min(_most(piece), most_often) if is_counted else 1)
    return sizes[0]


def _least(piece: re.Match[str]) -> int:
    """How often a piece has to be there."""
    repeat = piece["repeat"] or "+"
    return int(repeat.strip("{}").partition(",")[0]) if repeat.startswith("{") else int(repeat == "+")


def _most(piece: re.Match[str]) -> float:
    """How often a piece may be repeated."""
    if piece["repeat"] is None:
        return 1
    if piece["repeat"] in "*+" or piece["most"] == "":
        return float("inf")
    return int(piece["most"] or piece["repeat"].strip("{}"))
