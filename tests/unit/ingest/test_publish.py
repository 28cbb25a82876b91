"""Events through queue, processor and delivery stream into RAW, to the byte; and the lines of files they come from."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leanops.domain.errors import UnknownTopicError, UsageError
from leanops.domain.event.lines import Event
from leanops.usecases.ingest.pack import EVENTS_PER_SEND
from leanops.usecases.ingest.publish import events_from_lines, publish
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import add_topic
from tests.oracle import vocabulary as words
from tests.support.builders import NOW, event, platform_in, raw_row
from tests.support.hub import Hub, hub_in


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_in(tmp_path) as hub:
        add_topic(hub.platform, "orders")
        yield hub


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path) as platform:
        yield platform


def send(hub: Hub, *events: Event, topic: str = "orders") -> int:
    return publish(hub.platform, hub.queue, hub.files, topic, events)


def test_a_published_event_is_one_raw_row_with_every_member(hub: Hub) -> None:
    moment = datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)
    sent = event("m1", "{ }", publish_time=moment, idempotency_key="k", attributes={"a": "b"}, ingestion_ts=5)
    assert send(hub, sent, event("m2")) == 2
    hub.settle()
    assert {row["message_id"]: row for row in hub.raw()} == {"m1": raw_row(sent), "m2": raw_row(event("m2"))}


PAYLOADS = [
    *words.NOT_JSON,
    *words.TRAILING,
    *words.NOT_OBJECT,
    "\x00",
    "a\r\nb",
    "é😀\u2028",
    '{"a":1.10}',
    " {} ",
    "",
]


def test_a_payload_lands_in_raw_exactly_as_it_was_sent_however_broken_it_is(hub: Hub) -> None:
    events = [event(f"m{at}", payload) for at, payload in enumerate(PAYLOADS)]
    send(hub, *events)
    hub.settle()
    assert {row["message_id"]: row["json_payload"] for row in hub.raw()} == {e.message_id: e.payload for e in events}


def test_copies_of_a_message_are_all_kept(hub: Hub) -> None:
    for _ in range(2):
        send(hub, event("m1"), event("m1"))
    hub.settle()
    assert hub.ids() == ["m1"] * 4


def test_nothing_published_writes_nothing(hub: Hub) -> None:
    assert send(hub) == 0
    hub.settle()
    assert hub.platform.catalog.load("iceberg_raw_db.orders_staging").head is None


def test_many_events_go_in_several_sends_and_report_progress(hub: Hub) -> None:
    count = 2 * EVENTS_PER_SEND + 1
    seen: list[int] = []
    events = (event(f"m{n:05}") for n in range(count))
    assert publish(hub.platform, hub.queue, hub.files, "orders", events, seen.append) == count
    assert seen == [EVENTS_PER_SEND, 2 * EVENTS_PER_SEND, count]
    hub.settle()
    assert hub.ids() == [f"m{n:05}" for n in range(count)]


def test_a_topic_nobody_added_takes_no_events(hub: Hub) -> None:
    with pytest.raises(UnknownTopicError, match="leanops topics add nobody"):
        send(hub, event(), topic="nobody")


# Files


def test_each_line_of_a_file_is_a_payload_and_blank_lines_are_passed_over(platform: Platform) -> None:
    lines = [b'{"a":1}\n', b"\n", b"  \r\n", b' {"b": 2} \r\n', b"broken", b""]
    events = list(events_from_lines(platform, lines, "f.jsonl", envelope=False))
    assert [found.payload for found in events] == ['{"a":1}', ' {"b": 2} ', "broken"]
    assert {(found.publish_time, found.ingestion_ts) for found in events} == {(NOW, None)}
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
    assert list(events_from_lines(platform, [good, b"\n"], "f", envelope=True)) == [event(ingestion_ts=None)]
    with pytest.raises(UsageError, match=r"^f line 2 is not an envelope"):
        list(events_from_lines(platform, [good, b"{}"], "f", envelope=True))
