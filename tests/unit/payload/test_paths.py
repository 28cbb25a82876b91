"""Paths: one text for each list of segments, and the same segments back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import InvalidPathError
from leanops.domain.payload.paths import canonical, path_of, segments_of
from tests.oracle import names
from tests.oracle import vocabulary as words
from tests.oracle.flat import segment

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SEGMENTS = st.lists(st.sampled_from(words.ODD_KEYS) | TEXT, min_size=1, max_size=4).map(tuple)


@given(SEGMENTS)
def test_a_path_gives_back_the_segments_it_was_made_of(segments: tuple[str, ...]) -> None:
    assert segments_of(path_of(segments)) == segments


@given(SEGMENTS)
def test_a_path_is_written_as_the_oracle_writes_it(segments: tuple[str, ...]) -> None:
    path = path_of(segments)
    assert path == "$" + "".join(map(segment, segments))
    assert list(segments_of(path)) == names.segments(path)


@given(SEGMENTS, SEGMENTS)
def test_no_two_lists_of_segments_share_a_path(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (path_of(one) == path_of(other)) == (one == other)


@given(SEGMENTS)
def test_a_canonical_path_is_its_own_canonical_spelling(segments: tuple[str, ...]) -> None:
    assert canonical(path_of(segments)) == path_of(segments)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('$["event"]["userId"]', "$.event.userId"),
        ('$["\\u0061"].b', "$.a.b"),
        ('$["a.b"]', '$["a.b"]'),
        ('$["\\u00e9"]', '$["é"]'),
        ('$["\\ud83d\\ude00"]', '$["😀"]'),
    ],
)
def test_every_accepted_spelling_has_one_canonical_form(written: str, meant: str) -> None:
    assert canonical(written) == meant


@pytest.mark.parametrize(
    "text",
    [
        *["", "$", "$.", "$..a", "$.a.", "a.b", ".a", "$a", " $.a", "$.a ", "$.a\n", "$.1a", "$.é", "$.a-b", "$.a b"],
        *["$[0]", "$.a[0]", "$[*]", "$.*", "$['a']", '$["a]', '$["a"', '$[""', '$["a"]b', '$["a" ]', '$["a"b"]'],
        *['$["\\x"]', '$["\\u12"]', '$["\n"]', '$["\t"]', '$["\\ud800"]', '$["a\\udc00"]'],
    ],
)
def test_a_text_that_is_no_path_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidPathError) as refused:
        segments_of(text)
    assert "\n" not in str(refused.value)
    str(refused.value).encode()
