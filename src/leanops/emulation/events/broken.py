"""Texts that are not events, each with the rule that must refuse it."""

from collections.abc import Callable
from random import Random

_Break = Callable[[str, Random], str]

LARGEST_PAYLOAD = 1_000_000
LARGEST_RECORD = 1_024_000
MOST_KEYS = 5_000
MANY_KEYS = ",".join(f'"k{at}":{at}' for at in range(MOST_KEYS + 1))


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
    ("too_many_keys", lambda text, _: f"{{{MANY_KEYS},{text[1:]}"),
)
"""The rule, and how to break a text so that it applies."""
OVERSIZED = (("x" * LARGEST_RECORD, True), ("x" * LARGEST_PAYLOAD, False), ("é" * (LARGEST_PAYLOAD // 2), False))
"""What makes a text too large, and whether even the delivery stream refuses it; bytes count, not characters."""
