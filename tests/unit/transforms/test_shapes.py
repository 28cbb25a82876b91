"""Shapes of texts: what looks like personal data, and what only looks like it."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.transforms.schemas.shapes import SHAPES, shapes

DIGITS = st.lists(st.integers(0, 9), min_size=12, max_size=18)


def shapes_of(*texts: str | None) -> list[set[str]]:
    """The names of the shapes that each text has."""
    found = shapes(pa.array(texts, pa.string()))
    assert tuple(found) == SHAPES
    return [{name for name in SHAPES if found[name][at].as_py()} for at in range(len(texts))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a@b.de", {"is_email"}),
        ("a@b", set()),
        ("a b@c.de", set()),
        ("a@b.de\n", set()),
        ("+49 170 1234567", {"is_phone"}),
        ("0170 1234567", set()),
        ("DE89 3704 0044 0532 0130 00", {"is_iban"}),
        ("4111 1111 1111 1111", {"is_card"}),
        ("4111 1111 1111 1112", set()),
        ("2026-01", {"period"}),
        ("2026-13", set()),
        ("007", {"leading_zeros"}),
        ("0", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_a_text_has_the_shapes_that_it_looks_like(text: str | None, expected: set[str]) -> None:
    assert shapes_of(text, "x") == [expected, set()]


@given(DIGITS, st.integers(0, 9), st.sampled_from(["", " ", "-"]))
def test_of_the_ten_last_digits_of_a_card_one_alone_is_right(digits: list[int], last: int, between: str) -> None:
    numbers = [between.join(map(str, [*digits, check])) for check in range(10)]
    right = [at for at, found in enumerate(shapes_of(*numbers)) if "is_card" in found]
    assert len(right) == 1
    assert ("is_card" in shapes_of(numbers[last])[0]) == (last in right)
