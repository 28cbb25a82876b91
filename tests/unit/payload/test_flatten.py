"""Flattening against the oracle: the same cells, kinds and rules for any payload, good or damaged."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.domain.failures import Rule
from leanops.domain.limits import Limits
from leanops.domain.payload.flatten import Cell, ParseError, flat
from tests.oracle import flat as oracle
from tests.oracle import vocabulary as words
from tests.oracle.streams import make_stream

DEFAULT = Limits()
SMALL = Limits(payload_bytes=4_000, depth=12, keys=80)
CANARY = "Kanarienvogel"


def found(payload: str, limits: Limits = DEFAULT) -> dict[str, Cell] | str:
    try:
        return flat(payload, limits).cells
    except ParseError as failure:
        return failure.rule.value


def expected(payload: str, limits: Limits = DEFAULT) -> dict[str, Cell] | str:
    leaves = oracle.flatten(payload, oracle.Limits(limits.payload_bytes, limits.depth, limits.keys))
    if isinstance(leaves, oracle.Bad):
        return leaves.rule
    return {path: Cell(text, leaves.kinds[path]) for path, text in leaves.cells.items()}


def failure_of(payload: str, limits: Limits = DEFAULT) -> ParseError:
    with pytest.raises(ParseError) as failed:
        flat(payload, limits)
    return failed.value


def json_texts() -> st.SearchStrategy[str]:
    """JSON texts of any shape, with equal keys and odd white space."""
    space = st.sampled_from(["", "", "", " ", "\n\t\r "])
    names = st.sampled_from([*words.ODD_KEYS, "a", "b", "c"]) | st.text(max_size=3).filter(str.isprintable)
    scalars = st.sampled_from(words.SCALARS) | st.floats(allow_nan=False, allow_infinity=False).map(repr)

    def containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        members = st.tuples(names.map(json.dumps), space, values).map(lambda parts: f"{parts[0]}{parts[1]}:{parts[2]}")
        objects = st.tuples(space, st.lists(members, max_size=5))
        arrays = st.tuples(space, st.lists(values, max_size=4))
        return objects.map(lambda parts: "{" + parts[0] + ",".join(parts[1]) + "}") | arrays.map(
            lambda parts: "[" + f"{parts[0]},".join(parts[1]) + "]"
        )

    return st.recursive(scalars, containers, max_leaves=20)


def payload_of(seed: int) -> str:
    return make_stream(Random(seed), 1, oracle.Limits(4_000, 12, 80))[0].json_payload


@given(st.integers(0, 2**32))
def test_a_generated_event_has_the_cells_kinds_and_rules_of_the_oracle(seed: int) -> None:
    payload = payload_of(seed)
    assert found(payload, SMALL) == expected(payload, SMALL)


@given(json_texts())
def test_any_json_text_has_the_cells_kinds_and_rules_of_the_oracle(payload: str) -> None:
    assert found(payload) == expected(payload)
    assert found(payload, Limits(depth=3, keys=4)) == expected(payload, Limits(depth=3, keys=4))


@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 9_999), st.integers(0, 2)), min_size=1, max_size=3),
    st.sampled_from([*'\\"0,\x00}u[-{]:.eE+ntf', "", "\ufeff", "\\ud800", "\\udc00", '"a":1,', "é", "/", "'"]),
)
def test_a_damaged_payload_breaks_the_rule_of_the_oracle(seed: int, places: list[tuple[int, int]], damage: str) -> None:
    payload = payload_of(seed)
    for place, removed in places:
        at = place % (len(payload) + 1)
        payload = payload[:at] + damage + payload[at + removed :]
    assert found(payload, SMALL) == expected(payload, SMALL)


@given(st.text(max_size=30))
def test_any_text_is_an_event_or_a_parse_error(payload: str) -> None:
    assert found(payload) == expected(payload)


@pytest.mark.parametrize(
    ("rule", "payloads"),
    [("not_json", words.NOT_JSON), ("trailing_text", words.TRAILING), ("not_object", words.NOT_OBJECT)],
)
def test_a_payload_that_is_no_json_object_names_its_rule(rule: str, payloads: list[str]) -> None:
    assert {payload: found(payload) for payload in payloads} == dict.fromkeys(payloads, rule)


@pytest.mark.parametrize("payload", ["\ud800", '{"a":"\ud800"}', '{"\udfff":1}', "\ud800" * 400_000])
def test_a_text_with_a_lone_surrogate_of_its_own_is_a_parse_error(payload: str) -> None:
    assert failure_of(payload).rule in (Rule.NOT_JSON, Rule.TOO_LARGE)


EVERYTHING = '{"é😀\\ud83d\\ude00":[ 1.10 ,{"x":"\\n"}],"a":{"b":-1.5e+10,"c":true,"d":null},"s":"\\u00e9\\\\\\"/é"} '


def test_a_payload_cut_anywhere_is_no_event_and_never_a_crash() -> None:
    assert isinstance(found(EVERYTHING), dict)
    end = len(EVERYTHING) - 1
    for at in range(len(EVERYTHING)):
        assert found(EVERYTHING[:at]) == expected(EVERYTHING[:at])
        assert isinstance(found(EVERYTHING[:at]), dict) == (at == end)


def test_a_payload_of_which_any_one_character_is_lost_reads_as_the_oracle_reads_it() -> None:
    for at in range(len(EVERYTHING)):
        damaged = EVERYTHING[:at] + EVERYTHING[at + 1 :]
        assert found(damaged) == expected(damaged), damaged


def test_scalars_keep_their_text_and_strings_are_unescaped() -> None:
    texts = ["1.10", "1e10", "12345678901234567890.12", "-0", "true", '"1.10"', '"\\u00e9\\n\\/\\ud83d\\ude00\\u0000"']
    cells = flat(" {" + ", ".join(f'"c{n}" :{text}' for n, text in enumerate(texts)) + "}\n", Limits()).cells
    assert list(cells.values()) == [
        *(Cell(text, "number") for text in texts[:4]),
        Cell("true", "boolean"),
        Cell("1.10", "string"),
        Cell("é\n/😀\x00", "string"),
    ]


def test_an_array_is_one_cell_with_its_text_verbatim() -> None:
    cells = flat('{"a":[ 1.0 ,\n{"x" : "\\u0041", "x":null} ],"b":[],"c":{"d":null,"e":{}}}', Limits()).cells
    assert cells == {"$.a": Cell('[ 1.0 ,\n{"x" : "\\u0041", "x":null} ]', "array"), "$.b": Cell("[]", "array")}


@pytest.mark.parametrize(
    ("payload", "cells"),
    [
        ('{"a":1,"a":"2"}', {"$.a": Cell("2", "string")}),
        ('{"a":{"b":1},"a":2}', {"$.a": Cell("2", "number")}),
        ('{"a":1,"a":{"b":2}}', {"$.a.b": Cell("2", "number")}),
        ('{"a":{"b":1},"a":{"c":2}}', {"$.a.c": Cell("2", "number")}),
        ('{"a":1,"\\u0061":null}', {}),
    ],
)
def test_the_last_of_equal_keys_wins_or_all_are_refused_where_the_setting_says_so(
    payload: str, cells: dict[str, Cell]
) -> None:
    assert found(payload) == cells
    assert found(payload, Limits(duplicate_keys="error")) == "duplicate_key"


@given(json_texts())
def test_refusing_equal_keys_changes_nothing_for_a_payload_that_has_none(payload: str) -> None:
    strictly = found(payload, Limits(duplicate_keys="error"))
    pairs: list[list[str]] = []
    json.loads(payload, object_pairs_hook=lambda found: pairs.append([key for key, _ in found]))
    repeats = any(len(set(keys)) < len(keys) for keys in pairs) and found(payload) != "not_object"
    assert strictly == ("duplicate_key" if repeats else found(payload))


@pytest.mark.parametrize(
    ("payload", "position"),
    [
        ('{"a":NaN}', 5),
        ('{"é":NaN}', 6),
        ("{'a':1}", 1),
        ('{"a":01}', 6),
        ('{"a":1}x', 7),
        ('{"é":1} \n {}', 11),
        ("[1] x", 4),
        ('{"a":1', 6),
        ("", 0),
        ("\ufeff{}", 0),
        ("[1]", 0),
    ],
)
def test_a_parse_error_says_at_which_byte(payload: str, position: int) -> None:
    assert failure_of(payload).position == position


@settings(max_examples=50)
@given(st.integers(0, 9_999), st.sampled_from(["", "\\", '"', "0", ",", "\x00", "}", "[", "\\ud800", "NaN"]))
def test_a_parse_error_tells_nothing_of_the_payload(place: int, damage: str) -> None:
    payload = f'{{"{CANARY}":"{CANARY}","a":[{{"{CANARY}":["{CANARY}",1.5]}}],"b":{{"{CANARY}":true}}}}'
    at = place % (len(payload) + 1)
    try:
        flat(payload[:at] + damage + payload[at + 1 :], Limits(duplicate_keys="error"))
    except ParseError as failure:
        said = f"{failure} {failure.message} {failure.args}"
        assert CANARY[:4] not in said
        assert "\n" not in said


def test_a_parse_error_of_every_rule_tells_nothing_of_the_payload() -> None:
    limits = Limits(payload_bytes=80, depth=2, keys=2, duplicate_keys="error")
    payloads = {
        Rule.TOO_LARGE: f'{{"a":"{CANARY * 7}"}}',
        Rule.TOO_DEEP: f'{{"{CANARY}":{{"{CANARY}":{{}}}}}}',
        Rule.TOO_MANY_KEYS: f'{{"{CANARY}":1,"b":2,"c":3}}',
        Rule.NOT_OBJECT: f'"{CANARY}"',
        Rule.TRAILING_TEXT: f"{{}} {CANARY}",
        Rule.NOT_JSON: CANARY,
        Rule.DUPLICATE_KEY: f'{{"{CANARY}":1,"{CANARY}":2}}',
    }
    failures = {rule: failure_of(payload, limits) for rule, payload in payloads.items()}
    assert {rule: failure.rule for rule, failure in failures.items()} == {rule: rule for rule in payloads}
    assert [failure for failure in failures.values() if CANARY[:4] in f"{failure}{failure.args}"] == []
