"""Schema files that are wrong, each in a way of its own: what is said of them, where, and that nothing else is."""

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from leanops.domain import problems
from leanops.domain.problems import Code
from leanops.domain.schema.document import lines_of
from leanops.domain.schema.lint import Finding, lint, topic_of
from leanops.domain.schema.model import schema_from_json
from tests.support.builders import column, schema_text
from tests.support.places import MALFORMED
from tests.unit.schema.test_model import GOOD

# One line a file, so that the list can be read down its columns.
# fmt: off
INDEX: dict[str, tuple[str, str, str]] = {
    "empty": ("not_json", "", "write a JSON object"),
    "not_utf8": ("not_utf8", "", "save the file as UTF-8"),
    "utf16": ("not_utf8", "", "save the file as UTF-8"),
    "byte_order_mark": ("not_json", "", "without BOM"),
    "trailing_comma": ("not_json", "", "correct the text there"),
    "single_quotes": ("not_json", "", "double quotes"),
    "comment": ("not_json", "", "no comments"),
    "truncated": ("not_json", "", "correct the text there"),
    "two_objects": ("not_json", "", "correct the text there"),
    "control_character": ("not_json", "", "correct the text there"),
    "too_deep": ("too_deep", "/description", "five at most"),
    "not_a_number": ("not_json", "/payload_columns/0/default", "leave the member out"),
    "lone_surrogate": ("not_utf8", "/owner", "write the character itself"),
    "top_level_array": ("not_object", "", "one JSON object"),
    "top_level_null": ("not_object", "", "one JSON object"),
    "member_twice": ("duplicate_key", "/table_name", "keep one of the two"),
    "member_twice_in_column": ("duplicate_key", "/payload_columns/0/type", "keep one of the two"),
    "table_name_missing": ("missing_key", "/table_name", 'add "table_name": "orders"'),
    "columns_missing": ("missing_key", "/payload_columns", 'add "payload_columns"'),
    "envelope_missing": ("missing_key", "/envelope_columns", 'add "envelope_columns": []'),
    "column_without_type": ("missing_key", "/payload_columns/0/type", 'add "type": "STRING"'),
    "column_without_name": ("missing_key", "/payload_columns/0/name", 'add "name": "order_id"'),
    "member_with_a_slash": ("unknown_key", "/a~1b~0c", "use one of table_name"),
    "rule_misspelt": ("unknown_key", "/payload_columns/0/rules/maximum_length", "did you mean max_length?"),
    "key_misspelt": ("unknown_key", "/keys/idempotency_keys", "did you mean idempotency_key?"),
    "policy_misspelt": ("unknown_key", "/policies/unknown_field", "did you mean unknown_fields?"),
    "columns_as_object": ("wrong_kind", "/payload_columns", "write an array"),
    "column_as_text": ("wrong_kind", "/payload_columns/0", "write an object"),
    "columns_empty": ("empty", "/payload_columns", "at least one column"),
    "cde_as_text": ("wrong_kind", "/payload_columns/0/cde", "true or false, without quotes"),
    "version_as_text": ("wrong_kind", "/version", "a whole number, without quotes"),
    "version_with_decimals": ("wrong_kind", "/version", "or decimals"),
    "version_zero": ("out_of_range", "/version", "at least 1"),
    "version_too_large": ("out_of_range", "/version", "below 2,147,483,648"),
    "owner_as_number": ("wrong_kind", "/owner", "a text in double quotes"),
    "editor_schema_as_number": ("wrong_kind", "/$schema", "leave it out"),
    "keys_null": ("wrong_kind", "/keys", "write an object"),
    "rules_as_array": ("wrong_kind", "/payload_columns/0/rules", "write an object"),
    "default_as_array": ("wrong_kind", "/payload_columns/0/default", "a text, a number, true or false"),
    "allowed_as_text": ("wrong_kind", "/payload_columns/0/rules/allowed", "write an array"),
    "negative_length": ("out_of_range", "/payload_columns/0/rules/min_length", "at least 0"),
    "upper_case_table": ("bad_name", "/table_name", "lower case letters"),
    "table_with_a_dot": ("bad_name", "/table_name", "lower case letters"),
    "reserved_table": ("reserved_name", "/table_name", "choose another name"),
    "upper_case_column": ("bad_name", "/payload_columns/0/name", "lower case letters"),
    "digit_first": ("bad_name", "/payload_columns/0/name", "no digit first"),
    "system_column": ("reserved_name", "/payload_columns/0/name", "choose another name"),
    "iceberg_column": ("reserved_name", "/payload_columns/0/name", "choose another name"),
    "spark_column": ("reserved_name", "/payload_columns/0/name", "choose another name"),
    "partition_field": ("reserved_name", "/payload_columns/0/name", "choose another name"),
    "unknown_type": ("unknown_type", "/payload_columns/0/type", "use one of STRING, INT"),
    "type_as_number": ("wrong_kind", "/payload_columns/0/type", "the type as a text"),
    "decimal_without_precision": ("bad_decimal", "/payload_columns/0/type", "write it like DECIMAL(18,2)"),
    "decimal_too_wide": ("bad_decimal", "/payload_columns/0/type", "precision 1 to 38"),
    "decimal_scale_above_precision": ("bad_decimal", "/payload_columns/0/type", "scale at most the precision"),
    "path_without_dollar": ("bad_path", "/payload_columns/0/path", "write it like $.order.id"),
    "path_with_an_index": ("bad_path", "/payload_columns/0/path", "write it like $.order.id"),
    "path_as_number": ("wrong_kind", "/payload_columns/0/path", "the path as a text"),
    "key_path_broken": ("bad_path", "/keys/idempotency_key", "write it like $.order.id"),
    "limit_is_no_number": ("bad_limit", "/payload_columns/0/rules/min", "a number like 7"),
    "limit_is_no_day": ("bad_limit", "/payload_columns/0/rules/max", "a day like 2026-01-31"),
    "limit_is_infinite": ("bad_limit", "/payload_columns/0/rules/max", "a number like 7.5"),
    "allowed_of_another_type": ("bad_limit", "/payload_columns/0/rules/allowed/1", "true or false"),
    "min_above_max": ("contradiction", "/payload_columns/0/rules/min", "lower it, or raise max"),
    "no_whole_number_between": ("contradiction", "/payload_columns/0/rules/min", "lower it, or raise max"),
    "min_length_above_max_length": ("contradiction", "/payload_columns/0/rules/min_length", "raise max_length"),
    "allowed_above_max": ("contradiction", "/payload_columns/0/rules/allowed/2", "relax the other rule"),
    "allowed_too_long": ("contradiction", "/payload_columns/0/rules/allowed/1", "relax the other rule"),
    "allowed_does_not_match": ("contradiction", "/payload_columns/0/rules/allowed/0", "relax the other rule"),
    "default_of_another_type": ("bad_default", "/payload_columns/0/default", "a number like 7"),
    "default_would_be_rounded": ("bad_default", "/payload_columns/0/default", "a number like 7.50"),
    "default_in_another_format": ("bad_default", "/payload_columns/0/default", "in the format dd/MM/yyyy"),
    "default_not_allowed": ("contradiction", "/payload_columns/0/default", "change the default"),
    "default_below_min": ("contradiction", "/payload_columns/0/default", "change the default"),
    "default_does_not_match": ("contradiction", "/payload_columns/0/default", "change the default"),
    "default_blank_and_critical": ("contradiction", "/payload_columns/0/default", "not blank"),
    "pattern_broken": ("bad_pattern", "/payload_columns/0/rules/pattern", "as RE2 does"),
    "pattern_looks_ahead": ("bad_pattern", "/payload_columns/0/rules/pattern", "without look-around"),
    "unknown_format": ("bad_format", "/payload_columns/0/format", "use 'iso'"),
    "format_of_a_text": ("bad_format", "/payload_columns/0/format", "make the type DATE"),
    "epoch_of_a_day": ("bad_format", "/payload_columns/0/format", "make the type TIMESTAMP"),
    "column_twice": ("column_twice", "/payload_columns/1/name", "another name"),
    "paths_collide": ("collision", "/payload_columns/1/path", "keep one of the two paths"),
    "key_collides": ("collision", "/payload_columns/0/path", "keep one of the two paths"),
    "system_column_read_by_name": ("collision", "/payload_columns/0/name", "give the column a path"),
    "key_is_version": ("key_conflict", "/keys/version", "another path for the version"),
    "key_is_period": ("key_conflict", "/keys/period", "another path for the period"),
    "version_inside_period": ("key_conflict", "/keys/period", "another path for the period"),
    "version_format_unknown": ("unknown_value", "/keys/version_format", "use 'iso', 'epoch_s', 'epoch_ms' or 'number'"),
    "version_format_without_version": ("contradiction", "/keys/version_format", "set keys.version"),
    "pii_unknown": ("unknown_value", "/payload_columns/0/pii", "use 'hmac', 'mask' or 'drop'"),
    "pii_number": ("pii_needs_string", "/payload_columns/0/pii", "make the type STRING"),
    "pii_key_in_clear": ("pii_key_in_clear", "/keys/idempotency_key", 'set keys.pii to "hmac"'),
    "pii_default_key_in_clear": ("pii_key_in_clear", "/payload_columns/0/pii", 'set keys.pii to "hmac"'),
    "pii_version_in_clear": ("pii_key_in_clear", "/keys/version", "name another path"),
    "pattern_refers_back": ("bad_pattern", "/payload_columns/0/rules/pattern", "back-references"),
    "pii_sealed_key_in_clear": ("pii_in_clear", "/payload_columns/0/path", "its pii too"),
    "version_at_the_default_key": ("key_conflict", "/keys/version", "another path for the version"),
    "default_key_collides": ("collision", "/payload_columns/0/path", "one of the two paths"),
    "pii_key_mask": ("unknown_value", "/keys/pii", "use 'hmac'"),
    "pii_in_another_column": ("pii_in_clear", "/payload_columns/1/path", "give this column its pii too"),
    "measure_unknown": ("measure_unknown", "/measures/0", "did you mean amount?"),
    "measure_is_text": ("measure_not_number", "/measures/0", "a numeric type"),
    "measure_is_pii": ("pii_as_measure", "/measures/0", "take it out of the measures"),
    "measure_twice": ("repeated", "/measures/1", "name it once"),
    "envelope_unknown": ("envelope_unknown", "/envelope_columns/0/name", "did you mean message_id?"),
    "envelope_of_another_type": ("envelope_type", "/envelope_columns/0/type", "write BIGINT"),
    "envelope_twice": ("repeated", "/envelope_columns/1/name", "name it once"),
    "policy_unknown": ("unknown_value", "/policies/unknown_fields", "use 'evolve', 'rescue' or 'quarantine'"),
    "rate_in_percent": ("out_of_range", "/policies/cde_error_rate_alert", "at most 1"),
    "rate_as_text": ("wrong_kind", "/policies/cde_error_rate_fail", "a number from 0 to 1"),
    "rate_infinite": ("out_of_range", "/policies/cde_error_rate_fail", "at most 1"),
    "lookback_negative": ("out_of_range", "/policies/lookback_months", "at least 0"),
}
SEVERAL: dict[str, list[tuple[str, str]]] = {
    "member_misspelt": [("missing_key", "/payload_columns"), ("unknown_key", "/payload_column")],
    "many_problems": [
        ("bad_name", "/table_name"),
        ("bad_name", "/payload_columns/0/name"),
        ("contradiction", "/payload_columns/0/rules/min"),
        ("bad_path", "/payload_columns/1/path"),
        ("unknown_type", "/payload_columns/1/type"),
        ("bad_default", "/payload_columns/2/default"),
        ("pii_needs_string", "/payload_columns/2/pii"),
        ("column_twice", "/payload_columns/3/name"),
        ("pii_in_clear", "/payload_columns/3/path"),
        ("contradiction", "/payload_columns/3/rules/allowed/1"),
        ("wrong_kind", "/payload_columns/3/cde"),
        ("measure_not_number", "/measures/0"),
    ],
}
# fmt: on
CHECKS = ("document", "parse", "regex", "consistency")
"""The modules that look at one file."""


def linted(name: str) -> list[Finding]:
    return lint({f"{name}.json": (MALFORMED / f"{name}.json").read_bytes()})


def places(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.problem.code.value, one.problem.pointer) for one in found]


@pytest.mark.parametrize("name", INDEX)
def test_a_malformed_file_gets_its_code_its_place_and_its_hint_and_nothing_else(name: str) -> None:
    code, pointer, hint = INDEX[name]
    found = linted(name)
    assert places(found) == [(code, pointer)]
    assert hint in found[0].problem.hint


@pytest.mark.parametrize("name", SEVERAL)
def test_a_broken_member_hides_nothing_that_is_wrong_elsewhere(name: str) -> None:
    assert sorted(places(linted(name))) == sorted(SEVERAL[name])


def test_every_malformed_file_is_in_the_index() -> None:
    files = {path.stem for path in MALFORMED.iterdir()}
    assert files == set(INDEX) | set(SEVERAL)
    assert len(files) >= 50


def test_every_code_of_a_single_file_has_one_that_gets_it() -> None:
    folder = Path(problems.__file__).parent / "schema"
    used = {name for module in CHECKS for name in re.findall(r"\bCode\.(\w+)", (folder / f"{module}.py").read_text())}
    assert {code for code, _, _ in INDEX.values()} | {"too_large"} == {problems.Code[name].value for name in used}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("min_above_max", 5),
        ("measure_unknown", 7),
        ("table_name_missing", 1),
        ("column_without_type", 5),
        ("member_twice", 3),
        ("trailing_comma", 7),
        ("truncated", 4),
        ("not_utf8", 3),
        ("top_level_null", 1),
        ("too_deep", 7),
    ],
)
def test_a_problem_has_the_line_it_is_on(name: str, line: int) -> None:
    assert [one.line for one in linted(name)] == [line]


def test_a_file_that_is_far_too_deep_takes_little_memory_to_refuse() -> None:
    levels = 900
    text = '{"a":' + '{"level":' * levels + "[" + "1," * 250_000 + "1]" + "}" * levels + "}"
    tracemalloc.start()
    try:
        (found,) = lint({"deep.json": text.encode()})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.problem.code, found.problem.pointer) == ("too_deep", "/a")
    assert peak < 30_000_000


def test_lines_are_those_of_the_members_whatever_stands_around_them() -> None:
    text = '{"a": [1,\n{"b/c": "}\\"]",\n\n"~": {"": 0}}],\n "x":\n 1}'
    pointers = ["", "/a", "/a/0", "/a/1", "/a/1/b~1c", "/a/1/~0", "/a/1/~0/", "/x", "/a/1/missing", "/missing"]
    assert lines_of(text, pointers) == [1, 1, 1, 2, 2, 4, 4, 5, 2, 1]


def test_two_topics_cannot_have_one_table() -> None:
    data = json.dumps(GOOD).encode()
    (found,) = lint({"orders.json": data, "invoices.json": data})
    assert (found.file, found.problem.code, found.problem.pointer) == ("invoices.json", "table_twice", "/table_name")
    assert "orders.json" in found.problem.message
    assert lint({"schemas/orders/active/schema.json": data, "schemas/orders/pending/next.json": data}) == []
    (other,) = lint({"schemas/orders/schema.json": data, "schemas/invoices/schema.json": data})
    assert other.file == "schemas/invoices/schema.json"


def test_a_table_is_compared_also_where_a_file_has_other_problems() -> None:
    bad = json.dumps({**GOOD, "version": 0}).encode()
    found = lint({"a.json": bad, "b.json": bad})
    assert [(one.file, one.problem.code.value) for one in found] == [
        ("a.json", "out_of_range"),
        ("b.json", "out_of_range"),
        ("b.json", "table_twice"),
    ]


@pytest.mark.parametrize(
    ("file", "topic"),
    [
        ("schemas/orders/schema.json", "orders"),
        ("repo/schemas/orders/active/schema.json", "orders"),
        ("schemas/schemas/orders/x.json", "orders"),
        ("schemas/orders.json", "schemas/orders.json"),
        ("orders/schema.json", "orders/schema.json"),
    ],
)
def test_the_topic_of_a_file_is_its_folder_in_schemas(file: str, topic: str) -> None:
    assert topic_of(file) == topic


@pytest.mark.parametrize(
    ("said", "pointers"),
    [
        ({"pii": "hmac"}, []),
        ({"pii": "drop"}, []),
        ({"pii": "mask"}, ["/payload_columns/0/pii"]),
        ({"pii": "hmac", "rules": {"max_length": 9}}, ["/payload_columns/0/rules"]),
    ],
)
def test_of_a_sealed_key_a_column_can_ask_only_for_its_seal(said: dict[str, Any], pointers: list[str]) -> None:
    text = schema_text(column("mail", **said), keys={"idempotency_key": "$.mail", "pii": "hmac"})
    found = [finding.problem for finding in lint({"a.json": text.encode()})]
    assert [(problem.code, problem.pointer) for problem in found] == [
        (Code.PII_SEALED_ALREADY, one) for one in pointers
    ]
    # A file that is active already stays readable.
    assert schema_from_json(text, "a.json").keys.pii == "hmac"
