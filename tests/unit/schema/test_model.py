"""Schema files: a good one is read whole, and a bad one says what is wrong and where, one line a problem."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import InvalidSchemaError
from leanops.domain.problems import Problem
from leanops.domain.schema.model import ColumnType, schema_from_json
from leanops.domain.table.definitions import CURATED_SYSTEM_COLUMNS, ICEBERG_METADATA_COLUMNS
from tests.oracle import rows as oracle
from tests.oracle import vocabulary as words
from tests.support.builders import column, schema, schema_text

GOOD = {
    "table_name": "orders",
    "version": 3,
    "owner": "payments-data",
    "description": "Order events of the web shop",
    "keys": {
        "idempotency_key": "$._metadata.idempotencyKeyResource",
        "version": '$["order"].updatedAt',
        "period": "$.periodReference",
    },
    "envelope_columns": [{"name": "message_id", "type": "STRING"}, {"name": "publish_time", "type": "TIMESTAMP"}],
    "payload_columns": [
        {"name": "order_id", "path": "$.order.id", "type": "STRING", "cde": True},
        {"name": "amount", "path": "$.order.amount", "type": "DECIMAL(18,2)", "cde": True, "rules": {"min": 0}},
        {"name": "status", "type": "STRING", "default": "NEW", "rules": {"allowed": ["NEW", "PAID"]}},
        {"name": "email", "path": '$["customer"]["email"]', "type": "STRING", "pii": "hmac"},
    ],
    "measures": ["amount"],
    "policies": {"unknown_fields": "evolve", "on_breaking": "refuse", "cde_error_rate_alert": 0.1},
}


def problems(**changes: Any) -> tuple[Problem, ...]:
    """What is said of the good file with some members changed."""
    return said_of(json.dumps({**GOOD, **changes}))


def said_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSchemaError) as wrong:
        schema_from_json(text, "schemas/orders/active/schema.json")
    assert str(wrong.value).startswith("schemas/orders/active/schema.json: ")
    assert len(str(wrong.value).splitlines()) == 1
    str(wrong.value).encode()
    return wrong.value.problems


def lines_said_of(text: str) -> int:
    try:
        schema_from_json(text, "schema.json")
    except InvalidSchemaError as wrong:
        return len(str(wrong).splitlines())
    return 0


def places(found: Iterable[Problem]) -> list[tuple[str, str]]:
    return [(problem.code.value, problem.pointer) for problem in found]


def in_column(**changes: Any) -> tuple[Problem, ...]:
    return problems(payload_columns=[column(), {**column("d"), **changes}], measures=[])


def test_the_file_of_the_documentation_is_read_whole() -> None:
    read = schema_from_json(json.dumps(GOOD), "schema.json")
    assert (read.table_name, read.version, read.owner, read.measures) == ("orders", 3, "payments-data", ("amount",))
    assert read.keys.version == "$.order.updatedAt"
    assert [str(each.type) for each in read.payload_columns] == ["STRING", "DECIMAL(18,2)", "STRING", "STRING"]
    assert [each.path for each in read.payload_columns] == ["$.order.id", "$.order.amount", None, "$.customer.email"]
    assert read.payload_columns[1].rules.written["min"] == "0"
    assert read.policies.cde_error_rate_fail is None
    assert read.policies.lookback_months == 1


def test_the_schema_of_the_generated_streams_is_read() -> None:
    read = schema_from_json(json.dumps(words.SCHEMA), "schema.json")
    assert [each.name for each in read.payload_columns] == [each["name"] for each in words.SCHEMA["payload_columns"]]


def test_only_three_members_are_required_and_the_rest_has_defaults() -> None:
    read = schema(column())
    assert read.version == 1
    assert read.keys.idempotency_key == "$._metadata.idempotencyKeyResource"
    assert read.keys.period_paths == ("$.periodReference", "$.period_reference")
    assert read.keys.version is None
    assert read.policies.unknown_fields == "evolve"
    assert problems(payload_columns=[]) != ()
    assert places(said_of("{}")) == [
        ("missing_key", "/table_name"),
        ("missing_key", "/envelope_columns"),
        ("missing_key", "/payload_columns"),
    ]


@pytest.mark.parametrize(
    "keys", [{}, {"version": "$.v"}, {"idempotency_key": '$["k"]', "version": "$.v", "period": "$.p"}]
)
def test_the_paths_a_schema_names_are_those_of_the_oracle(keys: dict[str, str]) -> None:
    said = {**GOOD, "keys": keys}
    assert set(schema_from_json(json.dumps(said), "schema.json").named_paths) == oracle.named_paths(said)


def test_a_path_named_twice_is_one_path() -> None:
    assert schema(column("a"), column("b", path='$["a"]'), keys={"version": "$.a"}).named_paths == ("$.a",)


@pytest.mark.parametrize(
    ("text", "kind", "iceberg"),
    [
        ("string", ColumnType("STRING"), "string"),
        ("INT", ColumnType("INT"), "int"),
        ("BIGINT", ColumnType("BIGINT"), "long"),
        ("Decimal(38,0)", ColumnType("DECIMAL", 38, 0), "decimal(38,0)"),
        ("DECIMAL(18, 2)", ColumnType("DECIMAL", 18, 2), "decimal(18,2)"),
        ("DOUBLE", ColumnType("DOUBLE"), "double"),
        ("BOOLEAN", ColumnType("BOOLEAN"), "boolean"),
        ("DATE", ColumnType("DATE"), "date"),
        ("TIMESTAMP", ColumnType("TIMESTAMP"), "timestamptz"),
    ],
)
def test_every_type_is_read_and_has_its_iceberg_type(text: str, kind: ColumnType, iceberg: str) -> None:
    read = schema(column(type=text)).payload_columns[0].type
    assert (read, read.iceberg) == (kind, iceberg)


def test_defaults_and_limits_written_as_numbers_or_booleans_become_texts() -> None:
    read = schema(column(type="INT", default=1, rules={"min": -1, "max": 1e3, "allowed": [1, "2", 3.5]}))
    only = read.payload_columns[0]
    assert (only.default, only.rules.written["min"], only.rules.written["max"]) == ("1", "-1", "1000.0")
    assert only.rules.written["allowed"] == ("1", "2", "3.5")


def test_a_number_keeps_its_digits_and_what_is_no_number_is_refused() -> None:
    text = schema_text(column(type="DECIMAL(38,2)", rules={"max": "LIMIT"})).replace(
        '"LIMIT"', "99999999999999999999.99"
    )
    assert schema_from_json(text, "schema.json").payload_columns[0].rules.written["max"] == "99999999999999999999.99"
    found = said_of(schema_text(column(default="LIMIT")).replace('"LIMIT"', "NaN"))
    assert places(found) == [("not_json", "/payload_columns/0/default")]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", "not_json", "the file is empty"),
        (" \n", "not_json", "the file is empty"),
        ("{\n'a': 1}", "not_json", "Expecting property name enclosed in double quotes at line 2, column 1"),
        ('{"table_name": "a"\n\n', "not_json", "at line 3"),
        ("\ufeff{}", "not_json", "byte order mark"),
        ("[" * 100_000, "too_deep", "64 levels"),
        ("[]", "not_object", "an array"),
        ("null", "not_object", "null"),
        ("1e999", "not_object", "a number"),
        ('"schema"', "not_object", "a text"),
        ('"' + "x" * 1_000_000 + '"', "too_large", "1,000,002 characters"),
    ],
)
def test_a_file_that_is_no_json_object_says_so(text: str, code: str, said: str) -> None:
    (problem,) = said_of(text)
    assert (problem.code, problem.pointer) == (code, "")
    assert said in problem.message


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"table_name": "Orders"}, "bad_name /table_name"),
        ({"table_name": "1orders"}, "bad_name /table_name"),
        ({"table_name": "orders\n"}, "bad_name /table_name"),
        ({"table_name": "a.b"}, "bad_name /table_name"),
        ({"table_name": ""}, "bad_name /table_name"),
        ({"table_name": "x" * 129}, "bad_name /table_name"),
        ({"table_name": None}, "wrong_kind /table_name"),
        ({"table_name": "errors"}, "reserved_name /table_name"),
        ({"version": 0}, "out_of_range /version"),
        ({"version": 1.5}, "wrong_kind /version"),
        ({"version": "3"}, "wrong_kind /version"),
        ({"version": True}, "wrong_kind /version"),
        ({"version": 2**31}, "out_of_range /version"),
        ({"version": 10**4_000}, "out_of_range /version"),
        ({"tabel_name": "x"}, "unknown_key /tabel_name"),
        ({"new\nline": 1}, "unknown_key /new\nline"),
        ({"a/b~c": 1}, "unknown_key /a~1b~0c"),
        ({"$schema": 5}, "wrong_kind /$schema"),
        ({"\ud800": 1}, "not_utf8 "),
        ({"owner": "\ud800"}, "not_utf8 /owner"),
        ({"owner": 5}, "wrong_kind /owner"),
        ({"owner": 1.5}, "wrong_kind /owner"),
        ({"keys": {"version": "order.updatedAt"}}, "bad_path /keys/version"),
        ({"keys": {"version": '$["\\x"]'}}, "bad_path /keys/version"),
        ({"keys": {"version": '$["\\ud800"]'}}, "bad_path /keys/version"),
        ({"keys": {"version": 5}}, "wrong_kind /keys/version"),
        ({"keys": {"pii": "mask"}}, "unknown_value /keys/pii"),
        ({"keys": {"pii": True}}, "wrong_kind /keys/pii"),
        ({"keys": {"key": "$.a"}}, "unknown_key /keys/key"),
        ({"envelope_columns": [{"name": "message_id"}]}, "missing_key /envelope_columns/0/type"),
        ({"envelope_columns": {}}, "wrong_kind /envelope_columns"),
        ({"measures": ["amounts"]}, "measure_unknown /measures/0"),
        ({"policies": {"unknown_fields": "drop"}}, "unknown_value /policies/unknown_fields"),
        ({"policies": {"cde_error_rate_fail": 1.5}}, "out_of_range /policies/cde_error_rate_fail"),
        ({"policies": {"cde_error_rate_fail": "0.5"}}, "wrong_kind /policies/cde_error_rate_fail"),
        ({"policies": {"lookback_months": -1}}, "out_of_range /policies/lookback_months"),
        ({"policies": None}, "wrong_kind /policies"),
        ({"keys": {"idempotency_key": "$.customer.email"}}, "pii_key_in_clear /keys/idempotency_key"),
    ],
)
def test_a_bad_member_is_named_with_its_place(changes: dict[str, Any], place: str) -> None:
    (problem,) = problems(**changes)
    assert f"{problem.code} {problem.pointer}" == place


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"name": "Order"}, "bad_name /name"),
        ({"name": "a b"}, "bad_name /name"),
        ({"name": "c"}, "column_twice /name"),
        ({"path": "d"}, "bad_path /path"),
        ({"path": "$"}, "bad_path /path"),
        ({"type": "VARCHAR"}, "unknown_type /type"),
        ({"type": "DECIMAL"}, "bad_decimal /type"),
        ({"type": "DECIMAL(39,2)"}, "bad_decimal /type"),
        ({"type": "DECIMAL(2,3)"}, "bad_decimal /type"),
        ({"type": "DECIMAL(0,0)"}, "bad_decimal /type"),
        ({"type": "STRING\n"}, "unknown_type /type"),
        ({"type": 5}, "wrong_kind /type"),
        ({"pii": "sha1"}, "unknown_value /pii"),
        ({"pii": "hmac", "type": "INT"}, "pii_needs_string /pii"),
        ({"pii": "mask", "type": "DATE"}, "pii_needs_string /pii"),
        ({"format": "epoch_ms"}, "bad_format /format"),
        ({"format": "epoch_s", "type": "DATE"}, "bad_format /format"),
        ({"format": "yyyy", "type": "DATE"}, "bad_format /format"),
        ({"cde": "true"}, "wrong_kind /cde"),
        ({"cde": 1}, "wrong_kind /cde"),
        ({"default": ["x"]}, "wrong_kind /default"),
        ({"rules": {"minimum": 1}}, "unknown_key /rules/minimum"),
        ({"rules": {"min_length": -1}}, "out_of_range /rules/min_length"),
        ({"rules": {"min_length": 3, "max_length": 2}}, "contradiction /rules/min_length"),
        ({"rules": {"allowed": "NEW"}}, "wrong_kind /rules/allowed"),
        ({"rules": []}, "wrong_kind /rules"),
        ({"default": "\ud800"}, "not_utf8 /default"),
    ],
)
def test_a_bad_column_is_named_with_its_place(changes: dict[str, Any], place: str) -> None:
    (problem,) = in_column(**changes)
    assert f"{problem.code} {problem.pointer}" == place.replace("/", "/payload_columns/1/", 1)


@pytest.mark.parametrize("name", [*CURATED_SYSTEM_COLUMNS, *ICEBERG_METADATA_COLUMNS])
def test_a_column_cannot_take_the_name_of_a_system_column(name: str) -> None:
    (problem,) = in_column(name=name)
    assert (problem.code, problem.pointer) == ("reserved_name", "/payload_columns/1/name")


def test_every_problem_of_a_file_is_listed_in_the_order_of_the_file() -> None:
    columns = [column("B", rules={"min": "2", "max": "1"}), column(), column(type="X", pii="hmac"), column(), 5]
    found = problems(table_name="A", version=0, payload_columns=columns, measures=["c"])
    assert places(found) == [
        ("bad_name", "/table_name"),
        ("out_of_range", "/version"),
        ("bad_name", "/payload_columns/0/name"),
        ("contradiction", "/payload_columns/0/rules/min"),
        ("pii_in_clear", "/payload_columns/1/path"),
        ("column_twice", "/payload_columns/2/name"),
        ("unknown_type", "/payload_columns/2/type"),
        ("column_twice", "/payload_columns/3/name"),
        ("pii_in_clear", "/payload_columns/3/path"),
        ("wrong_kind", "/payload_columns/4"),
        ("measure_not_number", "/measures/0"),
    ]


def test_a_message_quotes_little_of_the_file_and_stays_on_one_line() -> None:
    (problem,) = problems(table_name="A\n\x1b[31m\u2028" + "x" * 5_000)
    assert problem.message.isprintable()
    assert len(problem.message) < 120
    assert "\\n\\x1b[31m\\u2028xxx" in problem.message


def test_an_error_tells_a_few_problems_and_how_to_see_the_others() -> None:
    columns = [{"name": f"c{at}", "path": "c", "type": "STRING"} for at in range(2_000)]
    with pytest.raises(InvalidSchemaError) as wrong:
        schema_from_json(json.dumps({**GOOD, "payload_columns": columns, "measures": []}), "schema.json")
    assert len(wrong.value.problems) == 2_000
    assert len(str(wrong.value)) < 2_000
    assert str(wrong.value).endswith("; and 1,995 more; see them with: leanops schema lint FILE")


def test_a_key_that_is_pii_is_taken_where_the_schema_seals_it() -> None:
    keys = {"idempotency_key": "$.customer.email", "pii": "hmac"}
    assert schema_from_json(json.dumps({**GOOD, "keys": keys}), "schema.json").keys.pii == "hmac"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*GOOD, "unknown"]), JSON)
def test_a_member_of_any_value_is_taken_or_refused_in_one_line(name: str, value: Any) -> None:
    assert lines_said_of(json.dumps({**GOOD, name: value})) <= 1


@given(st.sampled_from(["name", "path", "type", "default", "rules", "pii", "format", "cde", "description"]), JSON)
def test_a_column_of_any_value_is_taken_or_refused_in_one_line(name: str, value: Any) -> None:
    assert lines_said_of(schema_text({**column(), name: value})) <= 1
