"""Patterns of schema files: regular expressions that Java and Python read alike, as far as one can tell."""

import re

LONGEST = 1_000
# Of a pattern without its escapes.
_NOT_JAVA = re.compile(r"\(\?([P#(]|[a-zA-Z]*[xaL])|\{(?![0-9]{1,9}(,[0-9]{0,9})?\})")
_NESTED_CLASS = re.compile(r"\[\^?\]?[^\]]*?(\[|&&|\|\||--|~~)")
_REPEATS = re.compile(r"[*+?]|\{[0-9]+,[0-9]*\}")
_MOST_REPEATS = 3
_LONGEST_TEXT = 200


def fault_of(pattern: str) -> str | None:
    """Why a pattern cannot be used, or None."""
    if len(pattern) > LONGEST:
        return f"is longer than {LONGEST:,} characters"
    bare = _without_escapes(pattern)
    if _NOT_JAVA.search(bare):
        return "has (?P, (?#, (?(, (?x, \\p or a { that counts nothing, which are not for Java and Python alike"
    if _NESTED_CLASS.search(bare):
        return "has [, &&, ||, -- or ~~ inside brackets, which are not for Java and Python alike"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as broken:
        return f"is no regular expression: {getattr(broken, 'msg', 'too large')}"
    return None


def surely_refuses(pattern: str, text: str) -> bool:
    """Whether a good pattern does not match the whole text; False where that cannot be told quickly and for sure."""
    bare = _without_escapes(pattern)
    is_plain = pattern.isascii() and text.isascii() and text.isprintable() and len(text) <= _LONGEST_TEXT
    # What repeats a group, or repeats too often, might run for years.
    is_quick = len(_REPEATS.findall(bare)) <= _MOST_REPEATS and not re.search(r"\)[*+?{]|\(\?(?!:)", bare)
    return is_plain and is_quick and re.fullmatch(pattern, text, re.ASCII) is None


def _without_escapes(pattern: str) -> str:
    return re.sub(r"\\.", "_", pattern, flags=re.DOTALL)
