"""What changes between two schemas: every change has its kind, and relaxing is the inverse of tightening."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.schema.diff import Kind, difference
from leanops.domain.schema.model import ColumnType, Schema
from leanops.domain.schema.types import is_widening
from leanops.usecases.operations.activate import fingerprint
from tests.support.builders import column, schema

ORDER = [Kind.NEUTRAL, Kind.ADDITIVE, Kind.RESTRICTIVE, Kind.BREAKING]
NUMBER = {"type": "DECIMAL(18,2)"}


def _kinds(old: dict[str, Any], new: dict[str, Any]) -> list[Kind]:
    """The kinds of what changes between two forms of one column."""
    return [change.kind for change in difference(schema(column(**old)), schema(column(**new))).changes]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ({"type": "INT"}, {"type": "BIGINT"}, Kind.ADDITIVE),
        ({"type": "DECIMAL(10,2)"}, {"type": "DECIMAL(12,2)"}, Kind.ADDITIVE),
        ({"type": "DECIMAL(10,2)"}, {"type": "DECIMAL(12,3)"}, Kind.BREAKING),
        ({"type": "BIGINT"}, {"type": "INT"}, Kind.BREAKING),
        ({"type": "INT"}, {"type": "STRING"}, Kind.BREAKING),
        ({"type": "INT"}, {"type": "DOUBLE"}, Kind.BREAKING),
        ({}, {"cde": True}, Kind.RESTRICTIVE),
        ({"cde": True}, {}, Kind.ADDITIVE),
        ({}, {"default": "x"}, Kind.ADDITIVE),
        ({"default": "x"}, {"default": "y"}, Kind.RESTRICTIVE),
        ({"default": "x"}, {}, Kind.RESTRICTIVE),
        ({}, {"path": "$.other"}, Kind.BREAKING),
        ({"type": "DATE"}, {"type": "DATE", "format": "yyyyMMdd"}, Kind.BREAKING),
        ({}, {"pii": "mask"}, Kind.BREAKING),
        ({"pii": "mask"}, {"pii": "hmac"}, Kind.BREAKING),
        ({"pii": "hmac"}, {}, Kind.BREAKING),
        ({}, {"description": "a column"}, Kind.NEUTRAL),
        ({}, {"rules": {"pattern": "a"}}, Kind.RESTRICTIVE),
        ({"rules": {"pattern": "a"}}, {"rules": {"pattern": "a|b"}}, Kind.RESTRICTIVE),
        ({"rules": {"pattern": "a"}}, {}, Kind.ADDITIVE),
        ({"rules": {"min_length": 2}}, {"rules": {"min_length": 1}}, Kind.ADDITIVE),
        ({"rules": {"max_length": 2}}, {"rules": {"max_length": 1}}, Kind.RESTRICTIVE),
        ({"rules": {"allowed": ["a"]}}, {"rules": {"allowed": ["b", "a"]}}, Kind.ADDITIVE),
        ({"rules": {"allowed": ["a"]}}, {"rules": {"allowed": ["b"]}}, Kind.RESTRICTIVE),
        ({"rules": {"min": "ä"}}, {"rules": {"min": "z"}}, Kind.ADDITIVE),
        ({**NUMBER, "rules": {"min": 9}}, {**NUMBER, "rules": {"min": 10}}, Kind.RESTRICTIVE),
        ({**NUMBER, "rules": {"max": 9}}, {**NUMBER, "rules": {"max": 10}}, Kind.ADDITIVE),
        ({"type": "INT", "rules": {"max": 9}}, {"type": "BIGINT", "rules": {"max": 9}}, Kind.ADDITIVE),
    ],
)
def test_a_change_of_a_column_has_its_kind(old: dict[str, Any], new: dict[str, Any], kind: Kind) -> None:
    assert _kinds(old, new) == [kind]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({**NUMBER, "rules": {"min": "1"}}, {**NUMBER, "rules": {"min": "1.00"}}),
        ({"rules": {"allowed": ["a", "b"]}}, {"rules": {"allowed": ["b", "a"]}}),
        ({**NUMBER, "rules": {"allowed": ["1", "2"]}}, {**NUMBER, "rules": {"allowed": ["2.0", "1e0"]}}),
        (
            {"type": "TIMESTAMP", "rules": {"max": "2030-01-01T00:00Z"}},
            {"type": "TIMESTAMP", "rules": {"max": "2030-01-01 01:00:00+01:00"}},
        ),
        (
            {"type": "TIMESTAMP", "rules": {"max": "2030-01-01T00:00"}},
            {"type": "TIMESTAMP", "rules": {"max": "2030-01-01T00:00:00Z"}},
        ),
    ],
)
def test_limits_are_compared_as_values_not_as_texts(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert _kinds(old, new) == [Kind.NEUTRAL]


def test_twenty_digits_are_compared_exactly() -> None:
    old, new = ({**NUMBER, "type": "DECIMAL(38,0)", "rules": {"min": f"1{'0' * 20}{end}"}} for end in "12")
    assert _kinds(old, new) == [Kind.RESTRICTIVE]
    assert _kinds(new, old) == [Kind.ADDITIVE]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, Kind.ADDITIVE),
        ({"default": "x"}, Kind.ADDITIVE),
        ({"cde": True}, Kind.RESTRICTIVE),
        ({"rules": {"min_length": 1}}, Kind.RESTRICTIVE),
    ],
)
def test_a_new_column_is_additive_unless_it_can_refuse_a_row(more: dict[str, Any], kind: Kind) -> None:
    (change,) = difference(schema(column("a")), schema(column("a"), column("b", **more))).changes
    assert (change.kind, change.pointer, change.changes_rows) == (kind, "/payload_columns/1", True)


def test_a_column_removed_is_named_by_its_place_in_the_old_file() -> None:
    (change,) = difference(schema(column("a"), column("b")), schema(column("a"))).changes
    assert (change.kind, change.pointer, change.what) == (Kind.BREAKING, "/payload_columns/1", "b removed")


def test_a_rename_is_a_removal_and_an_addition_and_says_so() -> None:
    found = difference(schema(column("a"), column("b")), schema(column("a"), column("c", path="$.b")))
    added, removed = found.changes
    assert (added.kind, removed.kind, found.kind) == (Kind.ADDITIVE, Kind.BREAKING, Kind.BREAKING)
    assert "in place of b" in added.what
    assert "c takes its path $.b" in removed.what


@pytest.mark.parametrize(
    "keys",
    [{"idempotency_key": "$.id"}, {"version": "$.v"}, {"period": "$.p"}, {"pii": "hmac"}],
    ids=lambda keys: str([*keys]),
)
def test_keys_break_and_need_raw(keys: dict[str, str]) -> None:
    found = difference(schema(), schema(keys=keys))
    assert (found.kind, found.needs_raw, found.changes_rows) == (Kind.BREAKING, True, True)
    assert [change.pointer for change in found.changes] == [f"/keys/{name}" for name in keys]


def test_a_default_that_is_spelled_out_is_no_change() -> None:
    keys = {"idempotency_key": "$._metadata.idempotencyKeyResource"}
    assert difference(schema(), schema(keys=keys)).changes == ()


@pytest.mark.parametrize(
    ("old", "new", "kind", "needs_raw"),
    [
        ("evolve", "quarantine", Kind.RESTRICTIVE, True),
        ("rescue", "quarantine", Kind.RESTRICTIVE, True),
        ("quarantine", "evolve", Kind.ADDITIVE, True),
        ("evolve", "rescue", Kind.NEUTRAL, False),
    ],
)
def test_the_contract_holds_for_what_arrives(old: str, new: str, kind: Kind, needs_raw: bool) -> None:
    (change,) = difference(schema(policies={"unknown_fields": old}), schema(policies={"unknown_fields": new})).changes
    assert (change.kind, change.needs_raw, change.changes_rows) == (kind, needs_raw, False)


@pytest.mark.parametrize(
    "members",
    [
        {"owner": "me"},
        {"description": "orders"},
        {"envelope_columns": [{"name": "message_id", "type": "STRING"}]},
        {"policies": {"lookback_months": 3}},
        {"policies": {"on_breaking": "rebuild"}},
    ],
    ids=str,
)
def test_what_changes_no_row_is_neutral(members: dict[str, Any]) -> None:
    found = difference(schema(), schema(**members))
    assert [change.kind for change in found.changes] == [Kind.NEUTRAL]
    assert not found.changes_rows
    assert not found.needs_raw


def test_other_measures_are_neutral() -> None:
    amount = column(type="INT")
    assert difference(schema(amount), schema(amount, measures=["c"])).kind == Kind.NEUTRAL


def test_another_order_of_columns_is_neutral() -> None:
    found = difference(schema(column("a"), column("b")), schema(column("b"), column("a")))
    assert [change.kind for change in found.changes] == [Kind.NEUTRAL]


def test_another_version_number_is_no_change() -> None:
    assert difference(schema(version=1), schema(version=7)).changes == ()


def test_another_table_breaks() -> None:
    assert difference(schema(), schema(table_name="others")).kind == Kind.BREAKING


def test_the_first_schema_has_a_kind_of_its_own() -> None:
    found = difference(None, schema())
    assert (found.kind, found.needs_raw, len(found.changes)) == (Kind.FIRST, False, 1)


def test_a_first_schema_with_keys_of_its_own_needs_raw() -> None:
    assert difference(None, schema(keys={"version": "$.v"})).needs_raw


TYPES = ["STRING", "INT", "BIGINT", "DECIMAL(10,2)", "DECIMAL(12,2)", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"]
VALUES = {
    "BOOLEAN": ["true", "false"],
    "DATE": ["2024-01-01", "2024-02-01"],
    "TIMESTAMP": ["2024-01-01T00:00Z", "2024-01-01T02:00+01:00"],
}


@st.composite
def columns(draw: st.DrawFn, name: str) -> dict[str, Any]:
    kind = draw(st.sampled_from(TYPES))
    value = st.sampled_from(VALUES.get(kind, ["1", "2", "10"]))
    rule = draw(
        st.just({})
        | st.builds(lambda limit: {"min": limit}, value)
        | st.builds(lambda limit: {"max": limit}, value)
        | st.builds(lambda known: {"allowed": known}, st.lists(value, min_size=1, max_size=2, unique=True))
        | st.builds(lambda length: {"min_length": length}, st.integers(1, 3))
    )
    # A default that breaks the rule beside it would make the file no schema.
    default = {} if rule else {"default": draw(st.none() | value)}
    path = draw(st.sampled_from([f"$.{name}", "$.shared"]))
    return column(name, path=path, type=kind, cde=draw(st.booleans()), rules=rule, **default)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
    contract = draw(st.sampled_from(["evolve", "rescue", "quarantine"]))
    keys = draw(st.sampled_from([{}, {"version": "$.v"}]))
    owner = draw(st.none() | st.just("me"))
    found = [draw(columns(name)) for name in names]
    return schema(*found, keys=keys, owner=owner, policies={"unknown_fields": contract})


@given(schemas())
def test_a_schema_does_not_differ_from_itself(one: Schema) -> None:
    assert difference(one, one).changes == ()


@given(schemas(), schemas())
def test_two_schemas_differ_where_their_fingerprints_do(one: Schema, other: Schema) -> None:
    assert bool(difference(one, other).changes) == (fingerprint(one) != fingerprint(other))


@given(schemas(), schemas())
def test_the_kind_is_that_of_the_worst_change(one: Schema, other: Schema) -> None:
    found = difference(one, other)
    assert found.kind == max((change.kind for change in found.changes), key=ORDER.index, default=Kind.NEUTRAL)


@given(schemas(), schemas())
def test_what_is_additive_one_way_is_not_additive_the_other_way(one: Schema, other: Schema) -> None:
    there, back = difference(one, other), difference(other, one)
    if there.kind == Kind.ADDITIVE:
        assert back.kind in (Kind.RESTRICTIVE, Kind.BREAKING)
    assert bool(there.changes) == bool(back.changes)


WIDER = {"INT": "BIGINT", "DECIMAL(10,2)": "DECIMAL(12,2)"}


@given(columns("a"), st.data())
def test_relaxing_is_the_inverse_of_tightening(strict: dict[str, Any], data: st.DataObject) -> None:
    loose = {
        **strict,
        "type": WIDER.get(strict["type"], strict["type"]) if data.draw(st.booleans()) else strict["type"],
        "cde": strict["cde"] and data.draw(st.booleans()),
        "rules": data.draw(st.sampled_from([{}, strict["rules"]])),
    }
    there, back = difference(schema(strict), schema(loose)), difference(schema(loose), schema(strict))
    assert {change.kind for change in there.changes} <= {Kind.ADDITIVE}
    assert {change.kind for change in back.changes} <= {Kind.RESTRICTIVE, Kind.BREAKING}
    assert [change.pointer for change in there.changes] == [change.pointer for change in back.changes]


@given(st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_no_type_is_wider_than_one_that_is_wider_than_it(one: str, other: str) -> None:
    first, second = (schema(column(type=kind)).payload_columns[0].type for kind in (one, other))
    assert not (is_widening(first, second) and is_widening(second, first))


def test_only_what_iceberg_promotes_in_place_is_a_widening() -> None:
    assert is_widening(ColumnType("INT"), ColumnType("BIGINT"))
    assert not is_widening(ColumnType("INT"), ColumnType("INT"))
    assert not is_widening(ColumnType("BIGINT"), ColumnType("DECIMAL", 38, 0))
