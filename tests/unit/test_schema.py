"""Schema files: a good one is read whole, and a bad one says what is wrong and where, one line a problem."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import InvalidSchemaError
from leanops.domain.schema import ColumnType, TypeName, iceberg_type, schema_from_json
from leanops.domain.tables import CURATED_SYSTEM_COLUMNS, ICEBERG_METADATA_COLUMNS
from tests.builders import column, schema, schema_text
from tests.oracle import rows as oracle
from tests.oracle import vocabulary as words

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


def problems(**changes: Any) -> tuple[str, ...]:
    """What is said of the good file with some members changed."""
    return said_of(json.dumps({**GOOD, **changes}))


def said_of(text: str) -> tuple[str, ...]:
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


def in_column(**changes: Any) -> tuple[str, ...]:
    return problems(payload_columns=[column(), {**column("d"), **changes}], measures=[])


def test_the_file_of_the_documentation_is_read_whole() -> None:
    read = schema_from_json(json.dumps(GOOD), "schema.json")
    assert (read.table_name, read.version, read.owner, read.measures) == ("orders", 3, "payments-data", ("amount",))
    assert read.keys.version == "$.order.updatedAt"
    assert [str(each.type) for each in read.payload_columns] == ["STRING", "DECIMAL(18,2)", "STRING", "STRING"]
    assert [each.path for each in read.payload_columns] == ["$.order.id", "$.order.amount", None, "$.customer.email"]
    assert read.payload_columns[1].rules.min == "0"
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
    assert said_of("{}") == (
        "/table_name: Field required",
        "/envelope_columns: Field required",
        "/payload_columns: Field required",
    )


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
        ("string", ColumnType(TypeName.STRING), "string"),
        ("INT", ColumnType(TypeName.INT), "int"),
        ("BIGINT", ColumnType(TypeName.BIGINT), "long"),
        ("Decimal(38,0)", ColumnType(TypeName.DECIMAL, 38, 0), "decimal(38,0)"),
        ("DECIMAL(18, 2)", ColumnType(TypeName.DECIMAL, 18, 2), "decimal(18,2)"),
        ("DOUBLE", ColumnType(TypeName.DOUBLE), "double"),
        ("BOOLEAN", ColumnType(TypeName.BOOLEAN), "boolean"),
        ("DATE", ColumnType(TypeName.DATE), "date"),
        ("TIMESTAMP", ColumnType(TypeName.TIMESTAMP), "timestamptz"),
    ],
)
def test_every_type_is_read_and_has_its_iceberg_type(text: str, kind: ColumnType, iceberg: str) -> None:
    read = schema(column(type=text)).payload_columns[0].type
    assert (read, iceberg_type(read)) == (kind, iceberg)


def test_defaults_and_limits_written_as_numbers_or_booleans_become_texts() -> None:
    read = schema(column(type="INT", default=3, rules={"min": -1, "max": 1e3, "allowed": [1, "2", 3.5]}))
    only = read.payload_columns[0]
    assert (only.default, only.rules.min, only.rules.max) == ("3", "-1", "1000.0")
    assert only.rules.allowed == ("1", "2", "3.5")


def test_a_number_keeps_its_digits_and_what_is_no_number_is_refused() -> None:
    text = schema_text(column(type="DECIMAL(38,2)", rules={"max": "LIMIT"})).replace(
        '"LIMIT"', "99999999999999999999.99"
    )
    assert schema_from_json(text, "schema.json").payload_columns[0].rules.max == "99999999999999999999.99"
    with pytest.raises(InvalidSchemaError, match="NaN is no JSON"):
        schema_from_json(schema_text(column(default="LIMIT")).replace('"LIMIT"', "NaN"), "schema.json")


@pytest.mark.parametrize(
    ("kind", "rules", "said"),
    [
        ("INT", {"min": "much"}, "rules.min: 'much' is no INT"),
        ("DOUBLE", {"max": "Infinity"}, "rules.max: 'Infinity' is no DOUBLE"),
        ("DATE", {"min": "2026-02-30"}, "rules.min: '2026-02-30' is no DATE"),
        ("TIMESTAMP", {"max": "tomorrow"}, "rules.max: 'tomorrow' is no TIMESTAMP"),
        ("BIGINT", {"allowed": [True]}, "rules.allowed: 'true' is no BIGINT"),
        ("TIMESTAMP", {"min": "2026-01-01"}, "rules.min: '2026-01-01' is no TIMESTAMP"),
        ("DATE", {"min": "20260101"}, "rules.min: '20260101' is no DATE"),
        ("DOUBLE", {"max": "1_000"}, "rules.max: '1_000' is no DOUBLE"),
        ("DOUBLE", {"max": "1e999"}, "rules.max: '1e999' is no DOUBLE"),
        ("BIGINT", {"max": "1e40"}, "rules.max: '1e40' is no BIGINT"),
        ("BOOLEAN", {"allowed": ["yes"]}, "rules.allowed: 'yes' is no BOOLEAN"),
        ("STRING", {"pattern": "("}, "rules.pattern is no regular expression"),
        *[("STRING", {"pattern": odd}, "not for Java") for odd in ("(?P<y>[0-9]+)", "a{,3}", "{.*}", "(?ix)a")],
        ("DOUBLE", {"min": "1e-400"}, "rules.min: '1e-400' is no DOUBLE"),
        ("TIMESTAMP", {"min": "2026-01-01T00:00:00+19:00"}, "is no TIMESTAMP"),
    ],
)
def test_a_limit_that_cannot_be_compared_with_the_column_is_refused(kind: str, rules: object, said: str) -> None:
    with pytest.raises(InvalidSchemaError, match=re.escape(said)):
        schema(column(type=kind, rules=rules))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON: Expecting value at line 1"),
        ("{\n'a': 1}", "not JSON: Expecting property name enclosed in double quotes at line 2"),
        ('{"table_name": "a"\n\n', "not JSON: "),
        ("\ufeff{}", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ("[]", "/: "),
        ("null", "/: "),
        ('"schema"', "/: "),
    ],
)
def test_a_file_that_is_no_json_object_says_so(text: str, said: str) -> None:
    (problem,) = said_of(text)
    assert problem.startswith(said)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"table_name": "Orders"}, "/table_name: "),
        ({"table_name": "1orders"}, "/table_name: "),
        ({"table_name": "orders\n"}, "/table_name: "),
        ({"table_name": "a.b"}, "/table_name: "),
        ({"table_name": ""}, "/table_name: "),
        ({"table_name": "x" * 129}, "/table_name: "),
        ({"table_name": None}, "/table_name: "),
        ({"table_name": "errors"}, "/: table_name 'errors' is reserved"),
        ({"version": 0}, "/version: "),
        ({"version": 1.5}, "/version: "),
        ({"version": 2**31}, "/version: "),
        ({"tabel_name": "x"}, "/tabel_name: "),
        ({"new\nline": 1}, "/new\\nline: "),
        ({"\ud800": 1}, "not JSON in UTF-8"),
        ({"owner": "\ud800"}, "not JSON in UTF-8"),
        ({"keys": {"version": "order.updatedAt"}}, "/keys/version: 'order.updatedAt' is no JSON path"),
        ({"keys": {"version": '$["\\x"]'}}, "/keys/version: "),
        ({"keys": {"version": '$["\\ud800"]'}}, "/keys/version: "),
        ({"keys": {"version": 5}}, "/keys/version: "),
        ({"keys": {"pii": "mask"}}, "/keys/pii: "),
        ({"keys": {"key": "$.a"}}, "/keys/key: "),
        ({"envelope_columns": [{"name": "message_id"}]}, "/envelope_columns/0/type: "),
        ({"measures": ["amounts"]}, "/: measures are not columns: amounts"),
        ({"policies": {"unknown_fields": "drop"}}, "/policies/unknown_fields: "),
        ({"policies": {"cde_error_rate_fail": 1.5}}, "/policies/cde_error_rate_fail: "),
        ({"policies": {"lookback_months": -1}}, "/policies/lookback_months: "),
        ({"keys": {"idempotency_key": "$.customer.email"}}, "/: the key path is PII"),
    ],
)
def test_a_bad_member_is_named_with_its_place(changes: dict[str, Any], place: str) -> None:
    (problem,) = problems(**changes)
    assert problem.startswith(place)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"name": "Order"}, "/payload_columns/1/name: "),
        ({"name": "a b"}, "/payload_columns/1/name: "),
        ({"name": "c"}, "/: columns named twice: c"),
        ({"path": "d"}, "/payload_columns/1/path: 'd' is no JSON path"),
        ({"type": "VARCHAR"}, "/payload_columns/1/type: unknown type 'VARCHAR'"),
        ({"type": "DECIMAL"}, "/payload_columns/1/type: DECIMAL needs precision and scale"),
        ({"type": "DECIMAL(39,2)"}, "/payload_columns/1/type: DECIMAL(39,2): precision"),
        ({"type": "DECIMAL(2,3)"}, "/payload_columns/1/type: DECIMAL(2,3): precision"),
        ({"type": "DECIMAL(0,0)"}, "/payload_columns/1/type: DECIMAL(0,0): precision"),
        ({"type": "STRING\n"}, "/payload_columns/1/type: unknown type"),
        ({"type": 5}, "/payload_columns/1/type: write the type as text"),
        ({"pii": "sha1"}, "/payload_columns/1/pii: "),
        ({"pii": "hmac", "type": "INT"}, "/payload_columns/1: pii 'hmac' needs type STRING"),
        ({"pii": "mask", "type": "DATE"}, "/payload_columns/1: pii 'mask' needs type STRING"),
        ({"format": "epoch_ms"}, "/payload_columns/1: format 'epoch_ms' does not go with type STRING"),
        ({"format": "epoch_s", "type": "DATE"}, "/payload_columns/1: format 'epoch_s' does not go with type DATE"),
        ({"format": "yyyy", "type": "DATE"}, "/payload_columns/1/format: "),
        ({"cde": "maybe"}, "/payload_columns/1/cde: "),
        ({"rules": {"minimum": 1}}, "/payload_columns/1/rules/minimum: "),
        ({"rules": {"min_length": -1}}, "/payload_columns/1/rules/min_length: "),
        ({"rules": {"allowed": "NEW"}}, "/payload_columns/1/rules/allowed: "),
        ({"rules": []}, "/payload_columns/1/rules: "),
        ({"default": "\ud800"}, "not JSON in UTF-8"),
    ],
)
def test_a_bad_column_is_named_with_its_place(changes: dict[str, Any], place: str) -> None:
    (problem,) = in_column(**changes)
    assert problem.startswith(place)


@pytest.mark.parametrize("name", [*CURATED_SYSTEM_COLUMNS, *ICEBERG_METADATA_COLUMNS])
def test_a_column_cannot_take_the_name_of_a_system_column(name: str) -> None:
    (problem,) = in_column(name=name)
    assert problem.startswith(f"/payload_columns/1: {name!r} is a system column")


def test_every_problem_of_a_file_is_listed() -> None:
    columns = [column("B"), column(), column(type="X")]
    found = problems(table_name="A", version=0, payload_columns=columns, measures=[])
    assert [problem.split(":")[0] for problem in found] == [
        "/table_name",
        "/version",
        "/payload_columns/0/name",
        "/payload_columns/2/type",
    ]


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
