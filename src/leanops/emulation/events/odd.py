"""What is unusual about a valid event: members in front of its own, and the cells they must become."""

import json
from collections.abc import Callable
from typing import Any

from leanops.emulation.events.broken import LARGEST_PAYLOAD, MANY_KEYS, MOST_KEYS
from leanops.emulation.events.profile import KEY, PERIOD, Profile

_Odd = Callable[[Profile, str], tuple[str, dict[str, str]]]
_NESTED = f"{'[' * 63}{']' * 63}"
_BULK = f"[{{{MANY_KEYS}}}]"
_NUMBERS = {"zero": "-0", "long": "12345678901234567890", "exponent": "1e10", "exact": "1.10"}


def _member_twice(profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    """The last of two equal keys wins."""
    return f'"{profile.leaves[PERIOD].path}":"1999-01",', {}


def _object_twice(profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    """The last of two equal keys wins as a whole: nothing of the first is left."""
    outer = profile.leaves[KEY].path.split(".")[0]
    return f'"{outer}":{{"lost":"never seen"}},', {}


def _colliding_names(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    front = '"clash":{"userId":"a","userid":"b"},"clash_userid":"c","clash.userId":"d",'
    return front, {"$.clash.userId": "a", "$.clash.userid": "b", "$.clash_userid": "c", '$["clash.userId"]': "d"}


def _names_of_system_columns(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    front = '"message_id":"none","_file":"none","ingestion_ts":7,"__row_operation":"none","publish_time_day":"none",'
    names = ("message_id", "_file", "__row_operation", "publish_time_day")
    return front, {**{f"$.{name}": "none" for name in names}, "$.ingestion_ts": "7"}


def _names_that_are_not_words(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    front = '"":"empty","two words":"a blank","0":"a digit","größe":"a letter",'
    return front, {'$[""]': "empty", '$["two words"]': "a blank", '$["0"]': "a digit", '$["größe"]': "a letter"}


def _exact_numbers(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    members = ",".join(f'"{name}":{number}' for name, number in _NUMBERS.items())
    return f'"numbers":{{{members}}},', {f"$.numbers.{name}": number for name, number in _NUMBERS.items()}


def _deepest(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    return f'"nested":{_NESTED},', {"$.nested": _NESTED}


def _most_keys(_profile: Profile, text: str) -> tuple[str, dict[str, str]]:
    """Empty objects: keys that need no columns."""
    return "".join(f'"k{at}":{{}},' for at in range(MOST_KEYS - _keys(json.loads(text)))), {}


def _keys_in_an_array(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    """Keys inside arrays are not counted."""
    return f'"bulk":{_BULK},', {"$.bulk": _BULK}


def _largest(_profile: Profile, text: str) -> tuple[str, dict[str, str]]:
    return " " * (LARGEST_PAYLOAD - len(text.encode())), {}


def _keys(value: Any) -> int:
    return sum(1 + _keys(member) for member in value.values()) if isinstance(value, dict) else 0


ODD: tuple[_Odd, ...] = (
    _colliding_names,
    _names_of_system_columns,
    _names_that_are_not_words,
    _exact_numbers,
    _member_twice,
    _object_twice,
    _deepest,
    _most_keys,
    _keys_in_an_array,
)
LARGEST: _Odd = _largest
"""Apart from the others because it is a megabyte."""
