"""Envelope lines: a good one is an event, a bad one says what is wrong with it."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import UsageError
from leanops.domain.event.lines import Event, event_from_line
from tests.support.builders import NOW, event

LEAST = {"message_id": "m1", "publish_time": "2026-11-15T08:00:00Z", "payload": "{}"}


def read(line: str) -> Event:
    return event_from_line(line, "events.jsonl line 3")


def read_with(**changes: Any) -> Event:
    return read(json.dumps({**LEAST, **changes}))


def refusal(line: str) -> str:
    with pytest.raises(UsageError) as refused:
        read(line)
    said = str(refused.value)
    assert said.startswith("events.jsonl line 3")
    assert len(said.splitlines()) == 1
    said.encode()
    return said


def test_the_least_envelope_is_an_event_that_arrives_now() -> None:
    assert read(json.dumps(LEAST)) == event(ingestion_ts=None)


def test_every_member_of_a_full_envelope_is_kept() -> None:
    full = read_with(idempotency_key=" k ", attributes={"b": "é", "a": "1"}, ingestion_ts=5)
    assert full == event(idempotency_key=" k ", attributes={"b": "é", "a": "1"}, ingestion_ts=5)


def test_members_that_are_null_are_missing() -> None:
    assert read_with(idempotency_key=None, attributes=None, ingestion_ts=None) == event(ingestion_ts=None)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_payload_that_is_a_text_is_kept_to_the_character(payload: str) -> None:
    assert read_with(payload=payload).payload == payload


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":1.10,"b":12345678901234567890.12,"c":1e10,"d":-0}',
        '{ "a" : [1 , 2],\t"a":"\\u0041é" }',
        '{"a":' + "9" * 5_000 + "}",
        '{"a":null,"payload":{}}',
        "{}",
    ],
)
def test_a_payload_that_is_an_object_is_kept_as_it_was_written(payload: str) -> None:
    line = f'{{"message_id":"m1", "payload" :{payload} ,"publish_time":"2026-11-15T08:00:00Z"}}'
    assert read(line) == event(payload=payload, ingestion_ts=None)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-15T08:00:00Z", NOW),
        ("2026-11-15T08:00:00", NOW),
        ("2026-11-15 09:00:00+01:00", NOW),
        ("2026-11-15T08:00:00.123456Z", NOW.replace(microsecond=123456)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_publish_time_is_utc_whatever_its_zone(text: str, moment: datetime) -> None:
    read_time = read_with(publish_time=text).publish_time
    assert read_time == moment
    assert read_time.tzinfo is UTC


@pytest.mark.parametrize(
    "line",
    [
        *["", "x", "[]", "null", "1", '"text"', "{", "{}", "\ufeff{}", "[" * 100_000, "{" * 100_000],
        *['{"message_id":"m"}', '{"payload":{}}', json.dumps({**LEAST}) + "x", '{"a":NaN}'],
    ],
)
def test_a_line_that_is_no_envelope_is_refused(line: str) -> None:
    assert refusal(line)


@pytest.mark.parametrize("missing", list(LEAST))
def test_an_envelope_without_a_required_member_is_refused(missing: str) -> None:
    line = json.dumps({name: value for name, value in LEAST.items() if name != missing})
    assert "it needs message_id, publish_time and payload" in refusal(line)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message_id", ""),
        ("message_id", None),
        ("message_id", 5),
        ("message_id", "\ud800"),
        ("publish_time", "yesterday"),
        ("publish_time", 1_700_000_000),
        ("publish_time", None),
        ("publish_time", "2026-02-30T00:00:00Z"),
        ("publish_time", "0001-01-01T00:00:00+01:00"),
        ("publish_time", "9999-12-31T23:59:59-01:00"),
        ("payload", None),
        ("payload", 5),
        ("payload", ["{}"]),
        ("payload", True),
        ("payload", "\ud800"),
        ("payload", {"a": "\ud800"}),
        ("idempotency_key", 5),
        ("idempotency_key", ""),
        ("idempotency_key", {}),
        ("idempotency_key", "\udc00"),
        ("attributes", {"a": "\ud800"}),
        ("ingestion_ts", "now"),
        ("ingestion_ts", -1),
        ("ingestion_ts", 1.5),
        ("ingestion_ts", True),
        ("ingestion_ts", 2**53),
    ],
)
def test_a_member_of_the_wrong_kind_is_refused(name: str, value: Any) -> None:
    assert refusal(json.dumps({**LEAST, name: value}))


def test_an_unknown_member_is_named() -> None:
    assert "unknown member 'msg\\nid'" in refusal(json.dumps({**LEAST, "msg\nid": 1}))
