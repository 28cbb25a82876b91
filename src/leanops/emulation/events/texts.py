"""Changes to the text of an event: those that a rule must refuse, and unusual ones that are still valid."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from leanops.emulation.events.profile import KEY, PERIOD, Profile

LARGEST_PAYLOAD = 1_000_000
LARGEST_RECORD = 1_024_000
MOST_KEYS = 5_000
_MANY_KEYS = ",".join(f'"k{at}":{at}' for at in range(MOST_KEYS + 1))

BROKEN: tuple[tuple[str, Callable[[str, Random], str]], ...] = (
    ("not_json", lambda text, random: text[: random.randint(1, len(text) - 1)]),
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
"""The rule, and how to break a text so that it applies."""
OVERSIZED = (("x" * LARGEST_RECORD, True), ("x" * LARGEST_PAYLOAD, False), ("é" * (LARGEST_PAYLOAD // 2), False))
"""What makes a text too large, and whether even the delivery stream refuses it; bytes count, not characters."""


def _keys(value: Any) -> int:
    """The number of keys in a JSON value, outside arrays."""
    return sum(1 + _keys(member) for member in value.values()) if isinstance(value, dict) else 0


_NESTED = f"{'[' * 63}{']' * 63}"
_BULK = f"[{{{_MANY_KEYS}}}]"
ODD: dict[str, Callable[[Profile, str], tuple[str, dict[str, str]]]] = {
    "names that collide": lambda _profile, _text: (
        '"clash":{"userId":"a","userid":"b"},"clash_userid":"c","clash.userId":"d",',
        {"$.clash.userId": "a", "$.clash.userid": "b", "$.clash_userid": "c", '$["clash.userId"]': "d"},
    ),
    "names of system columns": lambda _profile, _text: (
        '"message_id":"none","_file":"none","ingestion_ts":7,"__row_operation":"none","publish_time_day":"none",',
        dict.fromkeys(("$.message_id", "$._file", "$.__row_operation", "$.publish_time_day"), "none")
        | {"$.ingestion_ts": "7"},
    ),
    "names that are not words": lambda _profile, _text: (
        '"":"empty","two words":"a blank","0":"a digit","größe":"a letter",',
        {'$[""]': "empty", '$["two words"]': "a blank", '$["0"]': "a digit", '$["größe"]': "a letter"},
    ),
    "exact numbers": lambda _profile, _text: (
        '"numbers":{"zero":-0,"long":12345678901234567890,"exponent":1e10,"exact":1.10},',
        {
            **{"$.numbers.zero": "-0", "$.numbers.long": "12345678901234567890"},
            **{"$.numbers.exponent": "1e10", "$.numbers.exact": "1.10"},
        },
    ),
    # The last of two equal keys wins, and as a whole: nothing of the first is left.
    "a member twice": lambda profile, _text: (f'"{profile.leaves[PERIOD].path}":"1999-01",', {}),
    "an object twice": lambda profile, _text: (
        f'"{profile.leaves[KEY].path.split(".")[0]}":{{"lost":"never seen"}},',
        {},
    ),
    "the deepest": lambda _profile, _text: (f'"nested":{_NESTED},', {"$.nested": _NESTED}),
    # Empty objects are keys that need no columns.
    "the most keys": lambda _profile, text: (
        "".join(f'"k{at}":{{}},' for at in range(MOST_KEYS - _keys(json.loads(text)))),
        {},
    ),
    # Keys inside arrays are not counted.
    "keys in an array": lambda _profile, _text: (f'"bulk":{_BULK},', {"$.bulk": _BULK}),
    "the largest": lambda _profile, text: (" " * (LARGEST_PAYLOAD - len(text.encode())), {}),
}
"""What is unusual → from a profile and a valid text, members to put in front and the cells they must become."""
