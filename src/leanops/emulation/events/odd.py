"""What is unusual about an event and no mistake: members in front of its own, with the cells they must give."""

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
    """Of two equal keys the last wins as a whole: nothing of the first is left."""
    outer = profile.leaves[KEY].path.split(".")[0]
    return f'"{outer}":{{"lost":"never seen"}},', {}


def _names_that_collide(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    front = '"clash":{"userId":"a","userid":"b"},"clash_userid":"c","clash.userId":"d",'
    return front, {"$.clash.userId": "a", "$.clash.userid": "b", "$.clash_userid": "c", '$["clash.userId"]': "d"}


def _names_of_system_columns(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    front = '"message_id":"none","_file":"none","ingestion_ts":7,"__row_operation":"none","publish_time_day":"none",'
    names = ("message_id", "_file", "__row_operation", "publish_time_day")
    return front, {**{f"$.{name}": "none" for name in names}, "$.ingestion_ts": "7"}


def _names_that_are_no_words(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    front = '"":"empty","two words":"a blank","0":"a digit","größe":"a letter",'
    return front, {'$[""]': "empty", '$["two words"]': "a blank", '$["0"]': "a digit", '$["größe"]': "a letter"}


def _numbers_to_be_kept(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    members = ",".join(f'"{name}":{number}' for name, number in _NUMBERS.items())
    return f'"numbers":{{{members}}},', {f"$.numbers.{name}": number for name, number in _NUMBERS.items()}


def _as_deep_as_can_be(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    return f'"nested":{_NESTED},', {"$.nested": _NESTED}


def _as_many_keys_as_can_be(_profile: Profile, text: str) -> tuple[str, dict[str, str]]:
    """Empty objects: keys that need no columns."""
    return "".join(f'"k{at}":{{}},' for at in range(MOST_KEYS - _keys(json.loads(text)))), {}


def _more_keys_in_an_array(_profile: Profile, _text: str) -> tuple[str, dict[str, str]]:
    """Those are not counted."""
    return f'"bulk":{_BULK},', {"$.bulk": _BULK}


def _as_large_as_can_be(_profile: Profile, text: str) -> tuple[str, dict[str, str]]:
    return " " * (LARGEST_PAYLOAD - len(text.encode())), {}


def _keys(value: Any) -> int:
    return sum(1 + _keys(member) for member in value.values()) if isinstance(value, dict) else 0


ODD: tuple[_Odd, ...] = (
    _names_that_collide,
    _names_of_system_columns,
    _names_that_are_no_words,
    _numbers_to_be_kept,
    _member_twice,
    _object_twice,
    _as_deep_as_can_be,
    _as_many_keys_as_can_be,
    _more_keys_in_an_array,
)
LARGEST: _Odd = _as_large_as_can_be
"""Apart, for it is a megabyte."""
