"""The buffer of our own delivery stream on SQLite and PostgreSQL: claims share nothing, and lose nothing."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from leanops.adapters.sql.buffer import SqlBuffer
from leanops.ports.clock import millis
from tests.support.builders import Clock

Open: TypeAlias = Callable[[], SqlBuffer]
ALL = 1 << 40


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgresql"])
def open_buffer(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Open]:
    """Opens buffers on one and the same empty database."""
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/delivery.db" if is_file else request.getfixturevalue("postgresql_url")
    with ExitStack() as opened:

        def open_one() -> SqlBuffer:
            buffer = SqlBuffer(url, lambda: millis(clock()), lease_s=60)
            opened.callback(buffer.close)
            return buffer

        yield open_one
        left = open_one()
        clock.advance(1_000_000)
        left.claim("the rest", ALL)
        while flush := left.take_over():
            left.forget(flush)
        left.forget("the rest")


@pytest.fixture
def buffer(open_buffer: Open) -> SqlBuffer:
    return open_buffer()


def lines(buffer: SqlBuffer, flush_id: str) -> list[bytes]:
    return [line for content in buffer.lines(flush_id) for line in content.split(b"\n")]


def test_an_empty_buffer_has_nothing_to_claim(buffer: SqlBuffer) -> None:
    assert not buffer.claim("f1", ALL)
    assert buffer.take_over() is None
    waiting = buffer.waiting()
    assert (waiting.records, waiting.bytes, waiting.oldest_ms, waiting.claimed) == (0, 0, None, 0)


def test_what_is_claimed_waits_no_longer_and_is_gone_once_forgotten(buffer: SqlBuffer) -> None:
    buffer.put([b"1", b"2"])
    assert buffer.claim("f1", ALL)
    buffer.put([b"3"])

    waiting = buffer.waiting()
    assert (waiting.records, waiting.claimed) == (1, 2)
    assert lines(buffer, "f1") == [b"1", b"2"]
    buffer.forget("f1")
    assert lines(buffer, "f1") == []
    assert buffer.waiting().claimed == 0
    assert buffer.claim("f2", ALL)
    assert lines(buffer, "f2") == [b"3"]


def test_a_claim_takes_the_oldest_puts_up_to_its_size_and_at_least_one(buffer: SqlBuffer) -> None:
    for number in range(5):
        buffer.put([b"%d" % number * 10])

    for flush_id, size in {"f1": 1, "f2": 25, "f3": ALL}.items():
        assert buffer.claim(flush_id, size)

    assert [len(lines(buffer, flush_id)) for flush_id in ("f1", "f2", "f3")] == [1, 2, 2]


def test_a_claim_repeated_after_a_lost_answer_is_the_same_claim(buffer: SqlBuffer) -> None:
    buffer.put([b"1"])
    assert buffer.claim("f1", ALL)
    buffer.put([b"2"])

    assert buffer.claim("f1", ALL)

    assert lines(buffer, "f1") == [b"1"]


def test_claims_at_once_share_no_record(open_buffer: Open) -> None:
    workers, puts = 4, 60
    filled = open_buffer()
    for number in range(puts):
        filled.put([b"%d-a" % number, b"%d-b" % number])
    start = threading.Barrier(workers)

    def flush(worker: int, buffer: SqlBuffer) -> list[bytes]:
        found: list[bytes] = []
        start.wait()
        for number in range(puts):
            if buffer.claim(f"f{worker}-{number}", 20):
                found += lines(buffer, f"f{worker}-{number}")
        return found

    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(flush, worker, open_buffer()) for worker in range(workers)]
        got = Counter(line for done in running for line in done.result())
    assert filled.claim("the last", ALL) or filled.waiting().records == 0
    got.update(lines(filled, "the last"))

    assert got == Counter(line for number in range(puts) for line in (b"%d-a" % number, b"%d-b" % number))


def test_a_claim_is_taken_over_only_when_it_is_late_and_by_one(open_buffer: Open, clock: Clock) -> None:
    one, other = open_buffer(), open_buffer()
    one.put([b"1"])
    one.claim("f1", ALL)
    clock.advance(50)
    one.renew("f1")
    clock.advance(50)
    assert other.take_over() is None

    clock.advance(20)

    assert sorted([other.take_over() or "", one.take_over() or ""]) == ["", "f1"]


def test_of_many_who_take_over_one_claim_one_has_it(open_buffer: Open, clock: Clock) -> None:
    buffers = [open_buffer() for _ in range(6)]
    buffers[0].put([b"1"])
    buffers[0].claim("f1", ALL)
    clock.advance(61)
    start = threading.Barrier(len(buffers))

    def take(buffer: SqlBuffer) -> str | None:
        start.wait()
        return buffer.take_over()

    with ThreadPoolExecutor(len(buffers)) as pool:
        assert sorted(filter(None, pool.map(take, buffers))) == ["f1"]


def test_a_claim_that_another_forgets_while_it_is_read_just_ends(open_buffer: Open) -> None:
    zombie, owner = open_buffer(), open_buffer()
    for number in range(3):
        zombie.put([b"%d" % number])
    zombie.claim("f1", ALL)
    reading = zombie.lines("f1")

    assert next(reading) == b"0"
    owner.forget("f1")

    assert list(reading) == []


def test_what_waits_is_due_when_it_is_hurried(buffer: SqlBuffer, clock: Clock) -> None:
    buffer.put([b"1"])
    put_at = millis(clock())
    assert buffer.waiting().oldest_ms == put_at
    assert buffer.holds_before(put_at)
    assert not buffer.holds_before(put_at - 1)

    buffer.hurry()

    assert buffer.waiting().oldest_ms == 0
    buffer.claim("f1", ALL)
    assert buffer.holds_before(put_at)
    buffer.forget("f1")
    assert not buffer.holds_before(put_at)
