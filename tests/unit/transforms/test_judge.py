"""Judging: values and broken rules are the model's, and a new type or rule is one entry."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import create_model

from leanops.domain.schema.model import PayloadColumn, Rules
from leanops.domain.schema.rules import RULES
from leanops.domain.schema.types import TYPES
from leanops.transforms.judge import Source, judged
from tests.oracle.casts import check
from tests.support.builders import column, schema
from tests.support.verify import same_value
from tests.unit.schema.new_entries import FLOAT_TYPE, MULTIPLE_OF, UUID_TYPE

SECRET = b"a key for tests"
SAMPLE = "123e4567-e89b-12d3-a456-426614174000"


def rows_of(texts: list[str | None], rescued: list[str | None] | None = None) -> pa.RecordBatch:
    """Rows of Standardized with a key and one column."""
    nothing = [None] * len(texts)
    columns = {"a": texts, "idempotency_key": ["k"] * len(texts), "_rescued": rescued or nothing}
    return pa.RecordBatch.from_pydict({name: pa.array(cells, pa.string()) for name, cells in columns.items()})


def verdicts(declared: PayloadColumn, texts: list[str | None]) -> list[tuple[Any, list[str]]]:
    """Of each text, its value and the rules it breaks."""
    (values,), failures = judged(rows_of(texts), [Source(declared, "a")], SECRET)
    rules = [[failure["rule"] for failure in found or ()] for found in failures.to_pylist()]
    return list(zip(values.to_pylist(), rules, strict=True))


def declared(**members: Any) -> PayloadColumn:
    return schema(column("a", **members)).payload_columns[0]


def test_rows_are_cast_by_a_new_entry_of_the_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPES, "UUID", UUID_TYPE)
    found = verdicts(declared(type="UUID"), [SAMPLE, "x", SAMPLE.upper()])
    assert found == [(SAMPLE, []), (None, ["cast_failed"]), (None, ["cast_failed"])]


def test_rows_are_cast_to_an_iceberg_type_that_is_new_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPES, "FLOAT", FLOAT_TYPE)
    found = verdicts(declared(type="FLOAT", rules={"max": "8"}), ["7.5", "-0", "8.25", "x", None])
    assert found == [(7.5, []), (0.0, []), (8.25, ["rule_max"]), (None, ["cast_failed"]), (None, [])]


def test_rows_are_judged_by_a_new_entry_of_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "multiple_of", MULTIPLE_OF)
    # The model has a member for each rule there was when it was imported.
    with_more: Any = create_model("Rules", __base__=Rules, multiple_of=(str | None, None))
    stepped = declared(type="DECIMAL(18,2)").model_copy(update={"rules": with_more(multiple_of="0.05")})
    found = verdicts(stepped, ["7.05", "7.02", "much", None])
    assert found == [
        (Decimal("7.05"), []),
        (Decimal("7.02"), ["rule_multiple_of"]),
        (None, ["cast_failed"]),
        (None, []),
    ]


LIMITED = [
    declared(cde=True),
    declared(cde=True, type="INT", rules={"min": "0.5", "max": 1e9}),
    declared(type="INT", rules={"min": "-1e30", "max": "1e30", "allowed": ["7", "7.5", "1e30"]}),
    declared(type="INT", rules={"min": "1e30"}),
    declared(type="DECIMAL(18,2)", rules={"min": "0.001", "max": "99.999", "max_length": 5}),
    declared(type="DECIMAL(4,2)", rules={"max": "100"}),
    declared(type="DOUBLE", rules={"min": "0", "allowed": ["0", "1.5", "1e3"]}),
    declared(type="BOOLEAN", rules={"allowed": ["TRUE"]}),
    declared(type="DATE", rules={"min": "2026-01-01", "max": "2026-12-31"}),
    declared(type="TIMESTAMP", rules={"min": "2026-01-01T00:00:00+01:00", "allowed": ["2026-01-31T12:00:00Z"]}),
    declared(type="TIMESTAMP", format="epoch_s", rules={"max": "1970-01-01T00:00:07Z"}),
    declared(rules={"min": "b", "max": "c", "min_length": 1, "max_length": 3}),
    declared(rules={"allowed": ["a", "\u00e9"]}, default="a"),
    declared(rules={"allowed": []}),
    declared(pii="hmac", rules={"max_length": 3}),
    declared(pii="mask", cde=True),
    declared(pii="drop", type="INT"),
    declared(rules={"pattern": "[a-c]+|7.5", "max_length": 2}),
    declared(type="BIGINT", rules={"pattern": "[0-9]+"}, cde=True, default="7"),
]
TEXTS = st.sampled_from(
    [
        "",
        " ",
        "a",
        "b",
        "bcd",
        "c\n",
        "\u00e9",
        "0",
        "-0",
        "7",
        "7.0",
        "7.5",
        "007",
        "0.00",
        "100.00",
        "99.99",
        "1e3",
        "8e0",
    ]
    + [
        "1.5",
        "true",
        "False",
        "2025-12-31",
        "2026-01-31",
        "2026-01-31T12:00:00Z",
        "2025-12-31T23:30:00+00:30",
        "x" * 300,
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(LIMITED), st.lists(st.none() | TEXTS, max_size=30))
def test_values_and_broken_rules_are_the_models(one: PayloadColumn, texts: list[str | None]) -> None:
    for text, (value, rules) in zip(texts, verdicts(one, texts), strict=True):
        expected, broken = check(json.loads(one.model_dump_json(exclude_none=True)), text, SECRET)
        assert sorted(rules) == sorted(broken), (one, text)
        assert broken or same_value(value, expected), (one, text, value)


def test_failures_say_all_that_is_wrong_with_a_row_in_the_order_of_its_columns() -> None:
    sources = [
        Source(declared(rules={"max": "z", "pattern": "[a-z]*", "allowed": ["ok"]}), "a"),
        Source(declared(pii="mask", rules={"allowed": ["x"]}).model_copy(update={"name": "b", "path": "$.b"}), None),
    ]
    rows = rows_of(["ok", "NOT OK" + "!" * 300, None], ['{"$.b": "x"}', '{"$.b": "secret"}', None])
    keyless = rows.set_column(1, "idempotency_key", pa.array(["k", "k", None], pa.string()))
    (first, second), failures = judged(keyless, sources, None)
    assert (first.to_pylist()[0], second.to_pylist()) == ("ok", ["*", "**cret", None])
    good, bad, missing = failures.to_pylist()
    assert good is None
    shown = "NOT OK" + "!" * 250
    assert bad == [
        {"rule": "rule_allowed", "column": "a", "path": "$.a", "message": "is not an allowed value", "value": shown},
        {"rule": "rule_pattern", "column": "a", "path": "$.a", "message": "does not match the pattern", "value": shown},
        {"rule": "rule_allowed", "column": "b", "path": "$.b", "message": "is not an allowed value", "value": "***"},
    ]
    assert [(one["rule"], one["column"], one["value"]) for one in missing] == [("cde_missing", "idempotency_key", None)]


def test_a_pattern_that_repeats_without_end_takes_long_texts() -> None:
    texts = [f"{'a' * 1_000_000}@b.c", "a" * 1_000_000]
    found = verdicts(declared(rules={"pattern": r"(\S+\S*)+@(\S|\w)+\.\S+"}), texts)
    assert [rules for _, rules in found] == [[], ["rule_pattern"]]


@pytest.mark.parametrize("rescued", ['{"$.a": 1}', "[]", "null", "x", ""])
def test_what_another_tool_wrote_into_rescued_holds_no_text(rescued: str) -> None:
    (values,), failures = judged(rows_of([None, "b"], [rescued, rescued]), [Source(declared(), None)], None)
    assert (values.to_pylist(), failures.to_pylist()) == ([None, None], [None, None])


def test_a_text_that_is_too_long_is_not_tried_by_the_pattern() -> None:
    found = verdicts(declared(rules={"pattern": "a*", "max_length": 3}), ["aaa", "b", "bbbb"])
    assert [rules for _, rules in found] == [[], ["rule_pattern"], ["rule_length"]]


def test_no_rows_are_judged_too() -> None:
    assert verdicts(declared(type="INT", cde=True, rules={"min": 0, "pattern": "7"}), []) == []
