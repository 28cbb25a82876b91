"""The law of layouts: whatever is expected, a payload has exactly the cells that flattening it gives."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.limits import Limits
from leanops.domain.payload.fast_flatten import Layout, learn
from leanops.domain.payload.flatten import KINDS, Cell, Kind, ParseError, flat
from leanops.domain.payload.paths import path_of
from tests.oracle import flat as oracle
from tests.oracle import vocabulary as words
from tests.oracle.streams import make_stream

Result = dict[str, Cell] | str
SMALL = Limits(payload_bytes=4_000, depth=12, keys=80)
KIND = st.sampled_from(KINDS)
NAMES = st.sampled_from([*words.ODD_KEYS, *words.NESTED_KEYS, "order", "customer", "note", "d", "_metadata"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda segments: path_of(tuple(segments)))


def plainly(payload: str, limits: Limits) -> Result:
    try:
        return flat(payload, limits).cells
    except ParseError as failure:
        return failure.rule.value


def through(expected: Mapping[str, Kind], payloads: Sequence[str], limits: Limits) -> list[Result]:
    """What comes out when a layout reads what it can and the rest takes the long way."""
    layout = Layout(expected, limits)
    columns, odd = layout.read(payloads)
    assert odd == sorted(set(odd))
    assert [len(column) for column in columns] == [len(payloads)] * len(expected)
    assert all(column[position] is None for column in columns for position in odd)
    results: list[Result] = []
    for position, payload in enumerate(payloads):
        read = {
            path: Cell(column[position], kind)
            for path, kind, column in zip(layout.paths, layout.kinds, columns, strict=True)
            if column[position] is not None
        }
        results.append(plainly(payload, limits) if position in odd else read)
    return results


def payloads_of(seed: int, size: int) -> list[str]:
    rows = make_stream(Random(seed), size, oracle.Limits(SMALL.payload_bytes, SMALL.depth, SMALL.keys))
    return [row.json_payload for row in rows]


def learned(payloads: Sequence[str]) -> dict[str, Kind]:
    return learn([flat(payload, SMALL) for payload in payloads if isinstance(plainly(payload, SMALL), dict)])


@given(st.integers(0, 2**32), st.dictionaries(PATHS, KIND, max_size=8))
def test_any_expectation_gives_the_cells_of_flattening(seed: int, expected: dict[str, Kind]) -> None:
    payloads = payloads_of(seed, 4)
    assert through(expected, payloads, SMALL) == [plainly(payload, SMALL) for payload in payloads]


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_what_other_events_taught_gives_the_cells_of_flattening(taught: int, seed: int) -> None:
    payloads = payloads_of(seed, 5)
    expected = learned([*payloads_of(taught, 5), *payloads[:2]])
    assert through(expected, payloads, SMALL) == [plainly(payload, SMALL) for payload in payloads]


@given(st.data())
def test_a_payload_that_is_damaged_or_of_another_kind_gives_the_cells_of_flattening(data: st.DataObject) -> None:
    payloads = payloads_of(data.draw(st.integers(0, 2**32)), 3)
    expected = {path: data.draw(KIND | st.just(kind)) for path, kind in learned(payloads).items()}
    at = data.draw(st.integers(0, len(payloads[0])))
    damage = data.draw(st.sampled_from(["", "\\", '"', "0", ",", "\x00", "}", "[", "null", "1", '"x"', "{}"]))
    payloads.append(payloads[0][:at] + damage + payloads[0][at + 1 :])
    assert through(expected, payloads, SMALL) == [plainly(payload, SMALL) for payload in payloads]


@given(st.integers(0, 2**32))
def test_an_event_has_the_same_cells_alone_and_in_company(seed: int) -> None:
    payloads = payloads_of(seed, 5)
    expected = learned(payloads)
    together = through(expected, payloads, SMALL)
    assert together == [through(expected, [payload], SMALL)[0] for payload in payloads]
    assert together == through({}, payloads, SMALL)


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":1,"a":"x"}',
        '{"a":"x","a":1}',
        '{"o":{"x":1},"o":{"y":2}}',
        '{"o":{"x":1},"o":null}',
        '{"o":null,"o":{"x":1}}',
        '{"o":[],"o":{"x":1}}',
        '{"\\u0061":1,"\\u006f":{"\\u0078":2}}',
        '{"a":null,"o":{}}',
        '{"o":{"x":{}}}',
        '{"a":[],"o":{"x":[ ]}}',
        '{"a": true , "o" : { "x" : -0.0 } } ',
        '{"a":nul}',
        '{"o":{"x":"\\ud800"}}',
        '{"o":{"x":[1,]}}',
        '{"a":1} ',
        '{"a":1}x',
        "{}",
        "[]",
        "",
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_keys_nulls_and_other_kinds_are_read_as_flattening_reads_them(payload: str, kind: Kind) -> None:
    for expected in ({"$.a": kind, "$.o.x": kind, "$.o.y": kind}, {"$.a": kind, "$.o": kind}, {"$.o.x.z": kind}):
        assert through(expected, [payload, '{"a":1}', payload], Limits()) == [
            plainly(payload, Limits()),
            {"$.a": Cell("1", "number")},
            plainly(payload, Limits()),
        ]


@pytest.mark.parametrize("key", words.ODD_KEYS)
@pytest.mark.parametrize("above", [(), ("o",)])
def test_any_key_may_be_expected(key: str, above: tuple[str, ...]) -> None:
    path = path_of((*above, key))
    payloads = [row for row in payloads_of(7, 20) if isinstance(plainly(row, SMALL), dict)]
    for kind in KINDS:
        assert through({path: kind, "$.b": kind}, payloads, SMALL) == [plainly(row, SMALL) for row in payloads]


def test_events_of_the_expected_shape_do_not_take_the_long_way() -> None:
    payload = '{"id":"x","order":{"n":1.10,"ok":true,"tags":[1, 2],"in":{"x":"y"}},"größe":2}'
    less = '{"order":{"n":2,"ok":null,"in":{}},"id":null}'
    columns, odd = Layout(learned([payload]), Limits()).read([payload, less, "{}"])
    assert odd == []
    assert columns == [
        ["x", None, None],
        ["y", None, None],
        ["1.10", "2", None],
        ["true", None, None],
        ["[1, 2]", None, None],
        ["2", None, None],
    ]


def test_limits_hold_for_a_layout_as_for_flattening() -> None:
    deep, wide = '{"a":{"b":{"c":1}}}', '{"a":1,"b":2,"c":3}'
    large = '{"a":"' + "é" * 10 + '"}'
    payloads = [deep, wide, large, '{"a":[[[]]]}', '{"b":1,"b":2}', "{}"]
    expected = {"$.a.b.c": "number", "$.a": "string", "$.b": "number", "$.c": "number"}
    for limits in (Limits(depth=2), Limits(keys=2), Limits(payload_bytes=20), Limits(duplicate_keys="error")):
        results = through(expected, payloads, limits)
        assert results == [plainly(payload, limits) for payload in payloads]
        assert any(isinstance(result, str) for result in results)


def test_no_payloads_and_no_expectation_give_no_columns() -> None:
    assert Layout({}, Limits()).read([]) == ([], [])
    assert Layout({"$.a": "string"}, Limits()).read([]) == ([[]], [])
    assert Layout({}, Limits()).read(["{}", "x"]) == ([], [1])


def test_a_path_is_learned_with_its_commonest_kind_in_path_order() -> None:
    samples = [flat(text, Limits()) for text in ('{"b":1,"a":"x"}', '{"b":"1"}', '{"b":2,"c":[]}', '{"a":true}')]
    assert learn(samples) == {"$.a": "boolean", "$.b": "number", "$.c": "array"}
    assert list(learn(samples)) == ["$.a", "$.b", "$.c"]
    assert learn(samples) == learn(samples[::-1])


def test_a_member_that_is_always_null_is_learned_and_does_not_cost_the_long_way() -> None:
    payloads = ['{"a":1,"b":null,"c":{"d":null}}', '{"a":2,"b":null,"c":{"d":null}}']
    expected = learn([flat(text, Limits()) for text in payloads])
    assert expected == {"$.a": "number", "$.b": "null", "$.c.d": "null"}
    columns, odd = Layout(expected, Limits()).read([*payloads, '{"a":3,"b":"now","c":{"d":null}}'])
    assert odd == [2]
    assert columns == [["1", "2", None], [None] * 3, [None] * 3]
