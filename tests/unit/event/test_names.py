"""Topics: which names are taken, and the tables they give."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import InvalidTopicError
from leanops.domain.event.names import LONGEST_TABLE_NAME, Databases, check_new_topic, check_topic, table_stem
from leanops.domain.table.definitions import RESERVED_TABLES

TOPICS = st.from_regex(r"[A-Za-z][A-Za-z0-9._~+%-]{2,254}", fullmatch=True).filter(
    lambda topic: not topic.lower().startswith("goog")
)


@given(TOPICS)
def test_a_topic_gives_table_names_any_engine_takes(topic: str) -> None:
    assert check_topic(topic) == topic
    stem = table_stem(topic)
    assert re.fullmatch(r"[a-z][a-z0-9_]{2,119}", stem)
    databases = Databases()
    assert databases.standardized_table(topic) == f"iceberg_standardized_db.{stem}"
    assert len(databases.raw_table(topic).split(".")[1]) <= 128


@pytest.mark.parametrize("topic", ["abc", "Orders", "orders.v1", "a~b+c%d-e_f", "x" * 255])
def test_a_pub_sub_id_is_a_topic(topic: str) -> None:
    assert check_new_topic(topic, []) == topic


@pytest.mark.parametrize(
    "topic",
    [
        *["", "ab", "1ab", "_abc", "x" * 256, "a b", "orders\n", "a/b", "../x", "a\x00b", "größe", "a`b", "a;b", "a'b"],
        *["goog-orders", "Google", "abc ", " abc", "a\\b", "$abc", "\u202eabc"],
    ],
)
def test_any_other_text_is_no_topic(topic: str) -> None:
    with pytest.raises(InvalidTopicError) as refused:
        check_topic(topic)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("other", ["Orders-V1", "orders.v1", "orders_v1", "ORDERS~V1"])
def test_two_topics_cannot_share_a_table(other: str) -> None:
    with pytest.raises(InvalidTopicError, match="would share the table 'orders_v1'"):
        check_new_topic("orders-v1", ["customers", other])


def test_a_topic_beside_itself_is_no_conflict() -> None:
    assert check_new_topic("orders-v1", ["orders-v1", "customers"]) == "orders-v1"


@pytest.mark.parametrize("topic", [*sorted(RESERVED_TABLES), "Parse-Errors", "dlq.errors"])
def test_a_topic_cannot_take_a_reserved_table(topic: str) -> None:
    with pytest.raises(InvalidTopicError, match="reserved"):
        check_new_topic(topic, [])


@given(st.sets(st.text("xyX-", min_size=100, max_size=250).map("a".__add__), min_size=2, max_size=5))
def test_long_topics_that_differ_anywhere_get_tables_of_their_own(topics: set[str]) -> None:
    cut = [topic for topic in topics if len(topic) > LONGEST_TABLE_NAME]
    assert len({table_stem(topic) for topic in cut}) == len(cut)
    assert all(len(table_stem(topic)) <= LONGEST_TABLE_NAME for topic in topics)


def test_a_name_is_cut_only_beyond_the_limit() -> None:
    assert table_stem("x" * 120) == "x" * 120
    assert table_stem("x" * 121).startswith("x" * 111 + "_")
    assert len(table_stem("x" * 121)) == 120


def test_database_names_are_settings() -> None:
    databases = Databases("r", "s", "c", "o")
    assert [databases.raw_table("T-1"), databases.standardized_table("T-1"), databases.curated_table("t")] == [
        "r.t_1_staging",
        "s.t_1",
        "c.t",
    ]
    assert [databases.parse_errors, databases.errors, databases.ops_table("x")] == ["s.parse_errors", "c.errors", "o.x"]
