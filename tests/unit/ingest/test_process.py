"""The processor: good events go on, bad envelopes are archived, outages are waited out, nothing is lost."""

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import DeliveryUnavailableError, QueueUnavailableError, StateUnavailableError
from leanops.domain.event.envelope import Envelope, bodies, encoded
from leanops.domain.event.names import queue_name
from leanops.domain.event.record import raw_record
from leanops.ports.delivery import MAX_RECORD_BYTES
from leanops.ports.queue import Outgoing, dead_letter_queue
from leanops.ports.state import ERROR_TRACKER
from leanops.usecases.ingest.process import VISIBILITY_S, work
from leanops.usecases.retry import Patience
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import NOW_MS, Clock
from tests.support.hub import Hub, hub_in

MICROS = NOW_MS * 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(tmp_path: Path, clock: Clock) -> Iterator[Hub]:
    with hub_in(tmp_path, clock=clock) as hub:
        add_topic(hub.platform, "orders")
        yield hub


def envelope(message_id: str = "m1", payload: str | None = "{}", **rest: Any) -> Envelope:
    return Envelope("orders", message_id, MICROS, payload=payload, **rest)


def send(hub: Hub, *messages: bytes) -> None:
    assert hub.queue.send([Outgoing("orders", body) for body in messages]) == []


def dead_letters(hub: Hub) -> dict[str, tuple[str, str]]:
    """Message id → rule and reason of every dead letter."""
    rows = [stored.row for stored in hub.platform.state.rows(ERROR_TRACKER)]
    return {str(row["message_id"]): (str(row["rule"]), str(row["reason"])) for row in rows}


def test_several_events_in_one_message_all_land(hub: Hub) -> None:
    [(body, _)] = bodies([envelope("m1"), envelope("m2"), envelope("m3")], 10, 1_000)
    send(hub, body)
    result = hub.process()
    assert result is not None
    assert (result.events, len(result.done)) == (3, 1)
    hub.settle()
    assert hub.ids() == ["m1", "m2", "m3"]


def test_an_event_without_a_landing_time_is_stamped_by_the_processor(hub: Hub) -> None:
    send(hub, encoded(envelope("m1")), encoded(envelope("m2", ingestion_ts=7)))
    hub.settle()
    assert {row["message_id"]: row["ingestion_ts"] for row in hub.raw()} == {"m1": NOW_MS, "m2": 7}


BAD = {
    "not json": (b"rubbish", "malformed"),
    "nothing": (b"", "truncated"),
    "no object": (b"17", "Expected `object`"),
    "no message id": (json.dumps({"topic": "orders", "publish_time": 1, "payload": "{}"}).encode(), "message_id"),
    "empty message id": (
        json.dumps({"topic": "orders", "message_id": "", "publish_time": 1, "payload": "{}"}).encode(),
        "length >= 1",
    ),
    "no payload": (json.dumps({"topic": "orders", "message_id": "m1", "publish_time": 1}).encode(), "exactly one of"),
    "time as text": (
        json.dumps({"topic": "orders", "message_id": "m1", "publish_time": "now", "payload": "{}"}).encode(),
        "publish_time",
    ),
    "another topic": (encoded(Envelope("payments", "m1", MICROS, payload="{}")), "another topic"),
    "not utf-8": (encoded(Envelope("orders", "m1", MICROS, data=b'{"a":"\xff"}')), "not UTF-8, at byte 6"),
    "empty array": (b"[]", "holds no envelope"),
    "nested beyond reason": (b"[" * 100_000, "cannot be understood"),
}


@pytest.mark.parametrize(("body", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_envelope_is_archived_with_its_reason_and_its_bytes(hub: Hub, body: bytes, reason: str) -> None:
    send(hub, body, encoded(envelope("good")))
    result = hub.process()
    assert result is not None
    assert (result.events, result.archived, result.failed) == (1, 1, [])
    assert hub.queue.depth("orders").messages == 0
    [row] = [stored.row for stored in hub.platform.state.rows(ERROR_TRACKER)]
    assert (row["rule"], row["topic_name"]) == ("bad_envelope", "orders")
    assert reason in str(row["reason"])
    assert hub.files.get(str(row["source"])) == body


def test_a_bad_member_of_an_array_spoils_no_other(hub: Hub) -> None:
    send(hub, b"[" + encoded(envelope("m1")) + b',{"message_id":"bad"},' + encoded(envelope("m2")) + b"]")
    hub.settle()
    assert hub.ids() == ["m1", "m2"]
    assert list(dead_letters(hub)) == ["bad"]


def test_a_record_larger_than_the_stream_takes_is_archived(hub: Hub) -> None:
    hub.files.put("claims/big", b"x" * MAX_RECORD_BYTES)
    hub.files.put("claims/fits", b"y" * (MAX_RECORD_BYTES - 500))
    send(hub, encoded(envelope("big", None, claim="claims/big")), encoded(envelope("fits", None, claim="claims/fits")))
    hub.settle()
    assert hub.ids() == ["fits"]
    rule, reason = dead_letters(hub)["big"]
    assert rule == "too_large"
    assert reason.endswith("its bytes are in claims/big")


def test_a_message_whose_claim_is_gone_is_tried_five_times_and_is_then_a_dead_letter(hub: Hub, clock: Clock) -> None:
    send(hub, encoded(envelope("poison", None, claim="claims/gone")), encoded(envelope("good")))
    for _ in range(5):
        result = hub.process()
        assert result is not None
        assert result.reasons == ["the file claims/gone of a claim check is not there"]
        clock.advance(301)
    assert hub.process() is None
    assert hub.queue.depth(dead_letter_queue("orders")).messages == 1
    hub.settle()
    assert hub.ids() == ["good"]


class Unsteady:
    """A delivery stream that is away for some calls, then takes only a part, then all."""

    def __init__(self, inner: Any, outages: int) -> None:
        self.inner, self.outages, self.puts = inner, outages, 0

    def put(self, records: Sequence[bytes]) -> list[int]:
        self.puts += 1
        if self.puts <= self.outages:
            raise DeliveryUnavailableError("throttled; wait")
        if self.puts == self.outages + 1:
            self.inner.put(records[::2])
            return list(range(1, len(records), 2))
        return list(self.inner.put(records))


def test_an_outage_is_waited_out_with_the_messages_in_flight_and_uses_up_no_receive(
    tmp_path: Path, clock: Clock
) -> None:
    with hub_in(tmp_path, clock=clock) as plain:
        add_topic(plain.platform, "orders")
        stream = Unsteady(plain.buffer, outages=20)
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            clock.advance(VISIBILITY_S * 0.9)

        with hub_in(tmp_path, clock=clock, delivery=stream, patience=Patience(sleep=sleep)) as hub:
            send(hub, *(encoded(envelope(f"m{n}")) for n in range(5)))
            result = hub.process()
            assert result is not None
            assert (result.events, result.failed) == (5, [])
            assert hub.queue.depth("orders").messages == 0
        plain.settle()
        assert plain.ids() == ["m0", "m1", "m2", "m3", "m4"]
    assert len(waits) == 21
    assert max(waits) <= 15
    assert len(set(waits)) > 10


def test_a_stop_during_an_outage_gives_the_messages_back_as_if_they_had_not_been_received(
    tmp_path: Path, clock: Clock
) -> None:
    with hub_in(tmp_path, clock=clock) as plain:
        stream = Unsteady(plain.buffer, outages=1_000)
        with hub_in(tmp_path, clock=clock, delivery=stream, patience=Patience(give_up=lambda: True)) as hub:
            send(hub, encoded(envelope()))
            with pytest.raises(DeliveryUnavailableError):
                hub.process()
            [again] = hub.queue.receive("orders", 10, VISIBILITY_S)
            assert again.receives == 1
    assert stream.puts == 1


class AwayState:
    """A state store that is away for some calls."""

    def __init__(self, inner: Any, outages: int) -> None:
        self._inner, self._outages = inner, outages

    def __getattr__(self, name: str) -> Any:
        if self._outages and name in {"get", "put"}:
            self._outages -= 1
            raise StateUnavailableError("the state store does not answer")
        return getattr(self._inner, name)


def test_a_state_store_that_is_away_holds_back_what_must_be_archived(tmp_path: Path, clock: Clock) -> None:
    with hub_in(tmp_path, clock=clock) as plain:
        state = AwayState(plain.platform.state, outages=30)
        with hub_in(tmp_path, clock=clock, state=state, patience=Patience(sleep=lambda _: None)) as hub:
            send(hub, b"rubbish")
            result = hub.process()
            assert result is not None
            assert result.archived == 1
        assert len(dead_letters(plain)) == 1


def test_the_same_message_a_thousand_times_is_a_thousand_copies_or_with_idempotency_one(
    tmp_path: Path, clock: Clock
) -> None:
    with hub_in(tmp_path / "off", clock=clock) as hub:
        add_topic(hub.platform, "orders")
        send(hub, *[encoded(envelope())] * 1_000)
        hub.settle()
        assert hub.ids() == ["m1"] * 1_000
    with hub_in(tmp_path / "on", clock=clock, idempotency_hours=24) as hub:
        add_topic(hub.platform, "orders")
        for _ in range(4):
            send(hub, *[encoded(envelope())] * 250)
            hub.process()
        hub.settle()
        assert hub.ids() == ["m1"]
        clock.advance(25 * 3_600)
        send(hub, encoded(envelope()))
        hub.settle()
        assert hub.ids() == ["m1", "m1"]


def test_a_repeat_is_only_known_after_its_first_delivery_was_confirmed(tmp_path: Path, clock: Clock) -> None:
    with hub_in(tmp_path, clock=clock) as plain:
        add_topic(plain.platform, "orders")
        stream = Unsteady(plain.buffer, outages=1)
        give_up = Patience(give_up=lambda: stream.puts == 1)
        with hub_in(tmp_path, clock=clock, delivery=stream, idempotency_hours=24, patience=give_up) as hub:
            send(hub, encoded(envelope()))
            with pytest.raises(DeliveryUnavailableError):
                hub.process()
            clock.advance(VISIBILITY_S + 1)
            hub.settle()
        assert plain.ids() == ["m1"]


def test_a_clock_that_jumps_back_loses_nothing(hub: Hub, clock: Clock) -> None:
    send(hub, encoded(envelope("before")))
    hub.process()
    clock.advance(-7_200)
    send(hub, encoded(envelope("after")))
    hub.settle()
    assert hub.ids() == ["after", "before"]


def test_two_processors_at_once_deliver_every_message_once(hub: Hub, tmp_path: Path, clock: Clock) -> None:
    for number in range(50):
        send(hub, *(encoded(envelope(f"m{number:02}-{at}")) for at in range(10)))
    shares: list[int] = []

    def drain(one: Hub) -> None:
        while found := one.process(at_most=15):
            shares.append(found.events)

    with hub_in(tmp_path, clock=clock) as other:
        threads = [threading.Thread(target=drain, args=(one,)) for one in (hub, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(shares) == 500
    hub.settle()
    assert hub.ids() == sorted(f"m{number:02}-{at}" for number in range(50) for at in range(10))


def test_what_is_in_flight_when_the_clock_jumps_back_comes_again(tmp_path: Path, clock: Clock) -> None:
    with hub_in(tmp_path, clock=clock) as hub:
        add_topic(hub.platform, "orders")
        send(hub, encoded(envelope("m1")))
        hub.queue.receive("orders", 10, VISIBILITY_S)
        hub.buffer.put([raw_record(envelope("m2"), "{}", 1)])
        assert hub.buffer.claim("f1", 10_000)
        clock.advance(-86_400)
        hub.settle()
        assert hub.ids() == ["m1", "m2"]


class Stubborn:
    """A queue that does not answer to some deletes."""

    def __init__(self, inner: Any, outages: int) -> None:
        self._inner, self.outages = inner, outages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def delete(self, queue: str, receipts: Sequence[Any]) -> Any:
        if self.outages:
            self.outages -= 1
            raise QueueUnavailableError("the queue does not answer")
        return self._inner.delete(queue, receipts)


def test_a_queue_that_is_away_when_messages_are_deleted_doubles_nothing(hub: Hub, clock: Clock) -> None:
    send(hub, encoded(envelope("m1")))
    processor = replace(hub.processor, patience=Patience(sleep=lambda _: clock.advance(VISIBILITY_S * 0.9)))
    result = work(processor, Stubborn(hub.queue, outages=20), "orders", 10)
    assert result is not None
    assert hub.queue.depths() == {}
    hub.settle()
    assert hub.ids() == ["m1"]


def test_an_unknown_failure_sends_messages_back_and_in_the_end_only_the_guilty_one_is_dead(
    hub: Hub, clock: Clock
) -> None:
    class Picky:
        def put(self, records: Sequence[bytes]) -> list[int]:
            if any(b"guilty" in record for record in records):
                raise KeyError("never seen before")
            return list(hub.buffer.put(records))

    send(hub, *(encoded(envelope(name)) for name in ("m1", "m2", "guilty", "m3")))
    picky = replace(hub.processor, delivery=Picky())
    for _ in range(40):
        work(picky, hub.queue, "orders", 100)
        clock.advance(301)
    assert hub.queue.depth(dead_letter_queue("orders")).messages == 1
    hub.settle()
    assert hub.ids() == ["m1", "m2", "m3"]


@pytest.mark.parametrize(
    "claim", ["claims//x", "claims/../state.db", "claims/x/", "claims/" + "y" * 300, "leanops.toml"]
)
def test_a_claim_that_names_no_claim_file_is_archived(hub: Hub, claim: str) -> None:
    send(hub, encoded(envelope("bad", None, claim=claim)), encoded(envelope("good")))
    hub.settle()
    assert hub.ids() == ["good"]
    assert dead_letters(hub)["bad"] == ("bad_envelope", "its claim check names no file of claims")


def test_an_array_without_envelopes_is_archived_whatever_blanks_come_first(hub: Hub) -> None:
    send(hub, b" []")
    result = hub.process()
    assert result is not None
    assert result.archived == 1


def test_a_long_topic_has_a_queue_of_its_own(hub: Hub) -> None:
    topic = "a" * 255
    add_topic(hub.platform, topic)
    hub.queue.send([Outgoing(queue_name(topic), encoded(Envelope(topic, "m1", MICROS, payload="{}")))])
    hub.settle(topic)
    assert hub.ids(topic) == ["m1"]
