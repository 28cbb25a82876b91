"""Dead letters: every published id is in RAW, in dlq_errors or in flight, and a replay sends nothing twice."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import QueueUnavailableError, UsageError
from leanops.domain.event.envelope import Envelope, encoded, micros
from leanops.domain.failures import Rule, error_id
from leanops.domain.table.definitions import ERRORS
from leanops.ports.delivery import MAX_RECORD_BYTES
from leanops.ports.queue import MAX_RECEIVES, Outgoing, dead_letter_queue
from leanops.ports.state import ERROR_TRACKER
from leanops.usecases.dlq.drain import Drained, archive_and_drain, drain
from leanops.usecases.dlq.replay import Done, Outcome, Pace, Selection, discard, replay
from leanops.usecases.ingest.archive import DeadLetter, archive, unroutable
from leanops.usecases.ingest.pack import messages
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import NOW, Clock
from tests.support.hub import Hub, hub_in

LEASE_S = 301


class Abandoned(BaseException):
    """A process killed at a step: nothing after it runs."""


def envelope(message_id: str = "m1", payload: str | None = '{"a":1}', topic: str = "orders", **rest: Any) -> Envelope:
    return Envelope(topic, message_id, micros(NOW), payload=payload, **rest)


def dead_letter(message_id: str = "m1", rule: Rule = Rule.BAD_ENVELOPE, topic: str = "orders") -> DeadLetter:
    return DeadLetter(topic, encoded(envelope(message_id)), rule, "it is bad", message_id, micros(NOW))


def errors(hub: Hub) -> dict[str, dict[str, Any]]:
    """The rows of dlq_errors by message id; a doubled one fails the test."""
    rows = hub.platform.catalog.select(hub.platform.rules.databases.dlq_errors, list(ERRORS.columns))
    found = {row["message_id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def noted(hub: Hub) -> list[str]:
    return sorted(str(stored.row["message_id"]) for stored in hub.platform.state.rows(ERROR_TRACKER))


def archived(hub: Hub, *dead_letters: DeadLetter) -> None:
    archive(dead_letters, hub.files, hub.platform.state, hub.platform.clock)


def empty_dead_letters(hub: Hub) -> int:
    archived, _ = archive_and_drain(hub.platform, hub.queue, hub.files)
    return archived


def queued(hub: Hub, name: str = "orders") -> list[str]:
    received = hub.queue.receive(name, 1_000, 60)
    return sorted(json.loads(message.body)["message_id"] for message in received)


@contextmanager
def orders_in(folder: Path, clock: Clock | None = None, **rest: Any) -> Iterator[Hub]:
    with hub_in(folder, clock=clock or Clock(), **rest) as hub:
        add_topic(hub.platform, "orders")
        yield hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with orders_in(tmp_path) as found:
        yield found


def body_named(message_id: str, **members: Any) -> bytes:
    said = {"topic": "orders", "message_id": message_id, "publish_time": micros(NOW), "payload": "{}"}
    return json.dumps({**said, **members}).encode()


GOOD, BAD = encoded(envelope("good")), body_named("bad", publish_time="yesterday")
BODIES: dict[str, tuple[bytes, set[str], set[str]]] = {
    "a good event": (GOOD, {"good"}, set()),
    "a payload that is no JSON": (encoded(envelope("m", "{]")), {"m"}, set()),
    "an empty payload": (encoded(envelope("m", "")), {"m"}, set()),
    "NUL in the payload": (encoded(envelope("m", "a\x00b")), {"m"}, set()),
    "a deeply nested payload": (encoded(envelope("m", "[" * 50_000)), {"m"}, set()),
    "data that is not UTF-8": (encoded(envelope("m", None, data=b"\xff\xfe")), set(), {"m"}),
    "an oversized payload": (encoded(envelope("m", "x" * (MAX_RECORD_BYTES + 1))), set(), {"m"}),
    "an array with a bad member": (b"[" + GOOD + b"," + BAD + b"]", {"good"}, {"bad"}),
    "an empty message_id": (body_named(""), set(), {"body-"}),
    "no message_id": (b'{"topic":"orders","publish_time":1,"payload":"{}"}', set(), {"body-"}),
    "NUL in the message_id": (body_named("m\x00"), {"m\x00"}, set()),
    "half a character in the message_id": (body_named("m\ud800"), set(), {"body-"}),
    "another topic than its queue's": (encoded(envelope("m", topic="invoices")), set(), {"m"}),
    "a body that is no JSON": (b"hello", set(), {"body-"}),
    "an empty body": (b"", set(), {"body-"}),
    "an empty array": (b"[]", set(), {"body-"}),
    "a body that is not UTF-8": (b"\xff\xfe{}", set(), {"body-"}),
    "a body of NUL bytes": (b"\x00\x00", set(), {"body-"}),
    "a deeply nested body": (b'{"a":' * 50_000, set(), {"body-"}),
    "an array nested deeply": (b"[" * 50_000, set(), {"body-"}),
    "a claim that is no name of a file": (encoded(envelope("m", None, claim="../../etc/passwd")), set(), {"m"}),
    "a claim that is a folder": (encoded(envelope("m", None, claim="claims/x")), set(), {"m"}),
    "a claim whose file is gone": (encoded(envelope("m", None, claim="claims/gone")), set(), {"m"}),
}


@pytest.mark.parametrize(("body", "in_raw", "dead"), BODIES.values(), ids=BODIES.keys())
def test_every_event_ends_in_raw_or_in_dlq_errors(
    tmp_path: Path, body: bytes, in_raw: set[str], dead: set[str]
) -> None:
    clock = Clock()
    with orders_in(tmp_path, clock) as hub:
        hub.files.put("claims/x/y", b"")
        hub.queue.send([Outgoing("orders", body), Outgoing("orders", encoded(envelope("neighbour")))])
        for _ in range(MAX_RECEIVES + 1):
            hub.settle()
            clock.advance(400)
        empty_dead_letters(hub)
        assert set(hub.ids()) == in_raw | {"neighbour"}
        assert {name[: 5 if name.startswith("body-") else None] for name in errors(hub)} == dead
        assert (hub.queue.depth("orders").messages, hub.queue.depth(dead_letter_queue("orders")).messages) == (0, 0)
        assert noted(hub) == []
        for row in errors(hub).values():
            archived = hub.files.get(row["source"])
            assert archived is not None
            assert archived in body or json.loads(archived).items() <= json.loads(body).items()


@pytest.mark.parametrize("topic", ["ghosts", "a/b", "../../up", "x\x00y", "é" * 300, "'; drop", "goog-x"])
def test_events_of_topics_that_nobody_registered_are_dead_letters(hub: Hub, topic: str) -> None:
    (message, _), *_ = messages(hub.queue, hub.files, hub.platform.clock, [envelope("m", topic=topic)])
    hub.queue.send([message])
    hub.settle(topic)
    drain(hub.platform)
    (row,) = errors(hub).values()
    assert (row["message_id"], row["failures"][0]["rule"]) == ("m", Rule.UNROUTABLE)
    assert json.loads(hub.files.get(row["source"]) or b"")["topic"] == topic


def test_a_record_with_broken_attributes_is_a_dead_letter_all_the_same() -> None:
    from leanops.domain.event.record import Unroutable

    record = b'{"message_id":"m","publish_time":1,"topic_name":"t","json_payload":"","ingestion_ts":1,"attributes":"{"}'
    assert unroutable(Unroutable(record, "ghosts", "nobody knows it")).body == record


def test_a_dead_letter_is_a_row_of_dlq_errors_that_names_its_archive(hub: Hub) -> None:
    archived(hub, dead_letter("m1", Rule.TOO_LARGE))
    assert drain(hub.platform) == Drained(new=1, again=0, commits=1)
    (row,) = errors(hub).values()
    identity = error_id("dlq", "orders", "m1")
    assert (row["error_id"], row["layer"], row["status"], row["attempts"]) == (identity, "dlq", "OPEN", 1)
    assert row["source"].startswith(f"dlq/orders/2026-11-15/{identity}-")
    assert (row["publish_time"], row["detected_ts"], row["status_ts"]) == (NOW, NOW, None)
    assert row["failures"] == [
        {"rule": "too_large", "column": None, "path": None, "message": "it is bad", "value": None}
    ]
    assert hub.files.get(row["source"]) == dead_letter().body


def test_thousands_of_dead_letters_take_a_few_commits(hub: Hub) -> None:
    archived(hub, *(dead_letter(f"m{number}") for number in range(1_100)))
    assert drain(hub.platform) == Drained(new=1_100, again=0, commits=2)
    assert (len(errors(hub)), noted(hub)) == (1_100, [])
    assert drain(hub.platform) == Drained()


def test_a_dead_letter_that_comes_again_is_open_again_with_one_attempt_more(hub: Hub) -> None:
    archived(hub, dead_letter("m1"), dead_letter("m2"))
    drain(hub.platform)
    discard(hub.platform, Selection())
    archived(hub, dead_letter("m1"), dead_letter("m3"))
    assert drain(hub.platform) == Drained(new=1, again=1, commits=1)
    assert {name: (row["status"], row["attempts"]) for name, row in errors(hub).items()} == {
        "m1": ("OPEN", 2),
        "m2": ("DISCARDED", 1),
        "m3": ("OPEN", 1),
    }


def test_a_dead_letter_noted_anew_while_it_is_drained_stays_noted(tmp_path: Path) -> None:
    with orders_in(tmp_path) as other:

        def archive_again(name: str) -> None:
            if name == "before forget dead letters":
                archived(other, dead_letter("m1"))

        archived(other, dead_letter("m1"), dead_letter("m2"))
        with hub_in(tmp_path, step=archive_again) as hub:
            drain(hub.platform)
        assert noted(other) == ["m1"]
        drain(other.platform)
        assert {name: row["attempts"] for name, row in errors(other).items()} == {"m1": 2, "m2": 1}


def test_a_drain_that_another_one_overtook_doubles_nothing(tmp_path: Path) -> None:
    clock = Clock()
    with orders_in(tmp_path, clock) as other:

        def be_overtaken(name: str) -> None:
            if name == "before drain" and noted(other):
                clock.advance(LEASE_S)
                drain(other.platform)

        archived(other, dead_letter("m1"), dead_letter("m2"))
        with hub_in(tmp_path, clock=clock, step=be_overtaken) as slow:
            assert drain(slow.platform) == Drained()
        assert sorted(errors(other)) == ["m1", "m2"]


def stop_at(number: int) -> Callable[[str], None]:
    calls = iter(range(1, 1_000))

    def step(name: str) -> None:
        if next(calls) == number:
            raise Abandoned(name)

    return step


@pytest.mark.parametrize("number", range(1, 9))
def test_nothing_is_lost_or_doubled_wherever_a_drain_is_abandoned(tmp_path: Path, number: int) -> None:
    clock = Clock()
    with orders_in(tmp_path, clock) as hub:
        archived(hub, dead_letter("again"))
        drain(hub.platform)
        hub.queue.send([Outgoing(dead_letter_queue("orders"), encoded(envelope(key))) for key in ("again", "m1", "m2")])
    with hub_in(tmp_path, clock=clock, step=stop_at(number)) as killed:
        try:
            empty_dead_letters(killed)
            finished = True
        except Abandoned:
            finished = False
    clock.advance(LEASE_S)
    with hub_in(tmp_path, clock=clock) as hub:
        empty_dead_letters(hub)
        found = errors(hub)
        assert (sorted(found), noted(hub)) == (["again", "m1", "m2"], [])
        assert {row["status"] for row in found.values()} == {"OPEN"}
        assert finished is (number == 8)


def test_dead_letters_that_took_too_many_receives_are_counted_event_by_event(hub: Hub) -> None:
    body = b"[" + encoded(envelope("a")) + b"," + encoded(envelope("b", None, claim="claims/x")) + b"]"
    hub.queue.send([Outgoing(dead_letter_queue("orders"), body)])
    assert empty_dead_letters(hub) == 2
    assert empty_dead_letters(hub) == 0
    assert {row["failures"][0]["rule"] for row in errors(hub).values()} == {"receives_exceeded"}


def outcomes(done: list[Done]) -> dict[str, Outcome]:
    return {one.message_id: one.outcome for one in done}


def replayed(hub: Hub, selection: Selection | None = None, **rest: Any) -> dict[str, Outcome]:
    return outcomes(replay(hub.platform, hub.queue, hub.files, selection or Selection(), **rest))


def test_a_replayed_dead_letter_is_in_its_queue_as_it_was_and_is_not_sent_again(hub: Hub) -> None:
    archived(hub, dead_letter("m1"), dead_letter("m2"))
    drain(hub.platform)
    assert replayed(hub) == {"m1": Outcome.REPLAYED, "m2": Outcome.REPLAYED}
    assert {row["status"] for row in errors(hub).values()} == {"REPLAYED"}
    assert all(row["status_ts"] == NOW for row in errors(hub).values())
    assert replayed(hub) == {}
    assert replayed(hub, Selection(error_id=error_id("dlq", "orders", "m1")[:8])) == {"m1": Outcome.CLOSED}
    assert queued(hub) == ["m1", "m2"]


def test_a_dry_run_says_what_would_happen_and_sends_nothing(hub: Hub) -> None:
    archived(hub, dead_letter("m1"), dead_letter("lost"), dead_letter("ghost", topic="ghosts"))
    drain(hub.platform)
    hub.files.delete(errors(hub)["lost"]["source"])
    expected = {"lost": Outcome.MISSING_FILE, "ghost": Outcome.NOT_REGISTERED}
    assert replayed(hub, dry_run=True) == {"m1": Outcome.WAITING, **expected}
    assert {row["status"] for row in errors(hub).values()} == {"OPEN"}
    assert replayed(hub) == {"m1": Outcome.REPLAYED, **expected}
    assert queued(hub) == ["m1"]
    assert {name: row["status"] for name, row in errors(hub).items()} == {
        "m1": "REPLAYED",
        "lost": "OPEN",
        "ghost": "OPEN",
    }


def test_a_selection_names_topic_rule_number_and_order(hub: Hub) -> None:
    clock = hub.platform.clock
    assert isinstance(clock, Clock)
    for number, rule in enumerate([Rule.TOO_LARGE, Rule.BAD_ENVELOPE, Rule.TOO_LARGE]):
        archived(hub, dead_letter(f"m{number}", rule))
        clock.advance(1)
    archived(hub, dead_letter("other", topic="ghosts"))
    drain(hub.platform)
    run = {"dry_run": True}
    assert list(replayed(hub, Selection(topic="orders"), **run)) == ["m0", "m1", "m2"]
    assert list(replayed(hub, Selection(rule="too_large"), **run)) == ["m0", "m2"]
    assert list(replayed(hub, Selection(limit=2, newest=True), **run)) == ["other", "m2"]
    for bad in ("zz", "' or true", error_id("dlq", "orders", "nosuch")):
        with pytest.raises(UsageError):
            replayed(hub, Selection(error_id=bad))


def test_a_rate_is_kept_by_waiting_between_sends(hub: Hub) -> None:
    archived(hub, *(dead_letter(f"m{number}") for number in range(25)))
    drain(hub.platform)
    waits: list[float] = []
    replayed(hub, pace=Pace(10, waits.append))
    assert waits == [1.0, 1.0, 0.5]
    assert len(queued(hub)) == 25


def test_an_event_put_back_together_goes_by_claim_check_again(hub: Hub) -> None:
    big = envelope("big", "x" * (hub.queue.max_bytes + 1))
    archived(hub, DeadLetter("orders", encoded(big), Rule.UNROUTABLE, "no table", "big"))
    archived(hub, DeadLetter("orders", b"x" * (hub.queue.max_bytes + 1), Rule.UNROUTABLE, "no table", "broken"))
    drain(hub.platform)
    assert replayed(hub) == {"big": Outcome.REPLAYED, "broken": Outcome.TOO_LARGE}
    (message,) = hub.queue.receive("orders", 10, 60)
    assert hub.files.get(json.loads(message.body)["claim"]) == b"x" * (hub.queue.max_bytes + 1)


def test_what_a_queue_took_before_it_went_away_is_marked(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    archived(hub, *(dead_letter(f"m{number}") for number in range(4)))
    drain(hub.platform)
    send, sends = hub.queue.send, iter([True, False, True, True])

    def sometimes(messages: list[Outgoing]) -> list[int]:
        if not next(sends):
            raise QueueUnavailableError("away")
        return send(messages)

    monkeypatch.setattr(hub.queue, "send", sometimes)
    with pytest.raises(QueueUnavailableError):
        replayed(hub, pace=Pace(2, lambda _: None))
    assert sorted(row["status"] for row in errors(hub).values()) == ["OPEN", "OPEN", "REPLAYED", "REPLAYED"]
    assert len(replayed(hub)) == 2
    assert queued(hub) == ["m0", "m1", "m2", "m3"]


def test_a_replayed_event_that_fails_again_is_open_with_one_attempt_more(hub: Hub) -> None:
    archived(hub, DeadLetter("orders", body_named("m", publish_time="x"), Rule.BAD_ENVELOPE, "it is bad", "m"))
    drain(hub.platform)
    replayed(hub)
    hub.settle()
    drain(hub.platform)
    assert {name: (row["status"], row["attempts"]) for name, row in errors(hub).items()} == {"m": ("OPEN", 2)}


@pytest.mark.parametrize("number", range(1, 5))
def test_a_replay_abandoned_at_any_step_loses_no_letter(tmp_path: Path, number: int) -> None:
    clock = Clock()
    with orders_in(tmp_path, clock) as hub:
        archived(hub, dead_letter("m1"), dead_letter("m2"))
        drain(hub.platform)
    with hub_in(tmp_path, clock=clock, step=stop_at(number)) as killed, pytest.raises(Abandoned):
        replayed(killed)
    clock.advance(LEASE_S)
    with hub_in(tmp_path, clock=clock) as hub:
        replayed(hub)
        assert {row["status"] for row in errors(hub).values()} == {"REPLAYED"}
        assert set(queued(hub)) == {"m1", "m2"}


def test_a_replay_is_no_repeat_though_the_event_was_delivered_once(tmp_path: Path) -> None:
    with orders_in(tmp_path, idempotency_hours=24) as hub:
        hub.queue.send([Outgoing("later", encoded(envelope("m1", topic="later")))])
        hub.settle("later")
        drain(hub.platform)
        add_topic(hub.platform, "later")
        assert replayed(hub) == {"m1": Outcome.REPLAYED}
        hub.settle("later")
        assert hub.ids("later") == ["m1"]


def test_a_replay_that_is_interrupted_marks_what_it_sent(hub: Hub) -> None:
    archived(hub, dead_letter("m1"), dead_letter("m2"), dead_letter("m3"))
    drain(hub.platform)

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replayed(hub, pace=Pace(1, interrupt))
    replayed(hub)
    assert sorted(queued(hub)) == ["m1", "m2", "m3"]


def test_of_two_dead_letters_with_one_message_id_both_are_kept(hub: Hub) -> None:
    twins = [DeadLetter("orders", body, Rule.BAD_ENVELOPE, "why", "m1") for body in (b"one", b"two")]
    archived(hub, *twins)
    assert {hub.files.get(name) for name in hub.files.names("dlq/")} == {b"one", b"two"}
