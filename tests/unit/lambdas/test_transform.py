"""Firehose's transform: every record comes back once and in order, with its table or as failed."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.adapters.sql.state import SqlState
from leanops.domain.errors import StateUnavailableError
from leanops.domain.event.names import Databases
from leanops.domain.event.record import raw_record
from leanops.entrypoints.lambdas.transform import transform
from leanops.ports.state import SCHEMA_REGISTRY, Stored
from leanops.usecases.ingest.known_topics import Registered
from tests.support.builders import Clock
from tests.support.functions import envelope, firehose_event

TOPICS = {"orders", "Payments.v1"}


def record(message_id: str = "m1", payload: str = "{}", topic: str = "orders") -> bytes:
    return raw_record(envelope(message_id, payload, topic), payload, 5)


def results(answer: dict[str, Any]) -> list[str]:
    return [entry["result"] for entry in answer["records"]]


def test_a_record_comes_back_unchanged_with_its_table() -> None:
    event = firehose_event([record("m1", "Ünïcödé \uffff 😀")])

    [entry] = transform(event, TOPICS, Databases())["records"]

    assert entry == {
        "recordId": event["records"][0]["recordId"],
        "result": "Ok",
        "data": event["records"][0]["data"],
        "metadata": {
            "otfMetadata": {
                "destinationDatabaseName": "iceberg_raw_db",
                "destinationTableName": "orders_staging",
                "operation": "insert",
            }
        },
    }


def test_the_table_is_that_of_the_topic_in_the_database_of_the_settings() -> None:
    event = firehose_event([record(topic="Payments.v1")])

    [entry] = transform(event, TOPICS, Databases(raw="landing"))["records"]

    destination = entry["metadata"]["otfMetadata"]
    assert (destination["destinationDatabaseName"], destination["destinationTableName"]) == (
        "landing",
        "payments_v1_staging",
    )


BAD = {
    "unknown topic": record(topic="unheard"),
    "no topic": record(topic="x").replace(b'"x"', b'""'),
    "no JSON": b"garbage",
    "no record": b'{"message_id":"m1"}',
    "empty": b"",
    "two records": record("m1") + b"\n" + record("m2"),
    "not UTF-8": record().replace(b"{}", b"\xff\xfe"),
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_what_no_table_takes_fails_and_spoils_no_other(bad: bytes) -> None:
    event = firehose_event([record("m1"), bad, record("m2")])

    answer = transform(event, TOPICS, Databases())

    assert results(answer) == ["Ok", "ProcessingFailed", "Ok"]
    assert [entry["recordId"] for entry in answer["records"]] == [entry["recordId"] for entry in event["records"]]


def test_data_that_is_no_base64_fails() -> None:
    event = firehose_event([record()])
    event["records"][0]["data"] = "***"

    assert results(transform(event, TOPICS, Databases())) == ["ProcessingFailed"]


def test_an_answer_that_would_be_too_large_fails_the_records_that_do_not_fit() -> None:
    event = firehose_event([record(f"m{number}", "x" * 900_000) for number in range(7)])

    answer = transform(event, TOPICS, Databases())

    assert results(answer) == ["Ok"] * 4 + ["ProcessingFailed"] * 3
    assert len(json.dumps(answer)) < 6_000_000


@given(
    sizes=st.lists(st.integers(0, 3_000), max_size=30),
    bad=st.sets(st.integers(0, 29)),
    limit=st.integers(4_000, 20_000),
)
def test_whatever_comes_every_record_is_answered_for_within_the_limit(
    sizes: list[int], bad: set[int], limit: int
) -> None:
    records = [b"bad" if at in bad else record(f"m{at}", "é" * size) for at, size in enumerate(sizes)]
    event = firehose_event(records)

    answer = transform(event, TOPICS, Databases(), limit)

    assert [entry["recordId"] for entry in answer["records"]] == [entry["recordId"] for entry in event["records"]]
    assert len(json.dumps(answer)) <= limit
    for at, entry in enumerate(answer["records"]):
        assert entry["result"] in {"Ok", "ProcessingFailed"}
        assert entry["result"] == "ProcessingFailed" or base64.b64decode(entry["data"]) == records[at]
        assert not (at in bad and entry["result"] == "Ok")


class Counting:
    """A state store that counts its calls, and can be away."""

    def __init__(self, state: SqlState) -> None:
        self.state, self.calls, self.is_away = state, list[str](), False

    def rows(self, table: Any) -> Iterator[Stored]:
        self._asked("rows")
        return self.state.rows(table)

    def get(self, table: Any, key: Any) -> Stored | None:
        self._asked(f"get {key[0]}")
        return self.state.get(table, key)

    def _asked(self, what: str) -> None:
        self.calls.append(what)
        if self.is_away:
            raise StateUnavailableError("DynamoDB does not answer; try again")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Counting]:
    found = SqlState(f"sqlite:///{tmp_path}/state.db")
    found.put(SCHEMA_REGISTRY, {"topic_name": "orders"}, expected=None)
    yield Counting(found)
    found.close()


def registered(state: Any, clock: Clock) -> Registered:
    return Registered(state, clock)


def test_registered_topics_are_read_once_a_minute(state: Counting) -> None:
    clock = Clock()
    topics = registered(state, clock)

    assert all("orders" in topics for _ in range(100))
    assert state.calls == ["rows"]
    clock.advance(61)
    assert "orders" in topics
    assert state.calls == ["rows", "rows"]


def test_a_topic_added_meanwhile_is_known_at_once(state: Counting) -> None:
    topics = registered(state, Clock())
    assert "orders" in topics

    state.state.put(SCHEMA_REGISTRY, {"topic_name": "Refunds.v1"}, expected=None)

    assert "Refunds.v1" in topics
    assert topics.topic_of("refunds_v1") == "Refunds.v1"


def test_an_unknown_topic_is_asked_for_once_in_some_seconds(state: Counting) -> None:
    clock = Clock()
    topics = registered(state, clock)

    assert not any("refunds" in topics for _ in range(100))
    assert state.calls == ["rows", "get refunds"]
    state.state.put(SCHEMA_REGISTRY, {"topic_name": "refunds"}, expected=None)
    clock.advance(6)
    assert "refunds" in topics


@pytest.mark.parametrize("topic", ["", "a", "../../etc", "x" * 5_000, "nul\0", 5])
def test_a_name_that_no_topic_can_have_is_not_asked_for(state: Counting, topic: object) -> None:
    assert topic not in registered(state, Clock())
    assert state.calls == ["rows"]


def test_while_the_state_store_is_away_what_was_known_stays_true(state: Counting) -> None:
    clock = Clock()
    topics = registered(state, clock)
    assert "orders" in topics
    state.is_away = True
    clock.advance(61)

    assert "orders" in topics


def test_while_the_state_store_is_away_one_unknown_topic_fails_no_other_record(state: Counting) -> None:
    clock = Clock()
    topics = registered(state, clock)
    assert "orders" in topics
    state.is_away = True
    state.state.put(SCHEMA_REGISTRY, {"topic_name": "refunds"}, expected=None)
    event = firehose_event([record("m1"), *(record(topic=f"unheard{number}") for number in range(9)), record("m2")])

    assert results(transform(event, topics, Databases())) == ["Ok", *["ProcessingFailed"] * 9, "Ok"]

    # A store that hangs is asked once, not for every record.
    assert len(state.calls) == 2
    state.is_away = False
    clock.advance(6)
    assert "refunds" in topics


def test_a_function_that_never_saw_the_topics_says_that_the_store_is_away(state: Counting) -> None:
    state.is_away = True

    with pytest.raises(StateUnavailableError):
        assert "orders" in registered(state, Clock())
