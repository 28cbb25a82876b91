"""Topics: added once, paused, resumed and retried; schemas on disk; events into RAW to the byte."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leanops.domain.batches import CURATED, STANDARDIZED
from leanops.domain.errors import InvalidTopicError, LeaseHeldError, UnknownTopicError, UsageError
from leanops.domain.tables import ERRORS
from leanops.ports.state import ATTEMPTS
from leanops.usecases import publish as publishing
from leanops.usecases.batches import begin, open_batch, record_failure
from leanops.usecases.leases import acquire, release
from leanops.usecases.platform import Platform
from leanops.usecases.publish import events_from_lines, publish
from leanops.usecases.topics import (
    Topic,
    add_topic,
    enable_topic,
    find_topic,
    list_topics,
    pause_topic,
    resume_topic,
    retry_topic,
)
from tests.builders import NOW, NOW_MS, batch, event, platform_in
from tests.oracle import vocabulary as words

RAW_COLUMNS = [
    *["message_id", "publish_time", "topic_name", "json_payload", "ingestion_ts", "idempotency_key", "attributes"]
]


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path) as platform:
        yield platform


def registry(platform: Platform) -> list[object]:
    return [row["topic_name"] for row in platform.catalog.select("ops_db.topic_registry", ["topic_name"])]


def raw_rows(platform: Platform, topic: str = "orders") -> list[dict[str, object]]:
    return platform.catalog.select(f"iceberg_raw_db.{topic}_staging", RAW_COLUMNS)


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
    begin(platform, batch("b1"), lease)
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


def test_a_topic_nobody_added_is_told_how_to_be_added(platform: Platform) -> None:
    attempts = [
        lambda: find_topic(platform, "nobody"),
        lambda: pause_topic(platform, "nobody", None),
        lambda: resume_topic(platform, "nobody"),
        lambda: retry_topic(platform, "nobody"),
        lambda: enable_topic(platform, "nobody", 1),
        lambda: publish(platform, "nobody", [event()]),
    ]
    for attempt in attempts:
        with pytest.raises(UnknownTopicError, match="leanops topics add nobody"):
            attempt()


# Publishing


def test_a_published_event_is_one_raw_row_with_every_member(platform: Platform) -> None:
    add_topic(platform, "orders")
    moment = datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)
    sent = event("m1", "{ }", publish_time=moment, idempotency_key="k", attributes='{"a":"b"}', ingestion_ts=5)
    assert publish(platform, "orders", [sent, event("m2")]) == 2
    rows = {row["message_id"]: row for row in raw_rows(platform)}
    assert rows == {"m1": sent.raw_row("orders"), "m2": event("m2").raw_row("orders")}
    assert list(rows["m1"]) == RAW_COLUMNS


PAYLOADS = [*words.NOT_JSON, *words.TRAILING, *words.NOT_OBJECT, "\x00", "a\r\nb", "é😀\u2028", '{"a":1.10}', " {} "]


def test_a_payload_lands_in_raw_exactly_as_it_was_sent_however_broken_it_is(platform: Platform) -> None:
    add_topic(platform, "orders")
    events = [event(f"m{at}", payload) for at, payload in enumerate(PAYLOADS)]
    publish(platform, "orders", events)
    stored = {row["message_id"]: row["json_payload"] for row in raw_rows(platform)}
    assert stored == {sent.message_id: sent.payload for sent in events}


def test_copies_of_a_message_are_all_kept(platform: Platform) -> None:
    add_topic(platform, "orders")
    for _ in range(2):
        publish(platform, "orders", [event("m1"), event("m1")])
    assert [row["message_id"] for row in raw_rows(platform)] == ["m1"] * 4


def test_nothing_published_writes_nothing(platform: Platform) -> None:
    add_topic(platform, "orders")
    assert publish(platform, "orders", []) == 0
    raw = platform.catalog.load("iceberg_raw_db.orders_staging")
    assert raw is not None
    assert raw.head is None


def test_many_events_go_in_several_appends_and_report_progress(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "EVENTS_PER_APPEND", 2)
    add_topic(platform, "orders")
    seen: list[int] = []
    assert publish(platform, "orders", (event(f"m{n}") for n in range(5)), seen.append) == 5
    assert seen == [2, 4, 5]
    raw = platform.catalog.load("iceberg_raw_db.orders_staging")
    assert raw is not None
    assert [found.added_records for found in raw.ancestors()] == [1, 2, 2]
    assert {found.operation for found in raw.ancestors()} == {"append"}


# Files


def test_each_line_of_a_file_is_a_payload_and_blank_lines_are_passed_over(platform: Platform) -> None:
    lines = [b'{"a":1}\n', b"\n", b"  \r\n", b' {"b": 2} \r\n', b"broken", b""]
    events = list(events_from_lines(platform, lines, "f.jsonl", envelope=False))
    assert [found.payload for found in events] == ['{"a":1}', ' {"b": 2} ', "broken"]
    assert {(found.publish_time, found.ingestion_ts) for found in events} == {(NOW, NOW_MS)}
    assert len({found.message_id for found in events}) == 3


def test_the_same_file_twice_gives_other_message_ids(platform: Platform) -> None:
    runs = [list(events_from_lines(platform, [b"{}"], "f", envelope=False)) for _ in range(2)]
    assert runs[0][0].message_id != runs[1][0].message_id


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))))
def test_no_line_but_a_blank_one_is_lost(platform: Platform, texts: list[str]) -> None:
    lines = [f"{text}\n".encode() for text in texts]
    events = list(events_from_lines(platform, lines, "f", envelope=False))
    assert [found.payload for found in events] == [text for text in texts if text.strip(" \t\x0b\f\r")]


def test_a_line_that_is_not_utf_8_is_named_with_its_place(platform: Platform) -> None:
    events = events_from_lines(platform, [b"{}\n", b'{"a":"\xff"}\n'], "f.jsonl", envelope=False)
    with pytest.raises(UsageError, match=r"f\.jsonl line 2 is not UTF-8 at byte 6"):
        list(events)


def test_a_line_of_an_envelope_file_is_an_event_or_is_named(platform: Platform) -> None:
    good = b'{"message_id":"m1","publish_time":"2026-11-15T08:00:00Z","payload":"{}"}\n'
    assert list(events_from_lines(platform, [good, b"\n"], "f", envelope=True)) == [event()]
    with pytest.raises(UsageError, match=r"^f line 2 is no "):
        list(events_from_lines(platform, [good, b"{}"], "f", envelope=True))
