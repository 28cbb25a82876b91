"""Casts are strict and lossless: every text gives the value the model gives, or none."""

import json
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.domain.schema.casts import DateFormat
from leanops.domain.schema.model import VersionFormat
from leanops.domain.schema.parse import type_from_text
from leanops.domain.schema.types import ColumnType
from leanops.transforms.cast import cast, versions
from tests.oracle import casts as model
from tests.oracle.vocabulary import ORDER
from tests.support.verify import same_value

TYPES = [
    "STRING",
    "INT",
    "BIGINT",
    "DECIMAL(18,2)",
    "DECIMAL(38,0)",
    "DECIMAL(5,5)",
    "DECIMAL(38,38)",
    "DOUBLE",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
]
SHAPES = [
    "2026-11-15T08:57:17Z",
    "2026-11-15T08:57:17.123Z",
    "2026-11-15T08:57:17.123456Z",
    "2026-11-15T08:57:17.123456789Z",
    "2026-11-15T08:57:17.123456000Z",
    "2026-11-15 08:57:17",
    "2026-11-15T08:57",
    "2026-11-15T08:57Z",
    "2026-11-15 08:57+05:30",
    "2026-11-15T08:57-08",
    "2026-11-15T08:57:17+05:30",
    "2026-11-15T08:57:17-0800",
    "2026-11-15T08:57:17+02",
    "2026-11-15",
    "15/11/2026",
    "1794733037",
    "Sun, 15 Nov 2026 08:57:17 GMT",
    "2026-02-30T00:00:00Z",
    "2026-11-15T08:57:17 UTC",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59+00:00",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+00:01",
    "0001-01-01T00:00:00-00:01",
    "9999-12-31T23:59:59.999999-00:01",
    "2024-02-29T00:00:00Z",
    "2023-02-29T00:00:00Z",
    "0e99999999999999999999",
    "1e99999999999999999999",
    "1e-99999999999999999999",
    "1" + "0" * 20_000 + "1",
    "1." + "0" * 20_000,
]


def assert_casts(texts: list[str]) -> None:
    cells = pa.array([*texts, None], pa.string())
    for name in TYPES:
        found = cast(cells, type_from_text(name)).to_pylist()
        assert found.pop() is None
        for text, value in zip(texts, found, strict=True):
            expected = model.cast(text, name)
            expected = None if expected is model.FAILED else expected
            assert same_value(value, expected), (text, name, value, expected)


def test_every_text_of_the_streams_and_ten_shapes_of_timestamps_cast_as_the_model_says() -> None:
    texts = {
        value if isinstance(value, str) else text
        for pair in ORDER.values()
        for side in pair
        for text in side
        for value in [json.loads(text, parse_int=str, parse_float=str)]
    }
    assert_casts([*texts, *SHAPES])


NUMBERS = st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
DAYS = st.from_regex(r"(0000|0001|1999|2024|9999)-(0[1-9]|1[0-3])-([0-2][0-9]|3[01])", fullmatch=True)
TIMES = st.from_regex(
    r"[T ]([01][0-9]|2[0-5]):[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?(Z|[+-][01][0-9](:?[0-6]0)?)?", fullmatch=True
)
MOMENTS = st.builds(str.__add__, DAYS, TIMES)
ODD = st.text(alphabet="0123456789+-.eETZ: tfruals\n", max_size=30)


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(st.one_of(NUMBERS, ODD, DAYS, MOMENTS), min_size=100, max_size=200))
def test_any_text_casts_as_the_model_says(texts: list[str]) -> None:
    assert_casts(texts)


@pytest.mark.parametrize(
    ("form", "kind", "text", "expected"),
    [
        ("epoch_s", "TIMESTAMP", "1794733037", "2026-11-15 08:57:17"),
        ("epoch_ms", "TIMESTAMP", "1794733037123", "2026-11-15 08:57:17.123000"),
        ("epoch_ms", "TIMESTAMP", "soon", None),
        ("epoch_s", "TIMESTAMP", "1764547200000", None),
        ("epoch_s", "TIMESTAMP", "999999999999", None),
        ("epoch_s", "TIMESTAMP", "253402300799", "9999-12-31 23:59:59"),
        ("epoch_s", "TIMESTAMP", "253402300800", None),
        ("epoch_s", "TIMESTAMP", "-62135596800", "0001-01-01 00:00:00"),
        ("epoch_s", "TIMESTAMP", "-62135596801", None),
        ("epoch_ms", "TIMESTAMP", "2000000000000", "2033-05-18 03:33:20"),
        ("epoch_ms", "TIMESTAMP", "253402300799999", "9999-12-31 23:59:59.999000"),
        ("epoch_ms", "TIMESTAMP", "253402300800000", None),
        ("epoch_s", "TIMESTAMP", "+7", "1970-01-01 00:00:07"),
        ("epoch_s", "TIMESTAMP", "7.0", "1970-01-01 00:00:07"),
        ("epoch_s", "TIMESTAMP", "7e2", "1970-01-01 00:11:40"),
        ("epoch_s", "TIMESTAMP", "7.5", None),
        ("dd/MM/yyyy", "DATE", "15/11/2026", "2026-11-15"),
        ("MM/dd/yyyy", "DATE", "15/11/2026", None),
        ("dd.MM.yyyy", "DATE", "15.11.2026", "2026-11-15"),
        ("yyyyMMdd", "DATE", "20261115", "2026-11-15"),
        ("yyyyMMdd", "DATE", "20260230", None),
        ("dd/MM/yyyy", "DATE", "01/01/0000", None),
        ("MM/dd/yyyy", "DATE", "01/01/0000", None),
        ("dd.MM.yyyy", "DATE", "01.01.0000", None),
        ("yyyyMMdd", "DATE", "00000101", None),
        ("yyyyMMdd", "DATE", "00010101", "0001-01-01"),
    ],
)
def test_a_column_can_name_another_format(form: str, kind: str, text: str, expected: str | None) -> None:
    (value,) = cast(pa.array([text]), ColumnType(kind), DateFormat(form)).to_pylist()
    assert (value and str(value).removesuffix("+00:00")) == expected


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("iso", "2026-11-15T08:57:17.123456789Z", "2026-11-15 08:57:17.123456+00:00"),
        ("iso", "2026-11-15T09:57:17.1234567+01:00", "2026-11-15 08:57:17.123456+00:00"),
        ("iso", "2026-11-15", None),
        ("epoch_s", "1794733037", "2026-11-15 08:57:17+00:00"),
        ("epoch_ms", "1794733037123", "2026-11-15 08:57:17.123000+00:00"),
        ("number", "007.5", "7.500000000"),
        ("number", "1e-9", "1E-9"),
        ("number", "1e-10", None),
    ],
)
def test_a_version_is_read_in_its_format(form: VersionFormat, text: str, expected: str | None) -> None:
    (value,) = versions(pa.array([text]), form).to_pylist()
    assert (value and str(value)) == expected


def test_a_zero_has_no_sign() -> None:
    found = cast(pa.array(["-0", "-0.0", "-0e5", "-0e999"]), ColumnType("DOUBLE")).to_pylist()
    assert [math.copysign(1, value) for value in found] == [1, 1, 1, 1]
