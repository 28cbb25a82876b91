"""Columns of a schema file: limits, patterns and defaults that go together are taken, all others are refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.domain.errors import InvalidSchemaError
from leanops.domain.problems import Problem
from leanops.domain.schema.casts import DateFormat
from leanops.domain.schema.model import schema_from_json
from leanops.domain.schema.parse import type_from_text
from leanops.domain.schema.types import column_value, limit_value
from tests.oracle import casts
from tests.support.builders import column, schema, schema_text


def places(**members: Any) -> list[tuple[str, str]]:
    """Codes and pointers of what is said of a column."""
    return [(problem.code.value, problem.pointer) for problem in problems(**members)]


def problems(**members: Any) -> tuple[Problem, ...]:
    """What is said of a column that is refused."""
    with pytest.raises(InvalidSchemaError) as wrong:
        schema_from_json(schema_text(column(**members)), "schema.json")
    return wrong.value.problems


@pytest.mark.parametrize(
    ("kind", "rules", "place"),
    [
        ("INT", {"min": "much"}, "min"),
        ("DOUBLE", {"max": "Infinity"}, "max"),
        ("DATE", {"min": "2026-02-30"}, "min"),
        ("TIMESTAMP", {"max": "tomorrow"}, "max"),
        ("BIGINT", {"allowed": [True]}, "allowed/0"),
        ("TIMESTAMP", {"min": "2026-01-01"}, "min"),
        ("DATE", {"min": "20260101"}, "min"),
        ("DOUBLE", {"max": "1_000"}, "max"),
        ("DOUBLE", {"max": "1e999"}, "max"),
        ("BIGINT", {"max": "1e40"}, "max"),
        ("BOOLEAN", {"allowed": ["true", "yes"]}, "allowed/1"),
        ("DOUBLE", {"min": "1e-400"}, "min"),
        ("TIMESTAMP", {"min": "2026-01-01T00:00:00+19:00"}, "min"),
        ("TIMESTAMP", {"max": "9999-12-31T23:00:00-01:00"}, "max"),
    ],
)
def test_a_limit_that_cannot_be_compared_with_the_column_is_refused(kind: str, rules: object, place: str) -> None:
    assert places(type=kind, rules=rules) == [("bad_limit", f"/payload_columns/0/rules/{place}")]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing ): ("),
        ("[a", "missing ]: [a"),
        ("a**", "bad repetition operator: **"),
        ("a++", "bad repetition operator: ++"),
        ("(?=a)b", "invalid perl operator: (?="),
        ("(?<!a)b", "invalid perl operator: (?<"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        (r"\Qa", "missing ): "),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("((a{100}){100}){100}", "invalid repetition size: {100}"),
        ("x" * 1_001, "is longer than 1,000 characters"),
    ],
)
def test_a_pattern_that_re2_does_not_take_is_refused(
    pattern: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (found,) = problems(rules={"pattern": pattern})
    assert (found.code, found.pointer) == ("bad_pattern", "/payload_columns/0/rules/pattern")
    assert reason in found.message
    assert "look-around" in found.hint
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "members",
    [
        {"rules": {"pattern": "(?=a)b"}},
        {"rules": {"pattern": "x" * 1_001}},
        {"default": "xx", "rules": {"pattern": "(?:[A-Z]{2}-)+[0-9]+"}},
        {"rules": {"pattern": "[A-Za-z]+", "allowed": ["Gr\u00f6\u00dfe"]}},
    ],
)
def test_what_is_deployed_with_a_pattern_of_another_grammar_can_still_be_read(members: dict[str, Any]) -> None:
    text = schema_text(column(**members))
    with pytest.raises(InvalidSchemaError):
        schema_from_json(text, "schema.json")
    assert schema_from_json(text, "schema.json", is_kept=True)


@pytest.mark.parametrize(
    "pattern",
    [
        "[A-Z]{2}[0-9]+",
        "(?P<year>[0-9]{4})",
        "(?i)[a-z]+",
        r"\p{Lu}\p{L}*",
        "([A-Za-z0-9]|_)*",
        r"\S+@\S+\.\S+",
        "(((a|b)*)*)*",
        "(a+)+b",
        "a{0,500}a{0,500}",
    ],
)
def test_a_pattern_that_re2_takes_needs_no_length(pattern: str) -> None:
    assert schema(column(rules={"pattern": pattern}))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("INT", {"default": "7.5"}),
        ("INT", {"default": 2**31}),
        ("BIGINT", {"default": "9223372036854775808"}),
        ("DECIMAL(4,2)", {"default": "100"}),
        ("DECIMAL(4,2)", {"default": "0.001"}),
        ("DOUBLE", {"default": "1e999"}),
        ("BOOLEAN", {"default": "yes"}),
        ("DATE", {"default": "31/01/2026"}),
        ("DATE", {"default": "2026-01-31", "format": "dd/MM/yyyy"}),
        ("TIMESTAMP", {"default": "2026-01-31"}),
        ("TIMESTAMP", {"default": "2026-01-31T00:00Z", "format": "epoch_ms"}),
        ("TIMESTAMP", {"default": "1764547200000", "format": "epoch_s"}),
        ("TIMESTAMP", {"default": "253402300800", "format": "epoch_s"}),
        ("TIMESTAMP", {"default": "-62135596800001", "format": "epoch_ms"}),
        ("TIMESTAMP", {"default": "0.5", "format": "epoch_ms"}),
    ],
)
def test_a_default_that_its_own_column_cannot_hold_is_refused(kind: str, changes: dict[str, Any]) -> None:
    assert places(type=kind, **changes) == [("bad_default", "/payload_columns/0/default")]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("INT", {"default": 0, "rules": {"min": "0.5"}}),
        ("DECIMAL(4,2)", {"default": "5", "rules": {"max": "4.99"}}),
        ("DATE", {"default": "31/12/2025", "format": "dd/MM/yyyy", "rules": {"min": "2026-01-01"}}),
        ("TIMESTAMP", {"default": "0", "format": "epoch_s", "rules": {"min": "1970-01-01T00:00:00.000001Z"}}),
        ("STRING", {"default": "OLD", "rules": {"allowed": ["NEW"]}}),
        ("INT", {"default": 4, "rules": {"allowed": [1, 2.0]}}),
        ("STRING", {"default": "abc", "rules": {"max_length": 2}}),
        ("STRING", {"default": "abc", "rules": {"pattern": "[A-Z]+"}}),
        ("STRING", {"default": "\u00e9", "rules": {"pattern": "[a-z]"}}),
        ("STRING", {"default": "a" * 100, "rules": {"pattern": "(a+)+b"}}),
        ("STRING", {"default": "a\n", "rules": {"pattern": "a"}}),
        ("STRING", {"default": " ", "cde": True}),
    ],
)
def test_a_default_that_the_rules_of_its_column_refuse_is_a_contradiction(kind: str, changes: dict[str, Any]) -> None:
    assert places(type=kind, **changes) == [("contradiction", "/payload_columns/0/default")]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("INT", {"default": "7.0", "rules": {"allowed": [7], "min": 7, "max": 7}}),
        ("BOOLEAN", {"default": "TRUE", "rules": {"allowed": [True]}}),
        ("DATE", {"default": "31/01/2026", "format": "dd/MM/yyyy", "rules": {"max": "2026-01-31"}}),
        ("TIMESTAMP", {"default": "1", "format": "epoch_ms", "rules": {"min": "1970-01-01T01:00:00.001+01:00"}}),
        ("TIMESTAMP", {"default": "+2e12", "format": "epoch_ms", "rules": {"min": "2033-05-18T03:33:20Z"}}),
        ("TIMESTAMP", {"default": "253402300799", "format": "epoch_s"}),
        ("TIMESTAMP", {"default": "-62135596800000", "format": "epoch_ms"}),
        ("STRING", {"default": "x", "cde": True}),
        ("STRING", {"default": "\u00a0", "cde": True}),
        ("STRING", {"default": "a\n", "rules": {"pattern": r"a\s"}}),
        ("STRING", {"rules": {"allowed": []}}),
        ("BIGINT", {"rules": {"allowed": ["1", "2.5"]}}),
        ("INT", {"rules": {"max": "-1e30"}}),
    ],
)
def test_what_goes_together_is_no_problem(kind: str, changes: dict[str, Any]) -> None:
    assert schema(column(type=kind, **changes)).payload_columns[0].name == "c"


NUMBERS = st.from_regex(r"[+-]?[0-9]{1,40}(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
DAYS = st.from_regex(r"(0000|0001|1999|2024|9999)-(0[1-9]|1[0-3])-([0-2][0-9]|3[01])", fullmatch=True)
TIMES = st.from_regex(
    r"[T ]([01][0-9]|2[0-5]):[0-6][0-9](:[0-6][0-9](\.[0-9]{1,7})?)?(Z|[+-][01][0-9](:?[0-6]0)?)?", fullmatch=True
)
TEXTS = NUMBERS | DAYS | st.builds(str.__add__, DAYS, TIMES) | st.sampled_from(["true", "False", "yes", ""]) | st.text()
TYPES = ["STRING", "INT", "BIGINT", "DECIMAL(4,2)", "DECIMAL(38,0)", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"]


@settings(max_examples=500)
@given(st.sampled_from(TYPES), TEXTS)
def test_a_text_taken_for_a_default_is_one_that_the_casts_take(kind: str, text: str) -> None:
    if column_value(text, type_from_text(kind), DateFormat.ISO) is not None:
        assert casts.cast(text, kind) is not casts.FAILED


@given(st.sampled_from(["DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"]), TEXTS, TEXTS)
def test_limits_are_ordered_as_the_values_are(kind: str, low: str, high: str) -> None:
    first, second = (limit_value(text, type_from_text(kind)) for text in (low, high))
    if first is not None and second is not None:
        assert (first <= second) == (casts.cast(low, kind) <= casts.cast(high, kind))
