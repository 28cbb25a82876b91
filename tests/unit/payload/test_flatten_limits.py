"""The limits of a document: the last that is allowed, the first that is not, and what is told first."""

from collections.abc import Callable

import pytest

from leanops.domain.failures import Rule
from leanops.domain.limits import Limits
from leanops.domain.payload.flatten import ParseError, flat

DEFAULT = Limits()


def rule_of(payload: str, limits: Limits = DEFAULT) -> Rule | None:
    try:
        flat(payload, limits)
    except ParseError as failure:
        return failure.rule
    return None


def objects(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def arrays(depth: int) -> str:
    """An object around arrays, `depth` levels in all."""
    return '{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


def members(count: int) -> str:
    return ",".join(f'"k{n}":null' for n in range(count))


@pytest.mark.parametrize("filler", ["x", "é", "😀", "\\u0041"])
def test_a_payload_of_exactly_the_limit_in_bytes_is_read_and_one_byte_more_is_too_large(filler: str) -> None:
    frame = '{"pad":"","a":""}'
    count = (1_000_000 - len(frame)) // len(filler.encode())
    rest = 1_000_000 - len(frame) - count * len(filler.encode())
    good = f'{{"pad":"{"x" * rest}","a":"{filler * count}"}}'
    assert len(good.encode()) == 1_000_000
    assert rule_of(good) is None
    assert rule_of(good + " ") == Rule.TOO_LARGE


def test_size_is_told_before_anything_else_is_looked_at() -> None:
    assert rule_of("not json" * 200_000) == Rule.TOO_LARGE
    assert rule_of("[" * 1_000_001) == Rule.TOO_LARGE


@pytest.mark.parametrize("make", [objects, arrays])
def test_a_payload_of_exactly_the_depth_limit_is_read_and_one_level_more_is_too_deep(
    make: Callable[[int], str],
) -> None:
    assert rule_of(make(64)) is None
    assert rule_of(make(65)) == Rule.TOO_DEEP
    assert rule_of(make(900)) == Rule.TOO_DEEP
    assert rule_of(make(10_000)) == Rule.TOO_DEEP


def test_ten_thousand_levels_that_never_close_are_a_parse_error_and_no_crash() -> None:
    assert rule_of('{"a":' * 10_000) in (Rule.TOO_DEEP, Rule.NOT_JSON)
    assert rule_of("[" * 10_000) in (Rule.TOO_DEEP, Rule.NOT_JSON)
    assert rule_of('{"a":' + "[" * 100_000) in (Rule.TOO_DEEP, Rule.NOT_JSON)


def test_brackets_inside_strings_are_not_depth() -> None:
    text = "[{" * 200 + '\\"' + "]}" * 200
    assert rule_of(f'{{"{text}":"{text}","a":["{text}"]}}') is None


def test_many_brackets_side_by_side_are_not_depth() -> None:
    assert rule_of('{"a":[' + ",".join(["[{}]"] * 1_000) + "]}") is None
    assert rule_of('{"b":[],"c":{},' + arrays(64)[1:]) is None
    assert rule_of('{"b":[],"c":{},' + arrays(65)[1:]) == Rule.TOO_DEEP


def test_exactly_the_limit_of_keys_is_read_and_one_more_is_too_many() -> None:
    assert rule_of("{" + members(5_000) + "}") is None
    assert rule_of("{" + members(5_001) + "}") == Rule.TOO_MANY_KEYS
    assert rule_of('{"o":{' + members(4_999) + "}}") is None
    assert rule_of('{"o":{' + members(5_000) + "}}") == Rule.TOO_MANY_KEYS


def test_keys_inside_arrays_and_lost_equal_keys_are_not_counted() -> None:
    assert rule_of('{"a":[{' + members(5_000) + "}, {" + members(5_000) + "}]}") is None
    assert rule_of("{" + members(5_000) + "," + members(5_000) + "}") is None
    assert rule_of('{"a":{' + members(5_000) + '},"a":{' + members(4_999) + "}}") is None


def test_depth_is_told_before_keys_and_syntax_before_both() -> None:
    limits = Limits(depth=1, keys=1)
    assert rule_of('{"a":[],"b":1} x', limits) == Rule.TRAILING_TEXT
    assert rule_of('{"a":[],"b":tru}', limits) == Rule.NOT_JSON
    assert rule_of("[[[]]]", limits) == Rule.NOT_OBJECT
    assert rule_of('{"a":[],"b":1}', limits) == Rule.TOO_DEEP
    assert rule_of('{"a":2,"b":1}', limits) == Rule.TOO_MANY_KEYS


def test_equal_keys_are_refused_however_deep_they_lie() -> None:
    limits = Limits(duplicate_keys="error")
    assert rule_of(objects(63).replace("1", '{"x":1,"x":1}'), limits) == Rule.DUPLICATE_KEY
    assert rule_of('{"a":[[{"x":1,"y":{"z":1,"z":1}}]]}', limits) == Rule.DUPLICATE_KEY
    assert rule_of(objects(10_000), limits) == Rule.TOO_DEEP
