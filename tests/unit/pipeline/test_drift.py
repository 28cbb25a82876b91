"""Drift: what is remembered of a topic's paths, and rows of drift_log that are exact and written once."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.payload.evolution import MemorySize, PathMemory
from leanops.domain.payload.flatten import KINDS as KINDS_OF_CELLS
from leanops.ports.state import DRIFT_STATE
from leanops.usecases.pipeline.drift import Memory, drift_rows, mark_logged, note_kinds
from leanops.usecases.platform import Platform
from tests.support.builders import NOW, platform_in

KINDS = {"$.a": {"string"}, "$.b": {"number"}}
COLUMNS = {"$.a": "a", "$.b": "b"}
OTHER = PathMemory(("number",), 6)
NUMBERS = count()


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path, pipeline={"removed_after_batches": 3}) as platform:
        yield platform


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform for all examples of a law, each of which has a topic of its own."""
    with platform_in(tmp_path_factory.mktemp("drift")) as platform:
        yield platform


def rows(platform: Platform, columns: dict[str, str] = COLUMNS) -> list[tuple[object, ...]]:
    found = drift_rows(platform, "orders", columns, NOW)
    assert all(
        (row["detected_ts"], row["topic_name"], row["source_layer"]) == (NOW, "orders", "standardized") for row in found
    )
    return [(row["column_name"], row["action"], row["old_value"], row["new_value"]) for row in found]


def log(platform: Platform, batch_id: str, kinds: dict[str, set[str]]) -> list[tuple[object, ...]]:
    """The rows a batch gives drift_log, and the note that they are written."""
    note_kinds(platform, "orders", batch_id, kinds)
    found = rows(platform)
    mark_logged(platform, "orders", list(COLUMNS))
    return found


def test_nothing_is_remembered_before_the_first_batch(platform: Platform) -> None:
    assert Memory.load(platform, "orders") == Memory()
    assert rows(platform, {}) == []


def test_a_memory_comes_back_as_it_was_saved(platform: Platform) -> None:
    odd = {'$["é\n\\"`\u202e😀"]': PathMemory(("array", "string"), 7)}
    for earlier in ({}, odd, dict.fromkeys(odd, PathMemory(("array", "string"), 6)), dict.fromkeys(odd, OTHER)):
        saved = Memory("b1", earlier, odd, frozenset({"one", "two"}), 6, Memory.load(platform, "orders").revision)
        saved.save(platform, "orders")
        assert replace(Memory.load(platform, "orders"), revision=saved.revision) == saved
    assert Memory.load(platform, "users") == Memory()


def test_a_memory_of_an_earlier_version_is_begun_anew(platform: Platform) -> None:
    said = {"batch_id": "b1", "earlier": {}, "paths": {"$.a": [["string"], 1]}, "logged": ["$.a"]}
    platform.state.put(DRIFT_STATE, {"topic_name": "orders", "paths": json.dumps(said), "updated_at": 1}, expected=None)
    note_kinds(platform, "orders", "b2", KINDS)
    assert [row[1] for row in rows(platform)] == ["ADDED", "ADDED"]


def row_bytes(platform: Platform) -> int:
    stored = platform.state.get(DRIFT_STATE, ("orders",))
    assert stored is not None
    return len(str(stored.row["paths"]).encode())


def test_a_thousand_long_columns_and_any_number_of_other_paths_fit_into_a_row(platform: Platform) -> None:
    columns = {f"$.{'x' * 195}{number:04}": f"c{number}" for number in range(1_000)}
    first = {path: {"number"} for path in columns}
    for batch in range(6):
        others = {f"$.y{batch}_{number}": {"string"} for number in range(2_000)}
        kinds = {**others, **first, "$." + "a" * 500_000: {"string"}}
        for _ in range(2):
            note_kinds(platform, "orders", f"b{batch}", kinds)
            assert row_bytes(platform) < 300_000
        found = drift_rows(platform, "orders", columns, NOW)
        assert [row["new_value"] for row in found] == ([] if batch else ["number"] * 1_000)
        mark_logged(platform, "orders", list(columns))
        assert row_bytes(platform) < 300_000
    changed = {path: {"array", "boolean", "number", "string"} for path in columns}
    note_kinds(platform, "orders", "b6", changed)
    assert [row["action"] for row in drift_rows(platform, "orders", columns, NOW)] == ["TYPE_CHANGED"] * 1_000
    assert row_bytes(platform) < 300_000
    assert columns.keys() <= Memory.load(platform, "orders").paths.keys()


def test_columns_are_remembered_while_other_paths_come_and_go(platform: Platform) -> None:
    log(platform, "b1", {"$.a": {"string"}, "$.b": {"number"}})
    found = []
    for batch in range(2, 8):
        others = {f"$.!{batch}_{number}": {"string"} for number in range(2_000)}
        found.append([row for row in log(platform, f"b{batch}", {"$.b": {"number"}, **others}) if row[0] in ("a", "b")])
        remembered = Memory.load(platform, "orders").paths
        assert (len(remembered), "$.a" in remembered) == (1_500, True)
    assert found == [[], [], [("a", "REMOVED", "string", None)], [], [], []]
    assert log(platform, "b8", {"$.a": {"number"}})[0] == ("a", "TYPE_CHANGED", "string", "number")


CELLS = st.sets(st.sampled_from(KINDS_OF_CELLS), min_size=1)


@given(
    batches=st.lists(st.dictionaries(st.sampled_from("abcdefgh"), CELLS), max_size=6),
    columns=st.sets(st.sampled_from("abh")),
)
def test_a_batch_noted_again_after_paths_were_forgotten_gives_the_same(
    shared: Platform, batches: list[dict[str, set[str]]], columns: set[str]
) -> None:
    topic = f"topic_{next(NUMBERS)}"

    def noted(batch: int) -> object:
        note_kinds(shared, topic, f"b{batch}", batches[batch], MemorySize(3, 2))
        return Memory.load(shared, topic).paths, drift_rows(shared, topic, dict.fromkeys(columns, "c"), NOW)

    for batch in range(len(batches)):
        once = noted(batch)
        assert noted(batch) == once
        mark_logged(shared, topic, list(columns))


def test_noting_a_batch_again_is_the_same_as_once(platform: Platform) -> None:
    note_kinds(platform, "orders", "b1", KINDS)
    note_kinds(platform, "orders", "b2", {"$.a": {"number"}})
    once, before = Memory.load(platform, "orders").paths, Memory.load(platform, "orders").before("b2")
    for _ in range(3):
        note_kinds(platform, "orders", "b2", {"$.a": {"number"}})
    memory = Memory.load(platform, "orders")
    assert (memory.paths, memory.before("b2")) == (once, before)
    assert rows(platform) == [
        ("a", "ADDED", None, "number"),
        ("b", "ADDED", None, "number"),
        ("a", "TYPE_CHANGED", "string", "number"),
    ]


def test_a_repeated_batch_starts_from_the_memory_it_started_from_the_first_time(platform: Platform) -> None:
    assert Memory.load(platform, "orders").before("b1") == {}
    note_kinds(platform, "orders", "b1", KINDS)
    memory = Memory.load(platform, "orders")
    assert memory.before("b1") == {}
    assert memory.before("b2") == memory.paths != {}


def test_a_new_column_is_logged_once_with_its_path_and_batch(platform: Platform) -> None:
    note_kinds(platform, "orders", "b1", {"$.a": {"string"}})
    (row,) = drift_rows(platform, "orders", {"$.a": "a"}, NOW)
    assert row == {
        "detected_ts": NOW,
        "topic_name": "orders",
        "column_name": "a",
        "action": "ADDED",
        "source_layer": "standardized",
        "old_value": None,
        "new_value": "string",
        "details": json.dumps({"path": "$.a", "batch_id": "b1"}),
    }
    mark_logged(platform, "orders", ["$.a"])
    assert rows(platform, {"$.a": "a"}) == []


def test_a_column_the_schema_asked_for_is_logged_though_no_event_had_it(platform: Platform) -> None:
    note_kinds(platform, "orders", "b1", {"$.a": {"string"}})
    assert rows(platform) == [("a", "ADDED", None, "string"), ("b", "ADDED", None, None)]


def test_a_column_added_before_a_crash_is_still_logged_later(platform: Platform) -> None:
    assert log(platform, "b1", {"$.a": {"string"}}) != []
    note_kinds(platform, "orders", "b2", {"$.a": {"string"}})
    assert rows(platform, {**COLUMNS, "$.late": "late"}) == [("late", "ADDED", None, None)]


def test_a_change_of_kind_is_logged_once(platform: Platform) -> None:
    log(platform, "b1", KINDS)
    assert log(platform, "b2", {"$.a": {"array", "string"}}) == [("a", "TYPE_CHANGED", "string", "array|string")]
    assert rows(platform) == []
    assert log(platform, "b3", {"$.a": {"array", "string"}}) == []


def test_a_rescued_path_is_logged_by_its_path(platform: Platform) -> None:
    log(platform, "b1", {"$.rescued": {"string"}})
    assert log(platform, "b2", {"$.rescued": {"number"}}) == [("$.rescued", "TYPE_CHANGED", "string", "number")]


def test_a_path_that_stays_away_is_logged_once_when_patience_ends(platform: Platform) -> None:
    log(platform, "b1", KINDS)
    found = [log(platform, f"b{number}", {"$.b": {"number"}}) for number in range(2, 8)]
    assert found == [[], [], [("a", "REMOVED", "string", None)], [], [], []]
    assert log(platform, "b8", KINDS) == []


def test_a_path_that_comes_back_in_time_is_not_removed(platform: Platform) -> None:
    log(platform, "b1", KINDS)
    turns = [{"$.b": {"number"}}, {"$.b": {"number"}}, KINDS, {"$.b": {"number"}}, {"$.b": {"number"}}]
    assert [log(platform, f"b{number}", kinds) for number, kinds in enumerate(turns, start=2)] == [[]] * 5


def test_topics_have_memories_of_their_own(platform: Platform) -> None:
    note_kinds(platform, "users", "b1", {"$.a": {"string"}})
    assert rows(platform, {}) == []
    mark_logged(platform, "users", ["$.a"])
    assert rows(platform, {"$.a": "a"}) == [("a", "ADDED", None, None)]
