"""The parts of the oracle (flattening, names, casts) against expectations written by hand from the specification."""

import hashlib
import hmac
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import vocabulary as words
from tests.oracle.casts import FAILED, cast, check, protect
from tests.oracle.flat import Bad, Flat, Limits, flatten
from tests.oracle.names import LONGEST, plain_name, register, segments
from tests.oracle.streams import make_stream

# Events made for these limits are within the default ones.
SMALL = Limits(payload_bytes=4_000, depth=12, keys=80)
NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)


def cells(payload: str) -> dict[str, str]:
    flat = flatten(payload, Limits())
    assert isinstance(flat, Flat), flat
    return flat.cells


# Flattening


def test_scalars_keep_their_text_and_strings_are_unescaped() -> None:
    texts = ["1.10", "1e10", "12345678901234567890.12", "-0", "true", '"1.10"', '"\\u00e9\\n\\/\\ud83d\\ude00"']
    flat = flatten(" {" + ", ".join(f'"c{n}" :{text}' for n, text in enumerate(texts)) + "}\n", Limits())
    assert list(flat.cells.values()) == ["1.10", "1e10", "12345678901234567890.12", "-0", "true", "1.10", "é\n/😀"]
    assert list(flat.kinds.values()) == ["number"] * 4 + ["boolean", "string", "string"]


def test_an_array_is_one_cell_with_its_text_verbatim() -> None:
    flat = flatten('{"a":[ 1.0 ,\n{"x" : "\\u0041"} ],"b":[]}', Limits())
    assert flat == Flat({"$.a": '[ 1.0 ,\n{"x" : "\\u0041"} ]', "$.b": "[]"}, {"$.a": "array", "$.b": "array"})


def test_null_and_empty_objects_give_no_cell() -> None:
    assert cells('{"a":null,"b":{},"c":{"d":null},"e":""}') == {"$.e": ""}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ('{"a":1,"a":2}', {"$.a": "2"}),
        ('{"a":{"b":1},"a":2}', {"$.a": "2"}),
        ('{"a":1,"a":{"b":2}}', {"$.a.b": "2"}),
        ('{"a":{"b":1},"a":{"c":2}}', {"$.a.c": "2"}),
        ('{"a":1,"a":null}', {}),
        ('{"a":1,"\\u0061":2}', {"$.a": "2"}),
    ],
)
def test_the_last_of_equal_keys_wins(payload: str, expected: dict[str, str]) -> None:
    assert cells(payload) == expected


def test_paths_are_canonical_segment_by_segment() -> None:
    payload = '{"event":{"userId":1},"a.b":2,"order":{"a b":{"x":3}},"":{"":4},"q\\"\\n":5,"é":6,"_1":7,"1a":8}'
    assert {text: path for path, text in cells(payload).items()} == {
        "1": "$.event.userId",
        "2": '$["a.b"]',
        "3": '$.order["a b"].x',
        "4": '$[""][""]',
        "5": '$["q\\"\\n"]',
        "6": '$["é"]',
        "7": "$._1",
        "8": '$["1a"]',
    }


@pytest.mark.parametrize(
    ("rule", "payloads"),
    [("not_json", words.NOT_JSON), ("trailing_text", words.TRAILING), ("not_object", words.NOT_OBJECT)],
)
def test_a_payload_that_is_no_json_object_names_its_rule(rule: str, payloads: list[str]) -> None:
    assert {payload: flatten(payload, Limits()) for payload in payloads} == dict.fromkeys(payloads, Bad(rule))


def test_document_limits_hold_up_to_and_including_their_value() -> None:
    limits = Limits(payload_bytes=40, depth=3, keys=4)
    for good in ['{"a":{"b":{}}}', '{"a":[{"b":1,"c":2,"d":3,"e":4}]}', '{"a":1,"b":{"c":null,"d":{}}}']:
        assert isinstance(flatten(good, limits), Flat), good
    assert flatten('{"a":{"b":{"c":{}}}}', limits) == Bad("too_deep")
    assert flatten('{"a":[[[]]]}', limits) == Bad("too_deep")
    assert flatten('{"a":1,"b":{"c":null,"d":{"e":1}}}', limits) == Bad("too_many_keys")
    assert isinstance(flatten('{"é":"' + "x" * 31 + '"}', limits), Flat)
    assert flatten('{"é":"' + "x" * 32 + '"}', limits) == Bad("too_large")


def test_only_keys_that_survive_equal_keys_are_counted() -> None:
    assert isinstance(flatten('{"a":{"x":1,"y":2},"a":1,"b":2}', Limits(keys=2)), Flat)


def test_checks_run_in_the_order_size_syntax_object_depth_keys() -> None:
    limits = Limits(payload_bytes=30, depth=1, keys=1)
    assert flatten("not json" * 10, limits) == Bad("too_large")
    assert flatten('{"a":[],"b":1} x', limits) == Bad("trailing_text")
    assert flatten("[[[]]]", limits) == Bad("not_object")
    assert flatten('{"a":[],"b":1}', limits) == Bad("too_deep")


def test_depth_is_data_and_never_a_crash() -> None:
    assert flatten('{"a":' * 20_000 + "1" + "}" * 20_000, Limits()) == Bad("too_deep")


def reference_cells(payload: str) -> dict[str, Any] | None:
    """The cells by the standard library's own parser, arrays as values; None if it is no object."""

    def refuse(text: str) -> None:
        raise ValueError(text)

    try:
        value = json.loads(payload, parse_int=str, parse_float=str, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return None
    found: dict[str, Any] = {}

    def walk(path: str, node: Any) -> None:
        if isinstance(node, dict):
            for key, child in node.items():
                dotted = key.isascii() and key.isidentifier()
                walk(path + (f".{key}" if dotted else f"[{json.dumps(key, ensure_ascii=False)}]"), child)
        elif node is not None:
            found[path] = {True: "true", False: "false"}[node] if isinstance(node, bool) else node

    walk("$", value)
    return found if isinstance(value, dict) else None


@given(
    st.integers(0, 2**32),
    st.integers(0, 10_000),
    st.sampled_from(["", "\\", '"', "0", ",", "\x00", "}", "u", "[", "-"]),
)
def test_a_damaged_payload_reads_as_the_standard_library_reads_it(seed: int, position: int, damage: str) -> None:
    payload = make_stream(Random(seed), 1, SMALL)[0].json_payload
    at = position % (len(payload) + 1)
    payload = payload[:at] + damage + payload[at + 1 :]
    flat, expected = flatten(payload, Limits()), reference_cells(payload)
    if isinstance(flat, Bad):
        assert expected is None, flat
        return
    loaded = {
        path: json.loads(text, parse_int=str, parse_float=str) if flat.kinds[path] == "array" else text
        for path, text in flat.cells.items()
    }
    assert loaded == expected


# Names


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$.event.userId", "event_userid"),
        ('$["a.b"]', "a_b"),
        ('$["1st"].x', "_1st_x"),
        ('$.a["1st"]', "a_1st"),
        ('$[""]', "_"),
        ('$.a[""].b', "a___b"),
        ('$["日本"]', "___48dff7"),
        ('$["x;--`\\""]', "x_____"),
        ("$." + "x" * 300, "x" * 128),
        ('$["' + "1" * 300 + '"]', "_" + "1" * 127),
    ],
)
def test_a_name_is_made_from_the_path(path: str, name: str) -> None:
    assert register({}, [path]) == {path: name}


def suffix(path: str, digits: int = 6) -> str:
    return "_" + hashlib.sha256(path.encode()).hexdigest()[:digits]


def test_of_colliding_paths_the_first_in_path_order_keeps_the_name() -> None:
    paths = ["$.userid", "$.userId", '$["user.id"]', "$.user_id", "$.user.id"]
    assert register({}, paths) == {
        "$.user.id": "user_id",
        "$.userId": "userid",
        "$.user_id": "user_id" + suffix("$.user_id"),
        "$.userid": "userid" + suffix("$.userid"),
        '$["user.id"]': "user_id" + suffix('$["user.id"]'),
    }


def test_a_registered_name_never_moves() -> None:
    assert register({"$.userid": "userid"}, ["$.userId", "$.userid"]) == {
        "$.userid": "userid",
        "$.userId": "userid" + suffix("$.userId"),
    }


def test_system_and_iceberg_names_are_taken() -> None:
    for key in ["message_id", "_batch_seq", "_file", "_row_id", "Record_Key"]:
        path = f"$.{key}"
        assert register({}, [path]) == {path: key.lower() + suffix(path)}


def test_a_suffix_grows_while_it_is_taken_and_stays_within_the_length() -> None:
    path = "$." + "x" * 300
    taken = {"$.a": "x" * 128, "$.b": "x" * 121 + suffix(path), "$.c": "x" * 120 + suffix(path, 7)}
    for used, name in [
        (1, "x" * 121 + suffix(path)),
        (2, "x" * 120 + suffix(path, 7)),
        (3, "x" * 119 + suffix(path, 8)),
    ]:
        assert register(dict(list(taken.items())[:used]), [path])[path] == name
        assert len(name) == LONGEST


def test_segments_are_read_back_from_every_path_of_the_vocabulary() -> None:
    payload = json.dumps({key: dict.fromkeys(words.ODD_KEYS, 1) for key in words.ODD_KEYS})
    assert [segments(path) for path in cells(payload)] == [
        [a, b] for a in reversed(words.ODD_KEYS) for b in words.ODD_KEYS
    ]


def test_nothing_in_the_vocabulary_meets_the_column_read_by_name() -> None:
    assert "note" not in {plain_name(path) for path in cells(json.dumps(dict.fromkeys(words.ODD_KEYS, 1)))}


# Casts, rules, masks


@pytest.mark.parametrize(
    ("type_name", "text", "value"),
    [
        ("INT", "1.0", 1),
        ("INT", "1.5", FAILED),
        ("INT", "10e-1", 1),
        ("INT", "007", 7),
        ("INT", "+7", 7),
        ("INT", "-2147483648", -(2**31)),
        ("INT", "2147483648", FAILED),
        ("INT", "0e9999999999999999999999", 0),
        ("INT", "1e9999999999999999999999", FAILED),
        ("INT", "1e-9999999999999999999999", FAILED),
        ("INT", " 1", FAILED),
        ("INT", "1\n", FAILED),
        ("INT", "", FAILED),
        ("INT", "1.", FAILED),
        ("INT", "\u0661", FAILED),
        ("INT", "1_0", FAILED),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("BIGINT", "-9223372036854775808", -(2**63)),
        ("BIGINT", "9223372036854775808", FAILED),
        ("DECIMAL(4,2)", "1.10", Decimal("1.10")),
        ("DECIMAL(4,2)", "1.100", Decimal("1.10")),
        ("DECIMAL(4,2)", "1.101", FAILED),
        ("DECIMAL(4,2)", "99.99", Decimal("99.99")),
        ("DECIMAL(4,2)", "100", FAILED),
        ("DECIMAL(4,2)", "9900e-2", Decimal("99.00")),
        ("DECIMAL(4,2)", "-0", Decimal(0)),
        ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)),
        ("DECIMAL(2,2)", "0.99", Decimal("0.99")),
        ("DECIMAL(2,2)", "1", FAILED),
        ("DOUBLE", "0.1", 0.1),
        ("DOUBLE", "1e400", FAILED),
        ("DOUBLE", "1e-400", FAILED),
        ("DOUBLE", "0e-400", 0.0),
        ("DOUBLE", "NaN", FAILED),
        ("DOUBLE", "Infinity", FAILED),
        ("BOOLEAN", "TrUe", True),
        ("BOOLEAN", "false", False),
        ("BOOLEAN", "1", FAILED),
        ("BOOLEAN", "true ", FAILED),
        ("DATE", "2024-02-29", date(2024, 2, 29)),
        ("DATE", "2023-02-29", FAILED),
        ("DATE", "0000-01-01", FAILED),
        ("DATE", "2024-2-29", FAILED),
        ("DATE", "2024-02-29T00:00:00Z", FAILED),
        ("TIMESTAMP", "2024-01-31T12:00:00Z", NOON),
        ("TIMESTAMP", "2024-01-31 12:00", NOON),
        ("TIMESTAMP", "2024-01-31T12:00:00.000000000", NOON),
        ("TIMESTAMP", "2024-01-31T12:00:00.000001000Z", NOON + timedelta(microseconds=1)),
        ("TIMESTAMP", "2024-01-31T12:00:00.5", NOON + timedelta(milliseconds=500)),
        ("TIMESTAMP", "2024-01-31T12:00:00.0000001Z", FAILED),
        ("TIMESTAMP", "2024-01-31T17:30:00+05:30", NOON),
        ("TIMESTAMP", "2024-01-31T04:00-0800", NOON),
        ("TIMESTAMP", "2024-01-31T13:00:00+01", NOON),
        ("TIMESTAMP", "2024-02-01T06:00:00+18:00", NOON),
        ("TIMESTAMP", "2024-02-01T06:01:00+18:01", FAILED),
        ("TIMESTAMP", "2024-01-31T12:00:00+00:60", FAILED),
        ("TIMESTAMP", "2024-01-31", FAILED),
        ("TIMESTAMP", "2024-01-31t12:00:00Z", FAILED),
        ("TIMESTAMP", "2024-01-31T12:00:00z", FAILED),
        ("TIMESTAMP", "2024-01-31T24:00:00Z", FAILED),
        ("TIMESTAMP", "2024-01-31T12:00:60Z", FAILED),
        ("TIMESTAMP", "2024-01-31T12:00:00.Z", FAILED),
        ("TIMESTAMP", "2024-01-31T12:00:00 Z", FAILED),
        ("TIMESTAMP", "2023-02-29T12:00:00Z", FAILED),
        ("STRING", " as is ", " as is "),
    ],
)
def test_a_cast_is_lossless_or_fails(type_name: str, text: str, value: Any) -> None:
    result = cast(text, type_name)
    assert result == value
    assert type(result) is type(value)


def column(type_name: str = "STRING", **rest: Any) -> dict[str, Any]:
    return {"name": "c", "path": "$.c", "type": type_name} | rest


@pytest.mark.parametrize(
    ("declared", "text", "value", "broken"),
    [
        (column(), None, None, []),
        (column(cde=True), None, None, ["cde_missing"]),
        (column(cde=True), " \t\n\x0b\f\r", None, ["cde_missing"]),
        (column(cde=True), "\u00a0", "\u00a0", []),
        (column("INT", cde=True), " ", None, ["cde_missing"]),
        (column("INT"), "", None, ["cast_failed"]),
        (column(cde=True, default="x"), None, "x", []),
        (column(cde=True, default="x"), " ", None, ["cde_missing"]),
        (column("INT", default=3), None, 3, []),
        (column("INT", default="0", rules={"min": 1}), None, 0, ["rule_min"]),
        (column("INT", rules={"min": 1, "max": 5}), "1", 1, []),
        (column("INT", rules={"min": 1, "max": 5}), "6", 6, ["rule_max"]),
        (column("INT", rules={"min": 0.5}), "0", 0, ["rule_min"]),
        (column("INT", rules={"min": 1}), "x", None, ["cast_failed"]),
        (column("DECIMAL(9,2)", rules={"max": 0.1}), "0.10", Decimal("0.1"), []),
        (column("DOUBLE", rules={"max": 0.1}), "0.1", 0.1, []),
        (column("DATE", rules={"min": "2024-01-01"}), "2023-12-31", date(2023, 12, 31), ["rule_min"]),
        (column("TIMESTAMP", rules={"max": "2024-01-31T12:00Z"}), "2024-01-31T13:00+01", NOON, []),
        (column(rules={"allowed": ["1"]}), "1.0", "1.0", ["rule_allowed"]),
        (column("INT", rules={"allowed": [1]}), "1.0", 1, []),
        (column(rules={"pattern": "a+"}), "aab", "aab", ["rule_pattern"]),
        (column(rules={"pattern": "a+"}), "a\n", "a\n", ["rule_pattern"]),
        (column(rules={"pattern": "a+[*+]b+"}), f"{'a' * 9_999}*b", f"{'a' * 9_999}*b", []),
        (column(rules={"pattern": "a+b+", "max_length": 9}), "a" * 1_001, "a" * 1_001, ["rule_length"]),
        (column(rules={"pattern": "a|b", "min_length": 3}), "ab", "ab", ["rule_pattern", "rule_length"]),
        (column(rules={"max_length": 1}), "😀", "😀", []),
        (column(rules={"min_length": 1}), None, None, []),
    ],
)
def test_a_cell_takes_its_default_then_cde_then_cast_then_rules(
    declared: dict[str, Any], text: str | None, value: Any, broken: list[str]
) -> None:
    assert check(declared, text) == (value, broken)


def test_masks_show_what_the_schema_allows() -> None:
    digest = hmac.new(b"key", "é@x".encode(), hashlib.sha256).hexdigest()
    assert check(column(pii="hmac"), "é@x", b"key") == (digest, [])
    assert [protect("mask", text, text, b"") for text in ["", "1234", "12345", "123456😀"]] == [
        "",
        "****",
        "*2345",
        "***456😀",
    ]
    assert check(column(pii="drop", cde=True), "x") == (None, [])
    assert check(column(pii="hmac"), None, b"key") == (None, [])
    assert check(column(pii="mask", rules={"max_length": 2}), "12345") == ("*2345", ["rule_length"])
