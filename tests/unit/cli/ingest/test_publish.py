"""Publishing: all of a file or nothing of it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import Leanops


@pytest.fixture
def topic(leanops: Leanops, home: Path) -> str:
    leanops("topics", "add", "orders")
    return "orders"


def raw(leanops: Leanops) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = leanops(
        "sql", "--json", "select * from iceberg_raw_db.orders_staging order by message_id"
    ).json
    return rows


def write(tmp_path: Path, content: bytes) -> str:
    file = tmp_path / "events.jsonl"
    file.write_bytes(content)
    return str(file)


def test_each_line_is_a_payload_even_a_broken_one(leanops: Leanops, topic: str, tmp_path: Path) -> None:
    ran = leanops("publish", topic, write(tmp_path, b'{"a":1}\r\n\n {"b": "\xc3\xa9"}\n{oops'), "--wait")
    assert (ran.code, ran.out) == (0, "3 events published to orders and landed in RAW\n")
    assert [row["json_payload"] for row in raw(leanops)] == ['{"a":1}', ' {"b": "é"}', "{oops"]


def test_an_envelope_keeps_what_it_says(leanops: Leanops, topic: str, tmp_path: Path) -> None:
    envelope = {
        "message_id": "m1",
        "publish_time": "2026-11-01T00:00:00+01:00",
        "payload": "{broken",
        "idempotency_key": "k",
        "attributes": {"a": "b"},
        "ingestion_ts": 5,
    }
    assert leanops("publish", topic, write(tmp_path, json.dumps(envelope).encode()), "--envelope", "--wait").code == 0
    assert raw(leanops) == [
        {
            "message_id": "m1",
            "publish_time": "2026-10-31T23:00:00Z",
            "topic_name": "orders",
            "json_payload": "{broken",
            "ingestion_ts": 5,
            "idempotency_key": "k",
            "attributes": '{"a":"b"}',
        }
    ]


def test_a_line_that_is_an_envelope_is_refused_unless_somebody_says_what_it_is(
    leanops: Leanops, topic: str, tmp_path: Path
) -> None:
    line = b'{"message_id": "m1", "publish_time": "2026-11-01T00:00:00Z", "payload": {"a": 1}}'
    file = write(tmp_path, b'{"a": 1}\n' + line)
    refused = leanops("publish", topic, file)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "line 2 is an envelope; publish it with --envelope, or with --no-envelope" in refused.err
    assert leanops("publish", topic, file, "--no-envelope", "--wait").code == 0
    assert [row["json_payload"] for row in raw(leanops)] == ['{"a": 1}', line.decode()]


@pytest.mark.parametrize(
    "line",
    [
        b'{"message_id": "m1", "publish_time": "yesterday", "payload": {}}',
        b'{"message_id": "m1", "publish_time": "2026-11-01T00:00:00Z", "payload": {}, "more": 1}',
        b'{"message_id": "m1", "publish_time": "2026-11-01T00:00:00Z"}',
    ],
)
def test_what_only_looks_like_an_envelope_is_a_payload(
    leanops: Leanops, topic: str, tmp_path: Path, line: bytes
) -> None:
    assert leanops("publish", topic, write(tmp_path, line)).code == 0


def test_standard_input_is_read(leanops: Leanops, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a":1}\n')))
    assert leanops("publish", topic, "-").out == "1 event published to orders\n"


def test_an_empty_file_is_no_error(leanops: Leanops, topic: str, tmp_path: Path) -> None:
    ran = leanops("publish", topic, write(tmp_path, b""))
    assert (ran.code, ran.out) == (0, "0 events published to orders\n")


@pytest.mark.parametrize(
    ("content", "options", "complaint"),
    [
        (b'{"a":1}\n\xff\n', (), "line 2 is not UTF-8"),
        (
            b'{"message_id":"1","publish_time":"2026-01-01T00:00:00Z","payload":{}}\n{}\n',
            ("--envelope",),
            "line 2 is no",
        ),
    ],
)
def test_one_bad_line_publishes_nothing(
    leanops: Leanops, topic: str, tmp_path: Path, content: bytes, options: tuple[str, ...], complaint: str
) -> None:
    ran = leanops("publish", topic, write(tmp_path, content), *options)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err
    assert ran.err.count("\n") == 1
    assert raw(leanops) == []


def test_a_missing_file_is_a_usage_error(leanops: Leanops, topic: str) -> None:
    ran = leanops("publish", topic, "nowhere.jsonl")
    assert (ran.code, ran.err) == (2, "error: nowhere.jsonl cannot be read: no such file or directory\n")


def test_an_unregistered_topic_says_how_to_add_it(leanops: Leanops, home: Path, tmp_path: Path) -> None:
    ran = leanops("publish", "nosuch", write(tmp_path, b"{}"))
    assert (ran.code, "leanops topics add nosuch" in ran.err) == (2, True)
