"""What is expected of columns and of drift: the grammar of names, and the lines that batches of paths give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.payload.columns import register
from leanops.domain.payload.paths import path_of
from leanops.emulation.verify.drifted import ADDED, REMOVED, TYPE_CHANGED, UNKNOWN, Line, Seen, compare, objects
from leanops.emulation.verify.layers import misnamed, plain_name

NUMBER, STRING = frozenset({"number"}), frozenset({"string"})
BOTH = NUMBER | STRING


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$.event.userId", "event_userid"),
        ('$["a.b"].c', "a_b_c"),
        ('$[""]', "_"),
        ('$["0"]', "_0"),
        ('$["größe"]', "gr__e"),
        ('$["say \\"x\\""]', "say__x_"),
        (f"$.{'long' * 40}", "long" * 32),
    ],
)
def test_a_column_has_the_name_of_its_path(path: str, name: str) -> None:
    assert plain_name(path) == name
    assert misnamed({path: name}) == {}
    assert misnamed({path: f"{name}_2"[-128:]})


def test_of_paths_with_one_name_all_but_one_have_a_hash() -> None:
    right = {
        "$.userId": "userid",
        "$.userid": "userid_0a1b2c",
        "$._file": "_file_0a1b2c",
        "$.message_id": "message_id_a1b2c3",
    }
    assert misnamed(right) == {}
    assert misnamed({"$.userId": "userid_0a1b2c"}), "nobody else has its name"
    assert misnamed({"$.userId": "userid_a1b2c3", "$.userid": "userid_0a1b2c"}), "somebody must have it"
    assert misnamed({"$.message_id": "message_id"}), "it is a system column's"
    assert misnamed({"$.userId": "userid", "$.userid": "another_0a1b2c"})


segments = st.text(st.sampled_from('aAbB_.0 ß"\\'), max_size=4)


@given(st.sets(st.lists(segments, min_size=1, max_size=3).map(lambda parts: path_of(tuple(parts))), max_size=12))
def test_names_that_are_given_out_are_right(paths: set[str]) -> None:
    assert misnamed(register({}, paths)) == {}


def lines(batches: int, patience: int = 3, **paths: dict[int, frozenset[str]]) -> list[Line]:
    seen = Seen(list(range(1, batches + 1)), {f"$.{path}": kinds for path, kinds in paths.items()})
    return seen.lines(patience)


def test_a_path_is_added_with_the_first_batch_that_has_it() -> None:
    assert lines(3, x={2: NUMBER, 3: NUMBER}) == [Line("$.x", ADDED, 2, None, "number")]


def test_a_kind_the_batch_before_had_not_is_a_change() -> None:
    found = lines(4, x={1: NUMBER, 2: BOTH, 3: NUMBER, 4: STRING})
    assert found[1:] == [
        Line("$.x", TYPE_CHANGED, 2, "number", "number|string"),
        Line("$.x", TYPE_CHANGED, 4, "number", "string"),
    ]


def test_a_path_that_comes_with_two_kinds_has_changed_already() -> None:
    assert lines(2, x={2: BOTH})[1:] == [Line("$.x", TYPE_CHANGED, 2, "number", "number|string")]


def test_in_the_first_batch_of_a_topic_nothing_has_changed() -> None:
    assert lines(1, x={1: BOTH}) == [Line("$.x", ADDED, 1, None, "number|string")]


def test_a_path_is_removed_once_for_each_time_it_stays_away() -> None:
    gone = [line.batch for line in lines(12, x={1: NUMBER, 3: NUMBER, 7: NUMBER}) if line.action == REMOVED]
    assert gone == [6, 10]
    assert [line for line in lines(3, x={1: NUMBER}) if line.action == REMOVED] == []


def test_a_path_becomes_an_object_with_the_first_batch_that_has_a_path_below_it() -> None:
    paths = {"$.x": {1: NUMBER}, "$.x.a": {3: NUMBER, 4: NUMBER}, "$.x[0]": {1: NUMBER}, "$.xy": {2: NUMBER}}
    assert objects(paths) == {"$.x": {3}}
    changed = Seen([1, 2, 3, 4], {"$.x": {1: NUMBER}}, objects(paths)).lines(patience=9)[1:]
    assert changed == [Line("$.x", TYPE_CHANGED, 3, "number", "object")]


def test_a_path_of_an_unknown_kind_becomes_an_object_as_well() -> None:
    """An event without its optional object was alone in the first batch, and had a text in the object's place."""
    paths = {"$.risk": {1: UNKNOWN, 2: UNKNOWN}, "$.risk.score": {2: NUMBER}}
    expected = [line for line in Seen([1, 2], paths, objects(paths)).lines(patience=3) if line.action == TYPE_CHANGED]
    assert expected == [Line("$.risk", TYPE_CHANGED, 2)]
    assert compare(expected, [Line("$.risk", TYPE_CHANGED, 2, "string", "object|string")], {}).passed


COLUMNS = {"$.x": "x", "$.y": "y"}
ADDED_X = Line("$.x", ADDED, 1, None, "number", "x")
CHANGED_X = Line("$.x", TYPE_CHANGED, 2, "number", "string", "x")


def reasons(*found: Line) -> list[tuple[str, str]]:
    check = compare([ADDED_X._replace(column=None), CHANGED_X._replace(column=None)], found, COLUMNS)
    assert check.passed == (not check.wrong)
    return [(wrong.message_id, wrong.what) for wrong in check.examples]


def test_the_lines_that_must_be_there_are_right() -> None:
    assert reasons(ADDED_X, CHANGED_X) == []


def test_a_line_that_is_missing_doubled_or_too_much_is_named() -> None:
    assert reasons(ADDED_X) == [("$.x", "is not in drift_log as TYPE_CHANGED, number to string, by batch 2")]
    assert reasons(ADDED_X, CHANGED_X, CHANGED_X) == [
        ("$.x", "is in drift_log 2 times as TYPE_CHANGED, number to string, by batch 2")
    ]
    assert reasons(ADDED_X, CHANGED_X, Line("$.y", REMOVED, 2, "number", None, "y")) == [
        ("$.y", "must not be in drift_log as REMOVED, number to nothing, by batch 2")
    ]


def test_a_line_with_other_kinds_or_another_column_is_named() -> None:
    assert "other kinds" in reasons(ADDED_X, CHANGED_X._replace(old="array"))[0][1]
    assert "other kinds" in reasons(ADDED_X._replace(new=None), CHANGED_X)[0][1]
    assert "another column" in reasons(ADDED_X, CHANGED_X._replace(column="y"))[0][1]


def test_kinds_the_ledger_does_not_tell_are_not_compared() -> None:
    untold = lines(1, x={1: UNKNOWN})
    assert compare(untold, [Line("$.x", ADDED, 1, None, "array", "x")], COLUMNS).passed
