"""Texts that are no event, each with the rule that must refuse it."""

from collections.abc import Callable
from random import Random

_Break = Callable[[str, Random], str]

LARGEST_PAYLOAD = 1_000_000
LARGEST_RECORD = 1_024_000


_MANY_KEYS = ",".join(f'"k{at}":{at}' for at in range(5_001))


def _cut(text: str, random: Random) -> str:
    return text[: random.randint(1, len(text) - 1)]


BROKEN: tuple[tuple[str, _Break], ...] = (
    ("not_json", _cut),
    ("not_json", lambda text, _: text.replace('"', "'")),
    ("not_json", lambda text, _: f'{{"value":NaN,{text[1:]}'),
    ("not_json", lambda text, _: f'{{"value":007,{text[1:]}'),
    ("not_json", lambda text, _: f'{{"value":"\\ud800",{text[1:]}'),
    ("not_json", lambda text, _: f'{{"value":"tab\there",{text[1:]}'),
    ("not_json", lambda text, _: f"{text[:-1]},}}"),
    ("not_json", lambda text, _: f'{{"list":[1,,2],{text[1:]}'),
    ("not_json", lambda _text, _: ""),
    ("trailing_text", lambda text, _: f"{text} and more"),
    ("trailing_text", lambda text, _: f"{text}{text}"),
    ("not_object", lambda text, _: f"[{text}]"),
    ("not_object", lambda _text, _: "null"),
    ("not_object", lambda _text, random: str(random.randint(1, 9_999))),
    ("too_deep", lambda text, _: f'{{"deep":{"[" * 70}{"]" * 70},{text[1:]}'),
    ("too_many_keys", lambda text, _: f"{{{_MANY_KEYS},{text[1:]}"),
)
"""Rule and how to break a text so that it applies."""


def broken(text: str, random: Random) -> tuple[str, str]:
    """A text made of a right one that is none, and the rule that says why."""
    rule, change = random.choice(BROKEN)
    return change(text, random), rule


def oversized(text: str, random: Random) -> tuple[str, bool]:
    """A text that is too large, and whether it is so large that not even the delivery stream takes it."""
    for_stream = random.random() < 0.5
    size = LARGEST_RECORD if for_stream else LARGEST_PAYLOAD
    return f'{{"filler":"{"x" * size}",{text[1:]}', for_stream
