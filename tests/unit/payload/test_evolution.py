"""New paths: where they go by contract and limits, and the drift they are."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.limits import ColumnLimits
from leanops.domain.payload.columns import register
from leanops.domain.payload.evolution import Drift, PathMemory, drift_between, plan_columns, remember
from leanops.domain.payload.flatten import KINDS
from tests.oracle.flat import Limits, segment
from tests.oracle.model import Model
from tests.oracle.rows import LANDED, RawRow
from tests.oracle.vocabulary import ODD_KEYS

CONTRACTS = ["evolve", "rescue", "quarantine"]
KEYS = st.sets(st.sampled_from([*ODD_KEYS, *"abcdefgh"]), max_size=10)
DEFAULT = ColumnLimits()


def paths(count: int, prefix: str = "p") -> list[str]:
    return [f"$.{prefix}{number:04d}" for number in range(count)]


# Columns


def model_of(
    known: dict[str, str], keys: set[str], named: set[str], contract: str, limits: ColumnLimits
) -> dict[str, Any]:
    """What the oracle makes of a batch with one event for each key."""
    columns = [{"name": f"c{at}", "path": f"${segment(key)}", "type": "STRING"} for at, key in enumerate(named)]
    schema = {"payload_columns": columns, "policies": {"unknown_fields": contract}}
    model = Model("t", schema, Limits(columns=limits.columns, new_columns=limits.new_columns), names=dict(known))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    payloads = ["{}", *(json.dumps({key: 1}) for key in sorted(keys))]
    model.standardize(RawRow(f"m{at}", now, "t", payload, LANDED + at) for at, payload in enumerate(payloads))
    return {
        "columns": model.names,
        "rescued": {path for row in model.standardized.values() for path in row.rescued},
        "refused": {path for failures in model.parse_errors.values() for _, path in failures},
    }


@given(KEYS, KEYS, KEYS, st.sampled_from(CONTRACTS), st.integers(0, 8), st.integers(0, 6))
def test_a_batch_puts_its_paths_where_the_oracle_puts_them(
    known_keys: set[str], keys: set[str], named: set[str], contract: str, columns: int, new_columns: int
) -> None:
    limits = ColumnLimits(columns, new_columns)
    known = register({}, [f"${segment(key)}" for key in known_keys])
    seen, asked = [f"${segment(key)}" for key in keys], [f"${segment(key)}" for key in named]
    plan = plan_columns(known, seen, asked, contract, limits)
    expected = model_of(known, keys, named, contract, limits)
    assert plan.columns == expected["columns"]
    assert set(plan.rescued) == expected["rescued"]
    assert set(plan.refused) == expected["refused"]


@given(KEYS, KEYS, KEYS, st.sampled_from(CONTRACTS), st.integers(0, 8), st.integers(0, 6))
def test_every_path_is_in_exactly_one_place(
    known_keys: set[str], keys: set[str], named: set[str], contract: str, columns: int, new_columns: int
) -> None:
    known = register({}, [f"${segment(key)}" for key in known_keys])
    seen = {f"${segment(key)}" for key in keys}
    plan = plan_columns(
        known, seen, [f"${segment(key)}" for key in named], contract, ColumnLimits(columns, new_columns)
    )
    assert seen <= {*plan.columns, *plan.rescued, *plan.refused}
    places = [*plan.columns, *plan.rescued, *plan.refused]
    assert len(places) == len(set(places))
    assert plan.columns == {**known, **plan.added}
    assert not plan.added.keys() & known.keys()


def test_evolve_adds_a_column_for_every_new_path() -> None:
    plan = plan_columns({"$.a": "a"}, ["$.a", "$.c", "$.b"], [], "evolve", DEFAULT)
    assert plan.added == {"$.b": "b", "$.c": "c"}
    assert plan.columns == {"$.a": "a", "$.b": "b", "$.c": "c"}
    assert (plan.rescued, plan.refused) == ((), ())


@pytest.mark.parametrize(("contract", "place"), [("rescue", "rescued"), ("quarantine", "refused")])
def test_other_contracts_add_only_what_the_schema_names(contract: str, place: str) -> None:
    plan = plan_columns({"$.a": "a"}, ["$.a", "$.c", "$.b", "$.named"], ["$.named"], contract, DEFAULT)
    assert plan.added == {"$.named": "named"}
    assert getattr(plan, place) == ("$.b", "$.c")
    assert len(plan.rescued) + len(plan.refused) == 2


def test_two_hundred_new_paths_get_columns_in_path_order_and_the_next_is_rescued() -> None:
    plan = plan_columns({}, paths(201)[::-1], [], "evolve", DEFAULT)
    assert list(plan.added) == paths(200)
    assert plan.rescued == ("$.p0200",)


def test_a_later_try_of_a_batch_gets_only_the_columns_an_earlier_one_left() -> None:
    limits = ColumnLimits(columns=100, new_columns=3)
    before = register({}, ["$.old", "$.named"])
    seen = [*before, *paths(9)]
    first = plan_columns(before, seen, ["$.named"], "evolve", limits, begun_with=1)
    again = plan_columns(first.columns, seen, ["$.named"], "evolve", limits, begun_with=1)
    assert list(first.added) == paths(3)
    assert (again.added, again.rescued) == ({}, first.rescued)
    halfway = {**before, **dict(list(first.added.items())[:1])}
    assert plan_columns(halfway, seen, ["$.named"], "evolve", limits, begun_with=1).columns == first.columns


def test_a_thousand_columns_are_the_end_and_the_next_path_is_rescued() -> None:
    known = register({}, paths(999, "k"))
    plan = plan_columns(known, paths(2), [], "evolve", DEFAULT)
    assert (list(plan.added), plan.rescued) == (["$.p0000"], ("$.p0001",))
    assert plan_columns(plan.columns, ["$.x"], [], "evolve", DEFAULT).rescued == ("$.x",)


def test_paths_the_schema_names_stand_outside_all_limits() -> None:
    named = paths(300, "named")
    full = register({}, paths(1_000, "k"))
    plan = plan_columns(full, [*paths(3), *named[:5]], named, "evolve", DEFAULT)
    assert sorted(plan.added) == named[:5]
    assert plan.rescued == tuple(paths(3))
    many = register({}, [*paths(900, "k"), *named])
    roomy = plan_columns(many, paths(101), named, "evolve", DEFAULT)
    assert (len(roomy.added), len(roomy.rescued)) == (100, 1)


def test_a_path_that_no_event_has_takes_the_name_of_none_that_has_it() -> None:
    typo, real = "$.payment_status", "$.payment.status"
    first = plan_columns({}, [real], [typo], "evolve", DEFAULT)
    assert first.columns == {real: "payment_status"}
    late = plan_columns(first.columns, [real, typo], [typo], "quarantine", DEFAULT)
    assert late.added.keys() == {typo}
    assert late.columns[real] == "payment_status"


def test_more_columns_than_the_limit_leave_no_room_and_take_nothing_away() -> None:
    known = register({}, paths(20))
    plan = plan_columns(known, ["$.x"], [], "evolve", ColumnLimits(columns=10, new_columns=5))
    assert (plan.columns, plan.rescued) == (known, ("$.x",))


# Drift


def after(*batches: dict[str, set[str]]) -> tuple[dict[str, PathMemory], dict[str, PathMemory]]:
    """The memory before and after the last of some batches."""
    before: dict[str, PathMemory] = {}
    memory: dict[str, PathMemory] = {}
    for kinds in batches:
        before, memory = memory, remember(memory, kinds)
    return before, memory


def test_the_memory_holds_the_kinds_of_the_last_batch_that_had_a_path() -> None:
    _, memory = after({"$.a": {"string"}, "$.b": {"number"}}, {"$.a": {"number", "array"}})
    assert memory == {"$.a": PathMemory(("array", "number"), 2), "$.b": PathMemory(("number",), 1)}


def test_a_kind_that_was_not_there_before_is_drift() -> None:
    changes = after({"$.a": {"number"}, "$.b": {"string"}}, {"$.a": {"number", "string"}, "$.b": {"array"}})
    assert drift_between(*changes, patience=10) == [
        Drift("$.a", "TYPE_CHANGED", "number", "number|string"),
        Drift("$.b", "TYPE_CHANGED", "string", "array"),
    ]


def test_a_kind_that_goes_away_or_stays_is_no_drift() -> None:
    assert drift_between(*after({"$.a": {"number", "string"}}, {"$.a": {"number"}}), patience=10) == []
    assert drift_between(*after({"$.a": {"number"}}, {"$.a": {"number"}}), patience=10) == []
    assert drift_between(*after({"$.a": {"number"}}), patience=10) == []


def test_a_kind_is_compared_with_the_last_batch_that_had_the_path() -> None:
    assert drift_between(*after({"$.a": {"number"}}, {"$.b": {"string"}}, {"$.a": {"string"}}), patience=10) == [
        Drift("$.a", "TYPE_CHANGED", "number", "string")
    ]


def test_a_new_path_with_two_kinds_at_once_is_drift() -> None:
    assert drift_between(*after({"$.b": {"string"}}, {"$.a": {"number", "string"}}), patience=10) == [
        Drift("$.a", "TYPE_CHANGED", "number", "number|string")
    ]


def test_in_the_first_batch_of_a_topic_nothing_has_changed() -> None:
    assert drift_between(*after({"$.a": {"number", "string"}}), patience=10) == []


@pytest.mark.parametrize(
    ("arrives", "becomes"),
    [
        ({"$.a.x": {"number"}}, "object"),
        ({'$.a["x y"].z': {"null"}}, "object"),
        ({"$.a.x": {"number"}, "$.a": {"string"}}, "object|string"),
        ({"$.a.x": {"number"}, "$.a": {"number"}}, "number|object"),
        ({"$.ab.x": {"number"}}, None),
        ({"$.b.x": {"number"}}, None),
    ],
)
def test_a_value_that_becomes_an_object_is_drift_once(arrives: dict[str, set[str]], becomes: str | None) -> None:
    first = {"$.a": {"number"}, "$.b.y": {"string"}}
    changed = [Drift("$.a", "TYPE_CHANGED", "number", becomes)] if becomes else []
    assert drift_between(*after(first, arrives), patience=10) == changed
    assert drift_between(*after(first, arrives, arrives), patience=10) == []


@given(st.integers(1, 12), st.integers(0, 30))
def test_a_path_is_removed_once_when_it_was_not_seen_for_as_many_batches_as_patience(patience: int, more: int) -> None:
    batches = [{"$.a": {"string"}, "$.b": {"number"}}, *[{"$.b": {"number"}}] * more]
    found = [drift_between(*after(*batches[: end + 1]), patience=patience) for end in range(len(batches))]
    removed = Drift("$.a", "REMOVED", "string", None)
    assert found == [[removed] if end == patience else [] for end in range(len(batches))]


@given(st.lists(st.dictionaries(st.sampled_from(["$.a", "$.b", "$.c"]), st.sets(st.sampled_from(KINDS), min_size=1))))
def test_noting_a_batch_again_from_the_same_memory_gives_the_same(batches: list[dict[str, set[str]]]) -> None:
    before, memory = after(*batches)
    assert remember(before, batches[-1] if batches else {}) == memory
    assert drift_between(memory, memory, patience=1) == []
