"""Patterns of schema files: regular expressions of RE2, which takes a time that grows with the text and no faster."""

from functools import cache
from typing import Any

import re2

LONGEST = 1_000
HINT = "write it as RE2 does: without look-around, back-references, possessive repeats and counts above 1,000"


def fault_of(pattern: str) -> str | None:
    """Why a pattern cannot be used, or None."""
    if len(pattern) > LONGEST:
        return f"is longer than {LONGEST:,} characters"
    try:
        # By itself first: the message then quotes the pattern as it was written.
        _compiled(pattern)
        _compiled(whole(pattern))
    except re2.error as broken:
        return f"is not a regular expression: {broken.args[0].decode()}"
    return None


def whole(pattern: str) -> str:
    """The pattern for the whole text."""
    return rf"\A(?:{pattern})\z"


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches the whole text."""
    return _compiled(whole(pattern)).search(text) is not None


@cache
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    # Its own log would go to standard error.
    options.log_errors = False
    return re2.compile(pattern, options)
