"""Every queue keeps the same promises: SQLite, PostgreSQL, and SQS as ElasticMQ and moto speak it."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from leanops.adapters.aws.queue import SqsQueue
from leanops.adapters.sql.queue import SqlQueue
from leanops.domain.errors import UsageError
from leanops.domain.event.envelope import Envelope, encoded, envelopes_in
from leanops.ports.queue import MAX_RECEIVES, Depth, Outgoing, dead_letter_queue
from leanops.runtimes.queues import QUEUES, open_queue
from leanops.usecases.ingest.process import work
from tests.support.hub import hub_in
from tests.support.queues import ENGINES, SQL, Place, bodies_of, numbered, place_of

TEXTS = {
    "empty": "",
    "control": "".join(map(chr, range(32))) + "\x7f\x80\x9f",
    "no characters": "\ufffe\uffff\U0001ffff\ufdd0",
    "scripts": "Ünïcödé 漢字 العربية \u202e 👩‍👩‍👧 \ufeff\u2028",
    "lines": "a\nb\r\nc\rd\te  f",
    "markup": "]]> &amp; <a b='c'> \\u0000 \\ \"",
    "200 KB": "é😀x" * 30_000,
}


@pytest.fixture(params=[engine for engines in ENGINES.values() for engine in engines])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_of(request, tmp_path) as found:
        yield found


# moto, as SQS sometimes does, takes the receipt of an earlier receive for the message itself.
where_receipts_end = pytest.mark.parametrize("place", [*SQL, "elasticmq"], indirect=True)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_what_is_sent_is_received_with_the_same_bytes(place: Place, text: str) -> None:
    envelope = Envelope("orders", "m1", 1, payload=text, attributes={"odd": text[:100]})
    place.send(encoded(envelope))

    [message] = place.receive()

    assert message.body == encoded(envelope)
    assert envelopes_in(message.body) == [envelope]


def test_characters_that_are_none_decode_to_themselves_however_they_were_written(place: Place) -> None:
    place.send('{"topic":"orders","message_id":"m1","publish_time":1,"payload":"\uffff\ufffe"}'.encode())

    [message] = place.receive()

    assert envelopes_in(message.body) == [Envelope("orders", "m1", 1, payload="\uffff\ufffe")]


def test_an_empty_queue_gives_nothing(place: Place) -> None:
    assert place.receive() == []
    assert place.queue.depth(place.name).messages == 0


def test_sending_receiving_or_deleting_nothing_is_no_error(place: Place) -> None:
    assert place.queue.send([]) == []
    assert place.queue.delete(place.name, []) == []
    place.queue.change_visibility(place.name, [], 5)


def test_a_queue_made_again_keeps_its_messages(place: Place) -> None:
    place.send(b"kept")

    place.queue.create(place.name)

    assert bodies_of(place.receive()) == [b"kept"]


def test_a_message_in_flight_is_hidden_and_comes_back_when_its_visibility_ends(place: Place) -> None:
    place.send(b"message")
    place.receive(visibility_s=1)
    assert place.receive() == []

    [again] = place.soon(place.receive)

    assert (again.body, again.receives) == (b"message", 2)


def test_a_deleted_message_never_comes_back(place: Place) -> None:
    place.send(b"deleted", b"left")
    received = place.receive(visibility_s=1)

    gone = [message.receipt for message in received if message.body == b"deleted"]
    assert place.queue.delete(place.name, gone) == []

    assert bodies_of(place.soon(place.receive)) == [b"left"]
    assert place.queue.depth(place.name).messages == 1


@where_receipts_end
def test_a_receipt_of_an_earlier_receive_is_reported_and_deletes_nothing(place: Place) -> None:
    place.send(b"message")
    [stale] = place.receive(visibility_s=1)
    [good] = place.soon(place.receive)

    assert place.queue.delete(place.name, [stale.receipt]) == [stale.receipt]
    place.queue.change_visibility(place.name, [stale.receipt], 0)
    assert place.receive() == []
    assert place.queue.depth(place.name).messages == 1
    assert place.queue.delete(place.name, [good.receipt]) == []
    assert place.queue.depth(place.name).messages == 0


@where_receipts_end
def test_a_receipt_used_twice_is_reported_and_takes_no_neighbour_with_it(place: Place) -> None:
    place.send(*numbered(3))
    received = place.receive(visibility_s=1)
    first = [message.receipt for message in received[:1]]
    place.queue.delete(place.name, first)

    assert place.queue.delete(place.name, first) == first
    assert place.queue.delete(place.name, [*first, received[1].receipt]) == first
    assert place.queue.delete(place.name, first) == first
    place.queue.change_visibility(place.name, first, 0)

    assert bodies_of(place.soon(place.receive)) == [received[2].body]


def test_extending_some_keeps_them_hidden_and_their_receipts_good(place: Place) -> None:
    place.send(*numbered(4))
    received = place.receive(visibility_s=1)
    kept = [message.receipt for message in received[1:3]]

    place.queue.change_visibility(place.name, kept, 60)

    back: list[bytes] = []
    place.soon(lambda: back.extend(bodies_of(place.receive())) or len(back) == 2)
    assert back == bodies_of([received[0], received[3]])
    assert place.queue.delete(place.name, kept[:1]) == []
    place.queue.change_visibility(place.name, kept[1:], 60)
    assert place.queue.delete(place.name, kept[1:]) == []
    assert place.queue.depth(place.name).messages == 2


def test_a_message_given_back_is_visible_at_once(place: Place) -> None:
    place.send(*numbered(3))
    received = place.receive()

    place.give_back(received[1:2])

    assert bodies_of(place.receive()) == [received[1].body]


def test_messages_given_back_untried_come_at_once_and_their_old_receipts_are_good_no_longer(place: Place) -> None:
    place.send(*numbered(5))
    received = place.soon(lambda: place.receive(visibility_s=600))
    place.queue.give_back(place.name, [message.receipt for message in received[:2]])
    again = place.soon(lambda: place.receive(visibility_s=600))
    assert bodies_of(again) == bodies_of(received[:2])
    if not isinstance(place.queue, SqsQueue):
        assert {message.receives for message in again} == {1}
        place.queue.give_back(place.name, [message.receipt for message in received[:2]])
        assert place.receive() == []
    place.queue.delete(place.name, [message.receipt for message in (*again, *received[2:])])
    assert place.receive() == []


def test_receives_count_up_and_then_it_is_a_dead_letter_with_the_same_body(place: Place) -> None:
    place.send(b"poison")
    counts = []
    for _ in range(MAX_RECEIVES):
        [message] = place.receive()
        counts.append(message.receives)
        place.give_back([message])

    assert place.receive() == []

    assert counts == [1, 2, 3, 4, 5]
    assert place.queue.depth(place.name).messages == 0
    assert place.queue.depth(dead_letter_queue(place.name)) == Depth(
        1, 0, place.queue.depth(dead_letter_queue(place.name)).oldest_ms
    )
    [dead_letter] = place.receive(queue=dead_letter_queue(place.name))
    assert dead_letter.body == b"poison"


def test_every_queue_that_holds_messages_is_named_with_its_depth(place: Place) -> None:
    other = f"{place.name}-other"
    place.queue.create(other)
    place.send(*numbered(3))
    place.send(b"letter", to=dead_letter_queue(place.name))

    ours = [place.name, dead_letter_queue(place.name)]
    place.soon(lambda: [name for name in place.queue.ready() if name.startswith(place.name)] == ours)
    depths = place.queue.depths()
    assert [depths[name].visible for name in ours] == [3, 1]
    assert other not in depths


def test_a_queue_whose_messages_are_all_in_flight_is_not_ready(place: Place) -> None:
    place.send(b"message")
    place.soon(place.receive)
    assert place.name not in place.queue.ready()
    assert place.queue.depths()[place.name].in_flight == 1


def test_dead_letters_do_not_die_again(place: Place) -> None:
    dead = dead_letter_queue(place.name)
    place.send(*numbered(3), to=dead)

    for _ in range(MAX_RECEIVES + 2):
        received = place.receive(queue=dead)
        assert bodies_of(received) == numbered(3)
        place.queue.change_visibility(dead, [message.receipt for message in received], 0)


def test_depth_counts_what_waits_and_what_is_in_flight(place: Place) -> None:
    place.send(*numbered(25))
    received = place.receive(at_most=10)
    place.queue.delete(place.name, [message.receipt for message in received[:4]])

    depth = place.queue.depth(place.name)

    assert (depth.visible, depth.in_flight, depth.messages) == (15, 6, 21)


def test_more_messages_than_a_batch_holds_are_all_sent_received_and_deleted(place: Place) -> None:
    place.send(*numbered(57))

    received = place.receive(at_most=1_000)

    assert bodies_of(received) == numbered(57)
    assert place.queue.delete(place.name, [message.receipt for message in received]) == []
    assert place.queue.depth(place.name).messages == 0


def test_messages_that_fill_more_than_one_call_are_all_sent(place: Place) -> None:
    bodies = [f"{number}".encode() + b"x" * 100_000 for number in range(9)]

    place.send(*bodies)

    assert bodies_of(place.receive()) == bodies


def test_queues_do_not_mix(place: Place) -> None:
    other = f"{place.name}b"
    place.queue.create(other)
    place.queue.send([Outgoing(other if number % 3 else place.name, body) for number, body in enumerate(numbered(30))])

    assert bodies_of(place.receive()) == numbered(30)[::3]
    assert len(place.receive(queue=other)) == 20


# moto's own threads are in each other's way.
@pytest.mark.parametrize("place", [*SQL, "elasticmq"], indirect=True)
def test_receivers_at_once_never_have_the_same_message_in_flight(place: Place) -> None:
    readers, messages = 4, 200
    for start in range(0, messages, 20):
        place.send(*numbered(messages)[start : start + 20])
    begin, got = threading.Barrier(readers), Counter[bytes]()

    def read(queue: SqlQueue | SqsQueue) -> list[bytes]:
        begin.wait()
        found: list[bytes] = []
        while received := queue.receive(place.name, 7, 300):
            found += bodies_of(received)
        return found

    with ThreadPoolExecutor(readers) as pool:
        for running in [pool.submit(read, place.open()) for _ in range(readers)]:
            got.update(running.result())
    # A reader that found everything locked by others may have left too soon.
    got.update(bodies_of(place.receive(1_000)))

    assert got == Counter(numbered(messages))


def test_a_worker_takes_events_from_it_and_leaves_the_ones_that_fail(place: Place, tmp_path: Path) -> None:
    gone = Envelope("orders", "gone", 1, claim="claims/2026-11-15/orders/gone")
    events = [Envelope(place.name, f"m{number}", 1, payload="é\uffff") for number in range(25)]
    with hub_in(tmp_path) as hub:
        place.send(*map(encoded, events), encoded(replace(gone, topic=place.name)))

        result = work(hub.processor, place.queue, place.name, 100)

        assert result is not None
        assert (result.events, len(result.failed)) == (25, 1)
        assert hub.buffer.waiting().records == 25
    assert place.queue.depth(place.name).messages == 1
    assert place.receive() == []


def test_every_kind_of_queue_is_held_to_this_contract() -> None:
    assert ENGINES.keys() == QUEUES.keys()


@pytest.mark.parametrize("url", ["sqlite:///{folder}/queue.db", "sqs:leanops-"])
def test_a_queue_is_opened_by_its_url(url: str, tmp_path: Path) -> None:
    queue = open_queue(url.format(folder=tmp_path), lambda: 0)
    assert queue.max_bytes > 0
    queue.close()


def test_an_unknown_kind_of_queue_is_refused() -> None:
    with pytest.raises(UsageError, match="kafka: is not a kind of queue; choose one of: sqlite, postgresql, sqs"):
        open_queue("kafka://localhost", lambda: 0)
