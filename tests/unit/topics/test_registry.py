"""Topics: added once, paused, resumed and retried; schemas on disk."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leanops.domain.errors import InvalidTopicError, LeaseHeldError, UnknownTopicError
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.definitions import ERRORS
from leanops.ports.state import ATTEMPTS
from leanops.usecases.attempts import record_failure
from leanops.usecases.cycle.retry import retry_topic
from leanops.usecases.journal import begin, open_batch
from leanops.usecases.leases import acquire, release
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import (
    Topic,
    add_topic,
    enable_topic,
    find_topic,
    list_topics,
    pause_topic,
    resume_topic,
)
from tests.support.builders import NOW, batch, held_by, platform_in

RAW_COLUMNS = [
    *["message_id", "publish_time", "topic_name", "json_payload", "ingestion_ts", "idempotency_key", "attributes"]
]


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path) as platform:
        yield platform


def registry(platform: Platform) -> list[object]:
    return [row["topic_name"] for row in platform.catalog.select("ops_db.topic_registry", ["topic_name"])]


def test_an_added_topic_is_ready_has_its_raw_table_and_is_registered(platform: Platform) -> None:
    assert add_topic(platform, "orders") == Topic("orders", "READY", False, None, None)
    raw = platform.catalog.load("iceberg_raw_db.orders_staging")
    assert raw is not None
    assert list(raw.columns) == RAW_COLUMNS
    assert registry(platform) == ["orders"]


def test_adding_a_topic_again_changes_nothing(platform: Platform) -> None:
    add_topic(platform, "orders")
    enable_topic(platform, "orders", 3)
    pause_topic(platform, "orders", "why")
    assert add_topic(platform, "orders") == Topic("orders", "PAUSED", True, 3, "why")
    assert registry(platform) == ["orders"]


@pytest.mark.parametrize("topic", ["a/b", "Orders", "parse_errors"])
def test_a_topic_that_gives_no_table_of_its_own_leaves_nothing_behind(platform: Platform, topic: str) -> None:
    add_topic(platform, "orders")
    with pytest.raises(InvalidTopicError):
        add_topic(platform, topic)
    assert [found.name for found in list_topics(platform)] == ["orders"]
    assert registry(platform) == ["orders"]


def test_topics_are_listed_by_name(platform: Platform) -> None:
    for topic in ("users", "orders", "Carts"):
        add_topic(platform, topic)
    assert [found.name for found in list_topics(platform)] == ["Carts", "orders", "users"]
    assert find_topic(platform, "users").status == "READY"


def test_a_paused_topic_keeps_all_else_and_resumes_where_it_was(platform: Platform) -> None:
    add_topic(platform, "orders")
    enable_topic(platform, "orders", 2)
    assert pause_topic(platform, "orders", "rebuild") == Topic("orders", "PAUSED", True, 2, "rebuild")
    assert find_topic(platform, "orders").status == "PAUSED"
    assert resume_topic(platform, "orders") == Topic("orders", "READY", True, 2, None)
    assert pause_topic(platform, "orders", None).reason is None


def test_a_retried_topic_forgets_the_failures_of_both_its_layers(platform: Platform) -> None:
    add_topic(platform, "orders")
    add_topic(platform, "users")
    for topic in ("orders", "users"):
        for layer in (STANDARDIZED, CURATED):
            record_failure(platform, topic, layer, "broken", park=True)
    assert retry_topic(platform, "orders") == find_topic(platform, "orders")
    left = sorted(stored.row["pipeline_id"] for stored in platform.state.rows(ATTEMPTS))
    assert left == ["users/curated", "users/standardized"]


def test_a_retried_topic_gives_up_what_was_begun_and_its_error_rows(platform: Platform) -> None:
    add_topic(platform, "orders")
    lease = acquire(platform, "topic/orders")
    begin(held_by(platform, lease), batch("b1"))
    platform.catalog.create("iceberg_standardized_db.parse_errors", ERRORS)
    rows = [{"error_id": f"e{n}", "topic_name": "orders", "batch_id": f"b{n}", "detected_ts": NOW} for n in (0, 1)]
    platform.catalog.append("iceberg_standardized_db.parse_errors", rows)
    with pytest.raises(LeaseHeldError):
        retry_topic(replace(platform, owner="another"), "orders")
    release(platform, lease)
    retry_topic(platform, "orders")
    assert open_batch(platform, "orders", STANDARDIZED) is None
    left = platform.catalog.select("iceberg_standardized_db.parse_errors", ["error_id"])
    assert [row["error_id"] for row in left] == ["e0"]


def test_an_empty_name_is_an_unknown_topic(platform: Platform) -> None:
    with pytest.raises(UnknownTopicError, match="topics list"):
        find_topic(platform, "")


def test_a_topic_nobody_added_is_told_how_to_be_added(platform: Platform) -> None:
    attempts = [
        lambda: find_topic(platform, "nobody"),
        lambda: pause_topic(platform, "nobody", None),
        lambda: resume_topic(platform, "nobody"),
        lambda: retry_topic(platform, "nobody"),
        lambda: enable_topic(platform, "nobody", 1),
    ]
    for attempt in attempts:
        with pytest.raises(UnknownTopicError, match="leanops topics add nobody"):
            attempt()
