"""Drift: what is remembered of a topic's paths, and rows of drift_log that are exact and written once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.domain.evolution import PathMemory
from leanops.usecases.drift import Memory, drift_rows, mark_logged, note_kinds
from leanops.usecases.platform import Platform
from tests.builders import NOW, platform_in

KINDS = {"$.a": {"string"}, "$.b": {"number"}}
COLUMNS = {"$.a": "a", "$.b": "b"}


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path, removed_after_batches=3) as platform:
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
    saved = Memory("b1", {}, odd, ("$.a", "$.b"))
    saved.save(platform, "orders")
    loaded = Memory.load(platform, "orders")
    assert (loaded.batch_id, loaded.earlier, loaded.paths, loaded.logged) == ("b1", {}, odd, ("$.a", "$.b"))
    assert Memory.load(platform, "users") == Memory()


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
