"""What texts look like: shapes that personal data often has, and digits that are not a number."""

import pyarrow as pa
import pyarrow.compute as pc

from leanops.transforms.keys import PERIOD

_GRAMMARS = {
    "is_email": r"\A[^@\s]+@[^@\s]+\.[A-Za-z]{2,}\z",
    "is_phone": r"\A\+[1-9][0-9]{0,3}[ 0-9()./-]{5,20}[0-9]\z",
    "is_iban": r"\A[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}\z",
    "is_card": r"\A[0-9](?:[ -]?[0-9]){12,18}\z",
    "period": PERIOD,
    "leading_zeros": r"\A0[0-9]+\z",
}
SHAPES = tuple(_GRAMMARS)


def shapes(texts: pa.Array) -> dict[str, pa.Array]:
    """For each shape whether a text has it."""
    flags = {name: pc.match_substring_regex(texts, grammar) for name, grammar in _GRAMMARS.items()}
    return {**flags, "is_card": _checked(texts, flags["is_card"])}


def _checked(texts: pa.Array, is_card: pa.Array) -> pa.Array:
    """Those of the texts that look like numbers of cards whose check digit is right."""
    if not pc.any(is_card).as_py():
        return is_card
    pairs = zip(texts.to_pylist(), is_card.to_pylist(), strict=True)
    return pa.array([bool(looks) and _passes_luhn(text) for text, looks in pairs], pa.bool_())


def _passes_luhn(text: str) -> bool:
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = (2 * digit - 9 if digit > 4 else 2 * digit for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
