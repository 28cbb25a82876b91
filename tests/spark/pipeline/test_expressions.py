"""SQL text and seals: what we write is what Spark reads, and a key shows nowhere."""

import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.domain.table.sql import literal, quoted
from leanops.runtimes.embedded import Embedded
from leanops.transforms.frames.curate import judged
from leanops.transforms.judge import Source
from tests.support.builders import column, schema

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
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=10)
@given(st.lists(ANY_TEXT, min_size=20, max_size=20))
def test_a_literal_is_the_text_whatever_is_in_it(embedded: Embedded, texts: list[str]) -> None:
    texts = [*TEXTS, *texts]
    row = embedded.spark().sql(f"SELECT {', '.join(map(literal, texts))}").first()
    assert list(row) == texts


@pytest.mark.parametrize("name", ["a b", "`", "``", "a.b", "ö", "'", "a;--"])
def test_a_quoted_name_is_the_name(embedded: Embedded, name: str) -> None:
    assert embedded.spark().sql(f"SELECT 1 AS {quoted(name)}").columns == [name]


def test_no_plan_shows_the_key(embedded: Embedded) -> None:
    secret = b"a key for tests"
    system = ("message_id", "topic_name", "period_reference", "publish_time", "ingestion_ts", "first_seen_ts")
    nulls = [f"CAST(NULL AS string) AS {name}" for name in (*system, "last_updated_ts", "_rescued")]
    rows = embedded.spark().range(1).selectExpr("'x' AS a", "'k' AS idempotency_key", "'k' AS record_key", *nulls)
    (declared,) = schema(column("a", pii="hmac")).payload_columns
    judged_rows = judged(rows, [Source(declared, "a")], secret)
    assert [row["v_a"] for row in judged_rows.collect()] == [hmac.new(secret, b"x", hashlib.sha256).hexdigest()]
    plan = judged_rows._jdf.queryExecution().toString().lower()
    assert "inarrow" in plan
    assert secret.hex() not in plan
    assert secret.decode() not in plan
