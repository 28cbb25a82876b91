"""A new type and a new rule are one entry each: Curated casts by the one and judges by the other."""

from typing import Any

import pytest
from pydantic import create_model

from leanops.domain.schema.model import PayloadColumn, Rules
from leanops.domain.schema.rules import RULES
from leanops.domain.schema.types import TYPES
from leanops.runtimes.embedded import Embedded
from leanops.transforms.curate import Source, judged
from tests.support.builders import column, schema
from tests.unit.schema.new_entries import MULTIPLE_OF, UUID_TYPE

UNUSED = ("message_id", "topic_name", "period_reference", "publish_time", "ingestion_ts", "first_seen_ts")
SAMPLE = "123e4567-e89b-12d3-a456-426614174000"


def verdicts(embedded: Embedded, declared: PayloadColumn, texts: list[str]) -> list[Any]:
    """Of each text, its value and what it fails."""
    rows = embedded.spark().createDataFrame([(text,) for text in texts], "a string")
    nulls = [f"NULL AS {name}" for name in (*UNUSED, "last_updated_ts")]
    standardized = rows.selectExpr(
        "a", "'k' AS idempotency_key", "a AS record_key", "CAST(NULL AS string) AS _rescued", *nulls
    )
    found = judged(standardized, [Source(declared, "a")])
    return [tuple(row) for row in found.selectExpr("CAST(v_a AS string)", "failures[0].rule").collect()]


def test_rows_are_cast_by_a_new_entry_of_the_types(embedded: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPES, "UUID", UUID_TYPE)
    (declared,) = schema(column("a", type="UUID")).payload_columns
    found = verdicts(embedded, declared, [SAMPLE, "x", SAMPLE.upper()])
    assert found == [(SAMPLE, None), (None, "cast_failed"), (None, "cast_failed")]


def test_rows_are_judged_by_a_new_entry_of_the_rules(embedded: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "multiple_of", MULTIPLE_OF)
    (plain,) = schema(column("a", type="DECIMAL(18,2)")).payload_columns
    # The model has a member for each rule there was when it was imported.
    with_more: Any = create_model("Rules", __base__=Rules, multiple_of=(str | None, None))
    declared = plain.model_copy(update={"rules": with_more(multiple_of="0.05")})
    found = verdicts(embedded, declared, ["7.05", "7.02", "much"])
    assert found == [("7.05", None), ("7.02", "rule_multiple_of"), (None, "cast_failed")]
