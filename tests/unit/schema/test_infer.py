"""A proposal from what was seen: types, keys, critical values and PII."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.payload.paths import path_of
from leanops.domain.schema.infer import MOST_COLUMNS, Seen, candidate, candidates, guess_pii, guess_type, propose
from leanops.domain.schema.model import ColumnType, DateFormat, schema_from_json
from leanops.domain.schema.parse import DEFAULT_KEY_PATH
from leanops.usecases.schemas.infer import proposed_text

EVENTS = 100
DATE, TIMESTAMP = ColumnType("DATE"), ColumnType("TIMESTAMP")
WHOLE = ("int", "bigint", *(f"decimal_{scale}" for scale in (0, 2, 4, 6, 10, 18)), "double")


def seen(path: str = "$.a", kind: str = "string", *holds: str, **rest: Any) -> Seen:
    """A path that every event has, all of whose values these candidates take."""
    return Seen(
        path,
        frozenset(kind.split("|")),
        **{"events": EVENTS, "distinct": 5, "holds": dict.fromkeys(holds, EVENTS), **rest},
    )


@pytest.mark.parametrize(
    ("one", "type_name"),
    [
        (seen("$.a", "number", *WHOLE, digits=3), "INT"),
        (seen("$.a", "number", *WHOLE, digits=9), "BIGINT"),
        (seen("$.a", "number", *WHOLE[1:], digits=12), "BIGINT"),
        (seen("$.a", "number", *WHOLE[2:], digits=25), "DECIMAL(29,0)"),
        (seen("$.a", "number", *WHOLE[3:], digits=5), "DECIMAL(18,2)"),
        (seen("$.a", "number", *WHOLE[3:], digits=15), "DECIMAL(21,2)"),
        (seen("$.a", "number", *WHOLE[3:], digits=36), "DECIMAL(38,2)"),
        (seen("$.a", "number", "double"), "DOUBLE"),
        (seen("$.a", "number"), "STRING"),
        (seen("$.a", "boolean", "boolean"), "BOOLEAN"),
        (seen("$.a", "string", "boolean"), "BOOLEAN"),
        (seen("$.a", "string", *WHOLE, digits=3), "STRING"),
        (seen("$.a", "string", *WHOLE, leading_zeros=4), "STRING"),
        (seen("$.a", "number|string", *WHOLE), "STRING"),
        (seen("$.a", "array"), "STRING"),
        (seen("$.a", "string", "timestamp"), "TIMESTAMP"),
        (seen("$.a", "string", candidate(DATE, DateFormat.ISO)), "DATE"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_narrowest_type_that_takes_every_value(one: Seen, type_name: str) -> None:
    assert str(guess_type(one).type) == type_name


def test_one_value_too_many_and_the_type_is_another() -> None:
    almost = {"timestamp": EVENTS - 1, candidate(DATE, DateFormat.ISO): 1}
    assert str(guess_type(seen(holds=almost)).type) == "STRING"


def test_a_narrower_type_that_nearly_holds_is_named() -> None:
    mixed = seen("$.a", "number|string", holds={"int": 98, "bigint": 98})
    odd = seen("$.b", "number", holds={"decimal_2": 95, "decimal_4": EVENTS}, digits=3)
    reasons = [column.reason for column in propose([mixed, odd], EVENTS, EVENTS).columns]
    assert "INT in 98.0 % of them" in reasons[0]
    assert "2 decimals in 95.0 % of them" in reasons[1]


@pytest.mark.parametrize(
    ("path", "least", "form"),
    [
        ("$.created_at", 1_706_695_200, DateFormat.EPOCH_SECONDS),
        ("$.createdAt", 1_706_695_200_000, DateFormat.EPOCH_MILLIS),
    ],
)
def test_an_epoch_is_a_timestamp_where_the_name_says_a_time(path: str, least: int, form: DateFormat) -> None:
    held = [*WHOLE, candidate(TIMESTAMP, form)]
    found = guess_type(seen(path, "number", *held, least=least, greatest=least + 9, digits=13))
    assert (str(found.type), found.format) == ("TIMESTAMP", form)
    assert str(guess_type(seen("$.amount", "number", *WHOLE, least=least, greatest=least, digits=13)).type) == "BIGINT"


def test_eight_digits_are_a_date_where_the_name_says_a_date() -> None:
    compact = candidate(DATE, DateFormat.COMPACT)
    assert guess_type(seen("$.due_date", "string", compact, *WHOLE)).format == DateFormat.COMPACT
    assert str(guess_type(seen("$.account", "string", compact, *WHOLE)).type) == "STRING"


def test_a_date_that_can_be_read_two_ways_says_so() -> None:
    both = [candidate(DATE, form) for form in (DateFormat.DAY_MONTH_YEAR, DateFormat.MONTH_DAY_YEAR)]
    found = guess_type(seen("$.due", "string", *both))
    assert found.format == DateFormat.DAY_MONTH_YEAR
    assert "MM/dd/yyyy too" in found.reason


@pytest.mark.parametrize(
    ("path", "pii"),
    [
        ("$.customer.email", "hmac"),
        ("$.contactEMail", "hmac"),
        ("$.phone_number", "mask"),
        ("$.account.iban", "mask"),
        ("$.customer.name", "hmac"),
        ("$.firstName", "hmac"),
        ("$.birthDate", "hmac"),
        ("$.shipping.address", "hmac"),
        ("$.product.name", None),
        ("$.event_name", None),
        ("$.email_count", None),
        ("$.ip_address", None),
        ("$.emailVerified", None),
        ("$.order.id", None),
    ],
)
def test_names_tell_personal_data(path: str, pii: str | None) -> None:
    found = guess_pii(seen(path))
    assert (found[0] if found else None) == pii


@pytest.mark.parametrize(("shape", "pii"), [("email", "hmac"), ("phone", "mask"), ("iban", "mask"), ("card", "mask")])
def test_shapes_tell_personal_data(shape: str, pii: str) -> None:
    assert guess_pii(seen("$.x", "string", f"is_{shape}")) == (pii, f"shape ({shape})")
    assert guess_pii(seen("$.x", holds={f"is_{shape}": EVENTS - 1})) is None


def test_what_is_hidden_is_a_text() -> None:
    (column,) = propose([seen("$.birth_date", "string", candidate(DATE, DateFormat.ISO))], EVENTS, EVENTS).columns
    assert (str(column.type), column.pii) == ("STRING", "hmac")


def test_what_is_never_missing_is_critical() -> None:
    always, seldom = seen("$.a"), seen("$.b", events=EVENTS - 1)
    blank, array = seen("$.c", blank=1), seen("$.d", "array")
    columns = propose([always, seldom, blank, array], EVENTS, EVENTS).columns
    assert [column.name for column in columns if column.cde] == ["a"]


def test_a_few_events_say_nothing_about_what_is_critical() -> None:
    assert not propose([seen("$.a", events=3)], 3, 3).columns[0].cde


def test_events_with_a_key_need_no_other() -> None:
    assert propose([seen("$.id", distinct=EVENTS)], EVENTS, EVENTS).keys == {}


def test_the_likely_key_is_nearly_unique_and_named_like_one() -> None:
    paths = [seen("$.order.id", distinct=95), seen("$.shopId", distinct=3), seen("$.note", distinct=EVENTS)]
    found = propose(paths, EVENTS, 0)
    assert found.keys == {"idempotency_key": "$.order.id"}
    assert "look at it first" in found.notes[0]


def test_a_topic_without_a_likely_key_says_so() -> None:
    found = propose([seen("$.note")], EVENTS, 0)
    assert found.keys == {}
    assert "keys.idempotency_key" in found.notes[0]


def test_a_personal_key_is_sealed() -> None:
    found = propose([seen("$.id", "string", "is_email", distinct=EVENTS)], EVENTS, 0)
    assert found.keys == {"idempotency_key": "$.id", "pii": "hmac"}
    assert [(one.path, one.pii) for one in found.columns] == [("$.id", "hmac")]


def test_version_and_period_are_found_by_name_and_content() -> None:
    paths = [
        seen("$.createdAt", "string", "timestamp"),
        seen("$.order.updatedAt", "string", "timestamp"),
        seen("$.updatedBy"),
        seen("$.billing.month", "string", "period"),
    ]
    assert propose(paths, EVENTS, EVENTS).keys == {"version": "$.order.updatedAt", "period": "$.billing.month"}


def test_a_period_at_a_default_path_is_not_spelled_out() -> None:
    assert propose([seen("$.periodReference", "string", "period")], EVENTS, EVENTS).keys == {}


def test_the_proposal_is_a_schema_whatever_the_paths_are() -> None:
    odd = [
        "$.message_id",
        "$._schema_version",
        "$._file",
        '$["a.b"]',
        '$["1st"]',
        '$[""]',
        "$.record_key",
    ]
    found = propose([seen(path) for path in odd], EVENTS, EVENTS)
    columns = [column.definition() for column in found.columns]
    text = json.dumps({"table_name": "t", "envelope_columns": [], "payload_columns": columns})
    assert [column.path for column in schema_from_json(text, "draft").payload_columns] == odd
    assert "in all events" in columns[0]["description"]


def test_a_path_with_a_name_of_the_engines_is_proposed_under_a_name_that_lint_takes() -> None:
    proposal = propose([seen("$.__v"), seen(path_of(("__" + "x" * 200,)))], EVENTS, EVENTS)
    schema = schema_from_json(proposed_text("orders", proposal), "proposed")
    assert [column.path for column in schema.payload_columns if column.name.startswith("x__v_")] == ["$.__v"]


def test_of_paths_that_share_a_name_the_commoner_is_kept() -> None:
    found = propose([seen("$.a_b", events=3), seen("$.a.b")], EVENTS, EVENTS)
    assert [column.path for column in found.columns] == ["$.a.b"]
    assert found.notes == ("left out: $.a_b, because $.a.b has the same name",)


def test_numbers_that_the_cast_of_an_epoch_does_not_take_are_none() -> None:
    written_otherwise = seen("$.createdAt", "number", *WHOLE, least=1_760_000_000, greatest=1_760_000_000, digits=10)
    assert str(guess_type(written_otherwise).type) == "BIGINT"


@pytest.mark.parametrize(
    ("paths", "keys"),
    [
        ([seen("$.birthMonth", "string", "period")], {}),
        ([seen("$.addressUpdated", "string", "timestamp")], {}),
        ([seen("$.customer.emailChanged", "string", "timestamp")], {}),
        ([seen("$.version_id", "string", "timestamp", distinct=EVENTS)], {"idempotency_key": "$.version_id"}),
        ([seen("$.monthKey", "string", "period", distinct=EVENTS)], {"idempotency_key": "$.monthKey"}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[0].path,
)
def test_version_and_period_are_neither_the_key_nor_personal(paths: list[Seen], keys: dict[str, str]) -> None:
    assert propose(paths, EVENTS, 0).keys == keys


def test_a_key_at_the_default_path_that_is_personal_is_sealed_with_a_note() -> None:
    found = propose([seen(DEFAULT_KEY_PATH, "string", "is_email"), seen("$.a")], EVENTS, EVENTS)
    assert found.keys == {"pii": "hmac"}
    assert [column.path for column in found.columns] == ["$.a"]
    assert any("shape (email)" in note for note in found.notes)


def test_of_too_many_paths_the_commonest_are_proposed() -> None:
    rare = [seen(f"$.prices.p{number}", events=1) for number in range(6_000)]
    found = propose([*rare, seen("$.z")], EVENTS, EVENTS)
    assert len(found.columns) == MOST_COLUMNS
    assert found.columns[-1].path == "$.z"
    assert found.notes == ("left out: 5,001 paths with the fewest events",)
    assert schema_from_json(proposed_text("t", found), "draft")


WORDS = ["id", "version", "updated", "month", "email", "name", "customer", "birth", "period", "ID", "a.b", ""]
SEGMENTS = st.lists(st.sampled_from([*WORDS, "versionId", "_metadata", "idempotencyKeyResource"]) | st.text(max_size=3))
PATHS = SEGMENTS.filter(bool).map(lambda segments: path_of(tuple(segments[:3])))
COUNTS = st.integers(0, EVENTS)


@st.composite
def anything_seen(draw: st.DrawFn) -> list[Seen]:
    paths = draw(st.lists(PATHS | st.just(DEFAULT_KEY_PATH), min_size=1, max_size=8, unique=True))
    names = [*candidates(), "period", "is_email"]
    held = st.dictionaries(st.sampled_from(names), st.just(EVENTS) | COUNTS, max_size=len(names))
    kinds = st.sets(st.sampled_from(["string", "number", "boolean", "array"]), min_size=1).map("|".join)
    return [
        seen(
            path,
            draw(kinds),
            holds=draw(held),
            distinct=draw(st.just(EVENTS) | COUNTS),
            events=draw(st.just(EVENTS) | st.integers(1, EVENTS)),
            digits=draw(st.integers(0, 40)),
            least=draw(st.none() | st.just(1_760_000_000)),
            greatest=draw(st.none() | st.just(1_760_000_000)),
        )
        for path in paths
    ]


@given(anything_seen(), st.sampled_from([0, EVENTS]))
def test_every_proposal_is_a_schema(found: list[Seen], keyed: int) -> None:
    proposal = propose(found, EVENTS, keyed)
    read = schema_from_json(proposed_text("t", proposal), "draft")
    assert [column.path for column in read.payload_columns] == [column.path for column in proposal.columns]
