"""Upper bounds of cut texts: as short as asked for, never below the text, and always something a file can hold."""

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leanops.adapters.iceberg.bounds import upper_bound
from leanops.domain.table.outcome import Outcome
from tests.oracle.streams import SCHEMA
from tests.support.world import FIRST, World

CHARACTERS = st.one_of(st.sampled_from("a\x7f\ud7ff\ue000\uffff\U0010ffff"), st.characters(exclude_categories=["Cs"]))


@given(st.text(CHARACTERS, max_size=8), st.integers(1, 8))
@example("a\ud7ffb", 2)
@example("\ud7ffb", 1)
@example("\U0010ffff" * 3, 2)
def test_a_bound_is_a_text_of_that_length_and_not_below(text: str, length: int) -> None:
    bound = upper_bound(text, length)
    if bound is None:
        assert text[:length] == "\U0010ffff" * length
        assert len(text) > length
    else:
        assert len(bound) <= length
        assert bound.encode() >= text.encode()


def test_a_bound_of_what_is_short_enough_is_the_text() -> None:
    assert [upper_bound("abc", length) for length in (None, 4, 3, 2)] == ["abc", "abc", "abc", "ac"]


@pytest.mark.parametrize("place", ["key", "message id"])
def test_an_event_whose_bound_would_end_before_the_surrogates_stops_nobody(world: World, place: str) -> None:
    columns = [{"name": "key", "path": "$.key", "type": "STRING"}]
    world.add("orders", json.dumps({**SCHEMA, "payload_columns": columns, "keys": {"idempotency_key": "$.key"}}))
    # RAW keeps 16 characters of a message id, both layers 64 of a key; the record_key has four before it.
    long = {length: "z" * length + "\ud7ff" * 2 for length in (15, 59, 63)}
    keys = [long[59], long[63]] if place == "key" else ["k"]
    ids = [long[15]] if place == "message id" else ["m1", "m2"]
    payloads = [json.dumps({"key": key}) for key in keys]
    rows = [replace(FIRST, message_id=name, json_payload=text) for name, text in zip(ids, payloads, strict=True)]
    world.publish("orders", rows)
    assert world.cycle()["orders"].outcome == Outcome.DONE
    assert {row["idempotency_key"] for row in world.standardized("orders")} == set(keys)
