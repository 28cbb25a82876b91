"""Column names: those of the oracle, within the grammar, each path its own, and none ever moves."""

import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import PermanentError
from leanops.domain.payload.columns import LONGEST_NAME, check_names, plain_name, register
from leanops.domain.payload.paths import path_of
from leanops.domain.table.definitions import ICEBERG_METADATA_COLUMNS, STANDARDIZED_SYSTEM_COLUMNS
from tests.oracle import names as oracle
from tests.oracle import vocabulary as words

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
COLLIDING = st.sampled_from(["a", "b", "a_b", "A.B", "a-b", "A_b", "é", "è", "", "_", "__", "1", "_1", "x" * 130])
SEGMENT = st.sampled_from([*words.ODD_KEYS, *oracle.SYSTEM_COLUMNS, *oracle.ICEBERG_NAMES]) | COLLIDING | TEXT
PATHS = st.lists(SEGMENT, min_size=1, max_size=3).map(lambda segments: path_of(tuple(segments)))
GRAMMAR = re.compile(r"[a-z_][a-z0-9_]{0,127}")


@given(PATHS)
def test_a_path_asks_for_the_name_the_oracle_gives_it(path: str) -> None:
    assert plain_name(path) == oracle.plain_name(path)


@given(st.sets(PATHS, max_size=20), st.sets(PATHS, max_size=20))
def test_new_paths_get_the_names_of_the_oracle_beside_any_registry(before: set[str], new: set[str]) -> None:
    known = register({}, before)
    assert {**known, **register(known, new)} == oracle.register(oracle.register({}, before), new)


@given(st.lists(st.sets(PATHS, max_size=10), max_size=4))
def test_names_are_unique_within_the_grammar_and_nobody_elses(batches: list[set[str]]) -> None:
    known: dict[str, str] = {}
    for paths in batches:
        added = register(known, paths)
        assert added.keys() == paths - known.keys()
        known |= added
    assert len(set(known.values())) == len(known)
    assert all(GRAMMAR.fullmatch(name) for name in known.values())
    assert set(known.values()).isdisjoint({*STANDARDIZED_SYSTEM_COLUMNS, *ICEBERG_METADATA_COLUMNS})


@given(st.lists(PATHS, max_size=20))
def test_the_order_paths_are_given_in_does_not_matter(paths: list[str]) -> None:
    assert register({}, paths) == register({}, reversed(paths))


@given(st.sets(PATHS, max_size=20))
def test_a_registered_path_is_not_registered_again(paths: set[str]) -> None:
    assert register(register({}, paths), paths) == {}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$.event.userId", "event_userid"),
        ('$["a.b"]', "a_b"),
        ('$["1st"].x', "_1st_x"),
        ('$.a["1st"]', "a_1st"),
        ('$[""]', "_"),
        ('$[""][""]', "___"),
        ('$["日本"]', "__"),
        ('$["İ"]', "i_"),
        ('$["a`b; drop table t--"]', "a_b__drop_table_t__"),
        ('$["' + "x" * 128 + '"]', "x" * 128),
        ('$["' + "x" * 129 + '"]', "x" * 128),
        ('$["1' + "x" * 128 + '"]', "_1" + "x" * 126),
    ],
)
def test_a_name_is_made_by_the_grammar(path: str, name: str) -> None:
    assert plain_name(path) == name


def digits(path: str, count: int) -> str:
    return sha256(path.encode()).hexdigest()[:count]


def test_the_first_in_path_order_keeps_the_name_and_the_others_get_a_hash() -> None:
    paths = ['$["a.b"]', "$.a.b", "$.a_b"]
    assert register({}, paths) == {
        "$.a.b": "a_b",
        "$.a_b": f"a_b_{digits('$.a_b', 6)}",
        '$["a.b"]': f"a_b_{digits(paths[0], 6)}",
    }


def test_who_was_registered_first_keeps_the_name_whatever_sorts_before_it() -> None:
    known = register({}, ["$.userid"])
    assert register(known, ["$.userId"]) == {"$.userId": f"userid_{digits('$.userId', 6)}"}


@pytest.mark.parametrize("name", [*STANDARDIZED_SYSTEM_COLUMNS, *ICEBERG_METADATA_COLUMNS])
def test_a_path_that_meets_a_system_column_gets_a_hash(name: str) -> None:
    assert register({}, [f"$.{name}"]) == {f"$.{name}": f"{name}_{digits(f'$.{name}', 6)}"}


@pytest.mark.parametrize(
    "name", ["__row_operation", "__original_row_id__pos", "__row_from_source", "__v", "__", "publish_time_day"]
)
def test_a_path_that_meets_a_name_of_the_engines_gets_a_hash(name: str) -> None:
    assert register({}, [f"$.{name}"]) == {f"$.{name}": f"{name}_{digits(f'$.{name}', 6)}"}


def test_a_table_with_a_column_that_breaks_merge_is_refused_and_one_with_other_odd_names_is_not() -> None:
    check_names("db.orders", ["__v", "__row", "publish_time_day", "_file"], ["_version"], "rebuild it")
    with pytest.raises(PermanentError, match=r"^db\.orders has .*\(__original_row_id__pos, _version\), so .*; do it$"):
        check_names("db.orders", ["a", "_version", "__original_row_id__pos"], ["_version"], "do it")


def test_a_hash_that_is_taken_gets_longer_and_stays_within_the_limit() -> None:
    path = '$["' + "x" * 200 + '"]'
    cut = [f"{'x' * (LONGEST_NAME - 1 - count)}_{digits(path, count)}" for count in (6, 7, 8)]
    known = {f"$.p{at}": name for at, name in enumerate(["x" * 128, *cut[:2]])}
    assert register(known, [path]) == {path: cut[2]}
    assert len(cut[2]) == LONGEST_NAME
