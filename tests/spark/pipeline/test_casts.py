"""Casts are strict and lossless: every text gives the value the model gives, or none."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from leanops.domain.schema.model import Schema
from leanops.domain.schema.types import cast
from leanops.runtimes.embedded import Embedded
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
    "1" + "0" * 20_000 + "1",
    "1." + "0" * 20_000,
]


def column_type(text: str) -> object:
    column = {"name": "c", "type": text}
    return (
        Schema.model_validate({"table_name": "t", "envelope_columns": [], "payload_columns": [column]})
        .payload_columns[0]
        .type
    )


def assert_casts(embedded: Embedded, texts: list[str]) -> None:
    spark = embedded.spark()
    rows = spark.createDataFrame([(text,) for text in texts], "text string")
    columns = [F.expr(cast("text", column_type(name))).alias(f"c{at}") for at, name in enumerate(TYPES)]
    for row in rows.select("text", *columns).collect():
        for at, name in enumerate(TYPES):
            expected = model.cast(row["text"], name)
            expected = None if expected is model.FAILED else expected
            assert same_value(row[f"c{at}"], expected), (row["text"], name, row[f"c{at}"], expected)


def test_every_text_of_the_streams_and_ten_shapes_of_timestamps_cast_as_the_model_says(embedded: Embedded) -> None:
    texts = {
        value if isinstance(value, str) else text
        for pair in ORDER.values()
        for side in pair
        for text in side
        for value in [json.loads(text, parse_int=str, parse_float=str)]
    }
    assert_casts(embedded, [*texts, *SHAPES])


NUMBERS = st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
ODD = st.text(alphabet="0123456789+-.eETZ: tfruals\n", max_size=30)


@settings(max_examples=5)
@given(texts=st.lists(st.one_of(NUMBERS, ODD), min_size=200, max_size=400))
def test_any_text_casts_as_the_model_says(embedded: Embedded, texts: list[str]) -> None:
    assert_casts(embedded, texts)


@pytest.mark.parametrize(
    ("form", "kind", "text", "expected"),
    [
        ("epoch_s", "TIMESTAMP", "1794733037", "2026-11-15 08:57:17"),
        ("epoch_ms", "TIMESTAMP", "1794733037123", "2026-11-15 08:57:17.123"),
        ("epoch_ms", "TIMESTAMP", "soon", None),
        ("epoch_s", "TIMESTAMP", "1764547200000", None),
        ("epoch_s", "TIMESTAMP", "999999999999", None),
        ("epoch_s", "TIMESTAMP", "253402300799", "9999-12-31 23:59:59"),
        ("epoch_s", "TIMESTAMP", "253402300800", None),
        ("epoch_s", "TIMESTAMP", "-62135596800", "0001-01-01 00:00:00"),
        ("epoch_s", "TIMESTAMP", "-62135596801", None),
        ("epoch_ms", "TIMESTAMP", "2000000000000", "2033-05-18 03:33:20"),
        ("epoch_ms", "TIMESTAMP", "253402300799999", "9999-12-31 23:59:59.999"),
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
def test_a_column_can_name_another_format(
    embedded: Embedded, form: str, kind: str, text: str, expected: str | None
) -> None:
    column = {"name": "c", "type": kind, "format": form}
    schema = Schema.model_validate({"table_name": "t", "envelope_columns": [], "payload_columns": [column]})
    chosen = schema.payload_columns[0]
    rows = embedded.spark().createDataFrame([(text,)], "text string")
    assert rows.select(F.expr(cast("text", chosen.type, chosen.format)).cast("string")).first()[0] == expected
