"""Upper bounds of cut texts, as PyIceberg writes them into manifests."""

import sys

from pyiceberg.io import pyarrow

_BEFORE_SURROGATES, _AFTER_SURROGATES = 0xD7FF, 0xE000


def upper_bound(text: str, length: int | None) -> str | None:
    """The least text of at most N characters that is not less than the text; None where there is none."""
    if length is None or len(text) <= length:
        return text
    for at in range(length - 1, -1, -1):
        code = ord(text[at])
        if code < sys.maxunicode:
            return text[:at] + chr(_AFTER_SURROGATES if code == _BEFORE_SURROGATES else code + 1)
    return None


def install() -> None:
    """Have PyIceberg use it: its own makes half a character of U+D7FF, which no file can hold, and fails."""
    pyarrow.truncate_upper_bound_text_string = upper_bound  # type: ignore[assignment, attr-defined]
