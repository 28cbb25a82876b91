"""A batch as it is written down, and how topics are packed into bins."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.limits import ColumnLimits, Limits
from leanops.domain.table.batch import Batch, new_batch_id, pipeline_id
from leanops.domain.table.outcome import ROWS_PER_BIN, TOPICS_PER_BIN, Outcome, packed
from tests.support.builders import NOW, batch

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31), timezones=st.just(UTC))
NUMBER = st.integers(0, 2**62)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(MOMENTS, MOMENTS)
def test_batch_ids_sort_by_time_in_their_first_16_characters(one: datetime, other: datetime) -> None:
    earlier, later = sorted((one, other))
    first, second = new_batch_id(earlier)[:16], new_batch_id(later)[:16]
    assert first <= second
    assert later - earlier < timedelta(microseconds=100) or first < second


def test_a_batch_id_is_plain_text_and_never_given_twice() -> None:
    ids = {new_batch_id(NOW) for _ in range(1_000)}
    assert len(ids) == 1_000
    assert {found[:17] for found in ids} == {"2611150800000000-"}
    assert all(found.replace("-", "").isalnum() and found.isascii() for found in ids)


@given(
    st.builds(
        Batch,
        **dict.fromkeys(("batch_id", "topic", "layer", "source_uuid", "contract"), TEXT),
        **dict.fromkeys(
            ("source_to", "source_snapshot", "rows", "batch_seq", "batch_time_ms", "schema_version"), NUMBER
        ),
        source_from=st.none() | NUMBER,
        limits=st.builds(Limits, NUMBER, NUMBER, NUMBER, st.sampled_from(["last_wins", "error"])),
        column_limits=st.builds(ColumnLimits, NUMBER, NUMBER),
        starts_base=st.booleans(),
        is_gap=st.booleans(),
    )
)
def test_a_batch_comes_back_from_its_text_as_it_was(written: Batch) -> None:
    assert msgspec.json.decode(msgspec.json.encode(written), type=Batch) == written


def test_a_batch_of_an_earlier_release_without_the_newer_members_is_read() -> None:
    old = (
        '{"batch_id":"b","topic":"t","layer":"standardized","source_uuid":"u","source_from":null,"source_to":1,'
        '"source_snapshot":1,"rows":1,"batch_seq":1,"batch_time_ms":1794729600000,"schema_version":1,"new_member":1}'
    )
    assert msgspec.json.decode(old, type=Batch) == batch("b", topic="t", source_uuid="u")


def test_a_pipeline_is_a_layer_of_a_topic() -> None:
    assert pipeline_id("orders", "curated") == "orders/curated"


# Packing


@given(st.dictionaries(TEXT, st.integers(0, 3 * ROWS_PER_BIN), max_size=200))
def test_every_topic_is_packed_exactly_once_and_no_bin_is_too_full(expected: dict[str, int]) -> None:
    bins = packed(expected.items())
    assert sorted(topic for members in bins for topic in members) == sorted(expected)
    assert all(1 <= len(members) <= TOPICS_PER_BIN for members in bins)
    for members in bins:
        assert len(members) == 1 or sum(expected[topic] for topic in members) <= ROWS_PER_BIN


@given(st.dictionaries(TEXT, st.integers(0, ROWS_PER_BIN), max_size=60))
def test_packing_does_not_depend_on_the_order_of_topics(expected: dict[str, int]) -> None:
    assert packed(expected.items()) == packed(reversed(expected.items()))


def test_the_largest_topic_goes_first_and_small_ones_share_a_bin() -> None:
    assert packed([("s1", 10), ("big", ROWS_PER_BIN), ("s2", 20)]) == [["big"], ["s2", "s1"]]
    assert packed([("a", ROWS_PER_BIN - 1), ("b", 1), ("c", 1)]) == [["a", "b"], ["c"]]
    assert packed([]) == []


@pytest.mark.parametrize(("topics", "bins"), [(50, 1), (51, 2), (700, 14)])
def test_topics_with_little_to_do_fill_bins_up_to_their_number(topics: int, bins: int) -> None:
    assert len(packed((f"t{number}", 1) for number in range(topics))) == bins


def test_outcomes_are_a_closed_list() -> None:
    assert " ".join(Outcome) == (
        "done standardized_only no_new_data no_schema disabled paused locked gap prior_failed failed"
    )
