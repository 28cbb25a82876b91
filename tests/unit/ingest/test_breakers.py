"""Circuit breakers: failures stop a queue, one probe tries it, and counting costs next to nothing while all is well."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.adapters.sql.queue import SqlQueue
from leanops.adapters.sql.state import SqlState
from leanops.domain.breaker import Breaker, BreakerRules, State, breaker_of
from leanops.domain.event.envelope import Envelope, encoded, micros
from leanops.ports.queue import Outgoing, Received
from leanops.ports.state import BREAKERS, Key, Row, StateTable, Stored
from leanops.runtimes import background
from leanops.runtimes.embedded import Embedded
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.retry import Patience
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import NOW, Clock

RULES = BreakerRules(error_rate=0.5, min_events=20, window_s=60, pause_s=60)


class CountingState(SqlState):
    """A state store that counts what is asked of it."""

    reads = writes = 0

    def get(self, table: StateTable, key: Key) -> Stored | None:
        self.reads += 1
        return super().get(table, key)

    def put(self, table: StateTable, row: Row, *, expected: int | None) -> int:
        self.writes += 1
        return super().put(table, row, expected=expected)


class CountingQueue(SqlQueue):
    """A queue that counts receives."""

    receives = 0

    def receive(self, queue: str, at_most: int, visibility_s: float) -> list[Received]:
        self.receives += 1
        return super().receive(queue, at_most, visibility_s)


@dataclass
class Switch:
    """What the platform was told."""

    told: list[tuple[str, str]] = field(default_factory=list)

    def stop(self, queue: str) -> None:
        self.told.append(("stop", queue))

    def start(self, queue: str) -> None:
        self.told.append(("start", queue))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[CountingState]:
    store = CountingState(f"sqlite:///{tmp_path}/state.db")
    yield store
    store.close()


def workers(state: SqlState, clock: Clock, number: int = 1, **rest: Any) -> list[Breakers]:
    return [Breakers(state, clock, RULES, **rest) for _ in range(number)]


def kept(state: SqlState) -> Breaker:
    stored = state.get(BREAKERS, ("orders",))
    return breaker_of(stored.row) if stored else Breaker()


def test_success_costs_one_read_a_receive_and_no_write(state: CountingState, clock: Clock) -> None:
    (breakers,) = workers(state, clock)
    for _ in range(10):
        assert breakers.may_receive("orders", 5_000) == 5_000
        breakers.report("orders", 5_000, 0)
    assert (state.reads, state.writes) == (10, 0)


def test_it_opens_above_the_rate_and_not_before_the_minimum(state: CountingState, clock: Clock) -> None:
    (breakers,) = workers(state, clock)
    assert breakers.report("orders", 0, 19).state is State.CLOSED
    assert breakers.report("orders", 19, 0).state is State.CLOSED
    opened = breakers.report("orders", 0, 1)
    assert (opened.state, opened.reason) == (State.OPEN, "20 of 39 events failed within 60 s")
    assert breakers.may_receive("orders", 5_000) == 0


def test_successes_before_the_first_failure_count(state: CountingState, clock: Clock) -> None:
    (breakers,) = workers(state, clock)
    breakers.report("orders", 1_000, 0)
    assert breakers.report("orders", 0, 500).state is State.CLOSED
    clock.advance(61)
    assert breakers.report("orders", 0, 20).state is State.OPEN


def test_failures_of_an_old_window_are_forgotten(state: CountingState, clock: Clock) -> None:
    (breakers,) = workers(state, clock)
    breakers.report("orders", 0, 19)
    clock.advance(60)
    breakers.report("orders", 0, 19)
    assert kept(state).failed == 19
    clock.advance(60)
    writes = state.writes
    breakers.report("orders", 5, 0)
    assert state.writes == writes


def test_after_the_pause_one_worker_of_two_probes_and_success_closes(state: CountingState, clock: Clock) -> None:
    one, other = workers(state, clock, 2)
    one.report("orders", 0, 20)
    clock.advance(59)
    assert [worker.may_receive("orders", 5_000) for worker in (one, other)] == [0, 0]
    clock.advance(1)
    assert [worker.may_receive("orders", 5_000) for worker in (other, one, other)] == [10, 0, 0]
    assert one.report("orders", 0, 5).state is State.HALF_OPEN
    assert other.report("orders", 10, 0).state is State.CLOSED
    assert one.may_receive("orders", 5_000) == 5_000


def test_a_probe_that_fails_opens_for_another_pause(state: CountingState, clock: Clock) -> None:
    (breakers,) = workers(state, clock)
    breakers.report("orders", 0, 20)
    clock.advance(60)
    assert breakers.may_receive("orders", 5_000) == 10
    assert breakers.report("orders", 4, 6).state is State.OPEN
    clock.advance(59)
    assert breakers.may_receive("orders", 5_000) == 0
    clock.advance(1)
    assert breakers.may_receive("orders", 5_000) == 10


def test_a_probe_whose_worker_died_or_that_found_nothing_is_tried_again(state: CountingState, clock: Clock) -> None:
    dead, other = workers(state, clock, 2)
    dead.report("orders", 0, 20)
    clock.advance(60)
    assert dead.may_receive("orders", 5_000) == 10
    clock.advance(60)
    assert other.may_receive("orders", 5_000) == 10
    assert dead.report("orders", 10, 0).state is State.HALF_OPEN
    other.report("orders", 0, 0)
    clock.advance(60)
    assert other.may_receive("orders", 5_000) == 10
    assert other.report("orders", 10, 0).state is State.CLOSED


def test_a_clock_set_back_blocks_nothing_for_ever(state: CountingState, clock: Clock) -> None:
    (breakers,) = workers(state, clock)
    breakers.report("orders", 0, 20)
    clock.advance(-86_400)
    assert breakers.may_receive("orders", 5_000) == 10
    clock.advance(-86_400)
    assert breakers.may_receive("orders", 5_000) == 10


def test_opened_by_hand_it_stays_open_until_it_is_closed_by_hand(state: CountingState, clock: Clock) -> None:
    (breakers,) = workers(state, clock)
    breakers.open("orders", "the source sends rubbish")
    clock.advance(86_400)
    assert breakers.may_receive("orders", 5_000) == 0
    assert (kept(state).forced, kept(state).reason) == (True, "the source sends rubbish")
    breakers.close("orders")
    assert breakers.may_receive("orders", 5_000) == 5_000


def test_reports_of_many_workers_are_all_counted(state: CountingState, clock: Clock) -> None:
    rules = BreakerRules(min_events=10_000)
    reporting = [Breakers(state, clock, rules) for _ in range(8)]

    def report(breakers: Breakers) -> None:
        for _ in range(10):
            breakers.may_receive("orders", 5_000)
            breakers.report("orders", 2, 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(report, reporting))
    assert (kept(state).succeeded, kept(state).failed) == (160, 80)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40_000)), max_size=30))
def test_it_is_open_exactly_when_the_rate_of_some_window_was_above_the_limit(
    receives: list[tuple[int, int, int]],
) -> None:
    found, now = Breaker(), 0
    start = succeeded = failed = 0
    expected = False
    for good, bad, later in receives:
        now += later
        if failed == 0 or now - start >= RULES.window_s * 1000:
            start, succeeded, failed = now, 0, 0
        succeeded, failed = succeeded + good, failed + bad
        total = succeeded + failed
        expected = expected or (total >= RULES.min_events and failed / total > RULES.error_rate)
        found = found.counted(RULES, now, good, bad)
        assert (found.state is State.OPEN) is expected
        if expected:
            return


def test_a_switch_is_told_to_stop_to_probe_and_to_stop_again(state: CountingState, clock: Clock) -> None:
    switch = Switch()
    (breakers,) = workers(state, clock, switch=switch)
    breakers.report("orders", 0, 20)
    breakers.report("orders", 0, 20)
    assert breakers.turn_switches() == []
    assert switch.told == [("stop", "orders")] * 2
    clock.advance(60)
    assert breakers.turn_switches() == ["orders"]
    (function,) = workers(state, clock, switch=switch)
    assert function.report("orders", 0, 10).state is State.OPEN
    clock.advance(60)
    breakers.turn_switches()
    assert function.report("orders", 10, 0).state is State.CLOSED
    assert switch.told[2:] == [("start", "orders"), ("stop", "orders"), ("start", "orders")]
    breakers.open("orders", None)
    breakers.close("orders")
    assert switch.told[5:] == [("stop", "orders"), ("start", "orders")]


class Consumption:
    """The processor's loop on a home, with a queue that counts."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self.runtime = Embedded(home, clock=clock)
        self.queue = CountingQueue(f"sqlite:///{home}/queue.db", lambda: int(clock().timestamp() * 1000))
        self.runtime.queue.close()
        self.runtime.queue = self.queue
        add_topic(self.runtime.platform, "orders")
        self.queues = background.queues_of(self.runtime, Patience())

    def send(self, *bodies: bytes) -> None:
        self.queue.send([Outgoing("orders", body) for body in bodies])

    def turn(self) -> int:
        """One turn; how many receives it made."""
        before = self.queue.receives
        self.queues.process()
        return self.queue.receives - before

    def state(self) -> State:
        stored = self.runtime.platform.state.get(BREAKERS, ("orders",))
        return breaker_of(stored.row).state if stored else State.CLOSED


@pytest.fixture
def consumption(home: Path, clock: Clock) -> Iterator[Consumption]:
    found = Consumption(home, clock)
    yield found
    found.runtime.close()


def good(number: int) -> bytes:
    return encoded(Envelope("orders", f"m{number}", micros(NOW), payload="{}"))


def test_bad_envelopes_stop_the_queue_and_good_ones_start_it_again(consumption: Consumption, clock: Clock) -> None:
    consumption.send(*(b"rubbish %d" % number for number in range(30)))
    assert (consumption.turn(), consumption.state()) == (1, State.OPEN)
    consumption.send(*(b"more rubbish %d" % number for number in range(10)), *(good(number) for number in range(40)))
    assert [consumption.turn() for _ in range(5)] == [0] * 5
    clock.advance(60)
    assert [consumption.turn() for _ in range(3)] == [1, 0, 0]
    assert (consumption.state(), consumption.queue.depth("orders").messages) == (State.OPEN, 40)
    clock.advance(60)
    assert [consumption.turn() for _ in range(2)] == [1, 1]
    assert (consumption.state(), consumption.queue.depth("orders").messages) == (State.CLOSED, 0)


def test_messages_that_fail_stop_the_queue(consumption: Consumption) -> None:
    claims = (Envelope("orders", f"m{number}", micros(NOW), claim=f"claims/{number}") for number in range(20))
    consumption.send(*(encoded(claim) for claim in claims))
    consumption.turn()
    assert consumption.state() is State.OPEN
