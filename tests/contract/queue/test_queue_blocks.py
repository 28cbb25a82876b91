"""What our own queues promise beyond the port: order, blocks that come apart without loss, an end of time."""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leanops.adapters.sql.queue import SqlQueue
from leanops.ports.queue import MAX_RECEIVES, Outgoing, Received, dead_letter_queue
from tests.support.queues import SQL, Place, bodies_of, numbered, place_of


@pytest.fixture(params=SQL)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_of(request, tmp_path) as found:
        yield found


def test_the_order_of_one_sender_is_kept(place: Place) -> None:
    for start in range(0, 300, 60):
        place.send(*numbered(300)[start : start + 60])

    order = [message.body for at_most in (7, 100, 1_000) for message in place.receive(at_most)]

    assert order == numbered(300)


def test_half_of_a_thousand_deleted_leaves_exactly_the_other_half(place: Place) -> None:
    place.send(*numbered(1_000))
    received = place.receive(1_000)

    assert place.queue.delete(place.name, [message.receipt for message in received[::2]]) == []

    assert place.queue.depth(place.name).messages == 500
    place.clock.advance(31)
    assert bodies_of(place.receive(1_000)) == numbered(1_000)[1::2]


def test_blocks_larger_than_asked_for_are_split_without_loss(place: Place) -> None:
    place.send(*numbered(100))
    late = place.receive(at_most=100, visibility_s=1)
    place.clock.advance(2)

    rounds = [place.receive(at_most=33) for _ in range(4)]

    assert [len(received) for received in rounds] == [33, 33, 33, 1]
    assert bodies_of([message for received in rounds for message in received]) == numbered(100)
    assert len(place.queue.delete(place.name, [message.receipt for message in late])) == 100
    assert place.queue.depth(place.name).messages == 100


def test_a_message_received_twice_without_success_comes_alone(place: Place) -> None:
    place.send(*numbered(5))
    for _ in range(2):
        place.give_back(place.receive())

    alone = [place.receive() for _ in range(5)]

    assert [len(received) for received in alone] == [1] * 5
    assert {received[0].receives for received in alone} == {3}
    assert bodies_of([received[0] for received in alone]) == numbered(5)


def test_a_message_that_kills_its_readers_takes_no_other_to_the_dead_letters(place: Place) -> None:
    place.send(*numbered(20))
    done: list[bytes] = []
    for _ in range(40):
        received = place.receive(visibility_s=1)
        if numbered(20)[7] in bodies_of(received):
            place.clock.advance(2)  # the reader is dead, and its messages come back
            continue
        done += bodies_of(received)
        place.queue.delete(place.name, [message.receipt for message in received])

    assert sorted(done) == [body for body in numbered(20) if body != numbered(20)[7]]
    assert bodies_of(place.receive(queue=dead_letter_queue(place.name))) == [numbered(20)[7]]


def test_after_fourteen_days_a_message_is_a_dead_letter_and_a_dead_letter_is_gone(place: Place) -> None:
    place.send(b"old")
    place.send(b"dead", to=dead_letter_queue(place.name))
    place.clock.advance(14 * 86_400 + 1)
    place.send(b"new")

    assert place.queue.depth(place.name).messages == 1
    assert bodies_of(place.receive()) == [b"new"]
    assert bodies_of(place.receive(queue=dead_letter_queue(place.name))) == [b"old"]
    place.clock.advance(14 * 86_400 + 1)
    assert place.receive(queue=dead_letter_queue(place.name)) == []


def test_a_message_sent_under_a_wrong_clock_is_not_lost(place: Place) -> None:
    place.clock.advance(-50 * 365 * 86_400)
    place.send(b"from 1976")
    place.clock.advance(50 * 365 * 86_400)

    assert place.receive() == []
    assert bodies_of(place.receive(queue=dead_letter_queue(place.name))) == [b"from 1976"]


def test_ready_names_the_queues_with_messages_to_receive(place: Place) -> None:
    assert isinstance(place.queue, SqlQueue)
    other = f"{place.name}b"
    place.send(b"message", to=other)
    place.send(b"message")
    assert [name for name in place.queue.ready() if name.startswith(place.name)] == [other, place.name]

    place.receive(queue=other)

    assert other not in place.queue.ready()


def left_in(place: Place) -> Counter[bytes]:
    """Everything the queue and its dead letters still give."""
    place.clock.advance(100)
    found = Counter[bytes]()
    while place.queue.depth(place.name).visible:
        found.update(message.body for message in place.receive(1_000, visibility_s=86_400))
    while dead := place.receive(1_000, queue=dead_letter_queue(place.name)):
        found.update(message.body for message in dead)
    return found


class History:
    """What has to be true of a queue, after any calls in any order."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place, self.random = place, random.Random(seed)
        self.live: set[bytes] = set()
        self.held: dict[bytes, float] = {}
        self.receipts: list[Received] = []
        self.sent = 0

    def now(self) -> float:
        return self.place.clock().timestamp()

    def send(self) -> None:
        bodies = [f"body {self.sent + number}".encode() for number in range(self.random.choice([1, 2, 30]))]
        self.sent += len(bodies)
        self.live.update(bodies)
        self.place.send(*bodies)

    def receive(self) -> None:
        for message in self.place.receive(self.random.choice([1, 5, 100]), visibility_s=20):
            assert message.body in self.live, "it was deleted"
            assert self.held.get(message.body, 0) <= self.now(), "someone has it in flight"
            assert message.receives <= MAX_RECEIVES
            self.held[message.body] = self.now() + 20
            self.receipts.append(message)

    def some(self) -> list[Received]:
        """Receipts of now and of long ago, some of them used before."""
        recent = self.receipts[-150:]
        return self.random.sample(recent, self.random.randint(0, len(recent)))

    def delete(self) -> None:
        chosen = self.some()
        lost = set(self.place.queue.delete(self.place.name, [message.receipt for message in chosen]))
        self.live -= {message.body for message in chosen if message.receipt not in lost}

    def hide(self) -> None:
        newest = {message.body: message for message in self.receipts}
        seconds = self.random.choice([0, 5, 40])
        chosen = [message for message in self.some() if newest[message.body] is message]
        self.place.queue.change_visibility(self.place.name, [message.receipt for message in chosen], seconds)
        # The receipt of a message that is no longer in flight may or may not be good, as may the hiding.
        self.held.update({message.body: min(self.now() + seconds, self.held[message.body]) for message in chosen})

    def wait(self) -> None:
        self.place.clock.advance(self.random.choice([1, 10, 30]))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_done_nothing_is_lost_doubled_or_shared(place: Place, seed: int) -> None:
    history = History(place, seed)
    for _ in range(80):
        history.random.choice(
            [history.send, history.receive, history.receive, history.delete, history.hide, history.wait]
        )()

    assert left_in(place) == Counter(history.live)


def test_workers_at_once_lose_nothing_and_bring_nothing_back(place: Place) -> None:
    workers, turns = 4, 20
    deleted: set[bytes] = set()
    sent = [numbered(turns * 10, f"worker {worker}") for worker in range(workers)]

    def work(worker: int, queue: SqlQueue) -> None:
        chance, receipts = random.Random(worker), list[Received]()
        for turn in range(turns):
            place.queue.send([Outgoing(place.name, body) for body in sent[worker][turn * 10 : turn * 10 + 10]])
            receipts += queue.receive(place.name, chance.choice([1, 7, 40]), visibility_s=5)
            chosen = chance.sample(receipts, len(receipts) // 3)
            if chance.random() < 0.5:
                lost = set(queue.delete(place.name, [message.receipt for message in chosen]))
                deleted.update(message.body for message in chosen if message.receipt not in lost)
            else:
                queue.change_visibility(place.name, [message.receipt for message in chosen], chance.choice([0, 1, 9]))
            place.clock.advance(0.5)

    with ThreadPoolExecutor(workers) as pool:
        for running in [pool.submit(work, worker, place.open()) for worker in range(workers)]:
            running.result()

    assert left_in(place) == Counter(body for bodies in sent for body in bodies if body not in deleted)
