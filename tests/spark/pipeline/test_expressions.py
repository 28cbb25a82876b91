"""SQL text and seals: what we write is what Spark reads, and a key shows nowhere."""

import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from leanops.domain.table.sql import literal, quoted
from leanops.runtimes.embedded import Embedded
from leanops.transforms.mask import masked, sealed, with_key

TEXTS = [
    "",
    "'",
    "\\",
    "\\'",
    "it's",
    "${x}",
    "%",
    "`",
    "\\u0041",
    "\n\r\t\x00",
    "é😀",
    "\u2028",
    "--",
    "/*",
    "*/ ; DROP",
]
SECRETS = [b"k", b"a key for tests", b"x" * 64, b"y" * 65, bytes(range(256))]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=10)
@given(st.lists(ANY_TEXT, min_size=20, max_size=20))
def test_a_literal_is_the_text_whatever_is_in_it(embedded: Embedded, texts: list[str]) -> None:
    texts = [*TEXTS, *texts]
    row = embedded.spark().sql(f"SELECT {', '.join(map(literal, texts))}, {literal(None)}").first()
    assert list(row) == [*texts, None]


@pytest.mark.parametrize("name", ["a b", "`", "``", "a.b", "ö", "'", "a;--"])
def test_a_quoted_name_is_the_name(embedded: Embedded, name: str) -> None:
    assert embedded.spark().sql(f"SELECT 1 AS {quoted(name)}").columns == [name]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_seal_is_the_hmac_and_null_stays_null(embedded: Embedded, secret: bytes) -> None:
    rows = embedded.spark().createDataFrame([(text,) for text in [*TEXTS, None]], "text string")
    found = [row[0] for row in with_key(rows, secret).select(sealed(F.col("text"))).collect()]
    assert found == [*(hmac.new(secret, text.encode(), hashlib.sha256).hexdigest() for text in TEXTS), None]


def test_no_plan_shows_the_key(embedded: Embedded) -> None:
    secret = b"a key for tests"
    rows = embedded.spark().createDataFrame([("x",)], "text string")
    plan = with_key(rows, secret).select(sealed(F.col("text")))._jdf.queryExecution().toString().lower()
    assert "sha2" in plan
    for pad in (0x00, 0x36, 0x5C):
        shown = bytes(byte ^ pad for byte in secret)
        assert shown.hex() not in plan
        assert shown.decode("latin-1").lower() not in plan


def test_a_mask_shows_the_last_four_characters_of_a_longer_text(embedded: Embedded) -> None:
    rows = embedded.spark().createDataFrame([("10115",), ("1011",), ("1",), ("",), ("a\nb12345",), (None,)], "t string")
    found = [row[0] for row in rows.select(masked(F.col("t"))).collect()]
    assert found == ["*0115", "****", "*", "", "****2345", None]
