"""Leases: one worker per resource, and a generation that fences off whoever had it before."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from leanops.domain.errors import LeaseHeldError, LeaseLostError, RetryableError
from leanops.domain.leases import Held
from leanops.ports.state import LOCKS
from leanops.runtimes.background import parts_of
from leanops.runtimes.embedded import Embedded
from leanops.usecases.leases import Lease, acquire, check, held, hold_topic, release, renew, unlock
from leanops.usecases.platform import Platform
from leanops.usecases.workers import CYCLES
from tests.support.builders import NOW_MS, Clock, event, land, platform_in

LEASE_S = 300
RESOURCE = "topic/t"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def one(tmp_path: Path, clock: Clock) -> Iterator[Platform]:
    with platform_in(tmp_path, clock=clock, owner="one", pipeline={"lease_s": LEASE_S}) as platform:
        yield platform


@pytest.fixture
def two(one: Platform) -> Platform:
    return replace(one, owner="two")


def stored(platform: Platform) -> dict[str, object]:
    found = platform.state.get(LOCKS, ("topic/t",))
    assert found is not None
    return found.row


def test_a_free_resource_is_leased_for_the_time_of_the_setting(one: Platform) -> None:
    assert acquire(one, "topic/t") == Lease("topic/t", "one", 1)
    assert stored(one) == {"resource": "topic/t", "owner": "one", "generation": 1, "lease_until": NOW_MS + 300_000}


def test_another_worker_is_refused_while_the_lease_lasts(one: Platform, two: Platform, clock: Clock) -> None:
    acquire(one, "topic/t")
    clock.advance(LEASE_S - 0.001)
    with pytest.raises(LeaseHeldError, match="one is working on it"):
        acquire(two, "topic/t")
    with pytest.raises(LeaseHeldError):
        acquire(one, "topic/t")


def test_other_resources_are_free(one: Platform, two: Platform) -> None:
    acquire(one, "topic/t")
    assert acquire(two, "topic/u").generation == 1


def test_an_expired_lease_is_taken_over_with_a_higher_generation(one: Platform, two: Platform, clock: Clock) -> None:
    acquire(one, "topic/t")
    clock.advance(LEASE_S)
    assert acquire(two, "topic/t") == Lease("topic/t", "two", 2)


def test_the_loser_can_neither_renew_nor_work_nor_release(one: Platform, two: Platform, clock: Clock) -> None:
    lost = acquire(one, "topic/t")
    clock.advance(LEASE_S)
    mine = acquire(two, "topic/t")
    for attempt in (check, renew, release):
        with pytest.raises(LeaseLostError, match="generation 1 was lost"):
            attempt(one, lost)
    check(two, mine)
    assert stored(one)["owner"] == "two"


def test_a_lease_is_good_until_it_expires_and_not_a_moment_longer(one: Platform, clock: Clock) -> None:
    lease = acquire(one, "topic/t")
    clock.advance(LEASE_S - 0.001)
    check(one, lease)
    clock.advance(0.001)
    with pytest.raises(LeaseLostError):
        check(one, lease)


def test_a_renewed_lease_lasts_from_then_on(one: Platform, two: Platform, clock: Clock) -> None:
    lease = acquire(one, "topic/t")
    clock.advance(LEASE_S - 1)
    renew(one, lease)
    clock.advance(LEASE_S - 1)
    check(one, lease)
    with pytest.raises(LeaseHeldError):
        acquire(two, "topic/t")


def test_a_released_lease_is_free_at_once_and_its_generation_still_rises(one: Platform, two: Platform) -> None:
    lease = acquire(one, "topic/t")
    release(one, lease)
    with pytest.raises(LeaseLostError):
        check(one, lease)
    assert acquire(two, "topic/t").generation == 2
    with pytest.raises(LeaseLostError):
        renew(one, lease)


def test_a_lease_nobody_ever_took_is_not_held(one: Platform) -> None:
    for attempt in (check, renew, release):
        with pytest.raises(LeaseLostError):
            attempt(one, Lease("topic/t", "one", 1))


@pytest.mark.parametrize("ahead_s", [LEASE_S + 1, 86_400])
def test_a_lease_taken_while_the_clock_was_ahead_is_over(
    one: Platform, two: Platform, clock: Clock, ahead_s: int
) -> None:
    clock.advance(ahead_s)
    old = acquire(one, "topic/t")
    clock.advance(-ahead_s)
    with pytest.raises(LeaseLostError):
        check(one, old)
    mine = acquire(two, "topic/t")
    check(two, mine)
    with pytest.raises(LeaseLostError):
        renew(one, old)


@pytest.mark.parametrize("back_s", [0.001, 5])
def test_a_clock_that_is_set_back_a_little_takes_no_lease_away(
    one: Platform, two: Platform, clock: Clock, back_s: float
) -> None:
    lease = acquire(one, "topic/t")
    clock.advance(-back_s)
    check(one, lease)
    with pytest.raises(LeaseHeldError):
        acquire(two, "topic/t")


def test_whoever_is_refused_is_told_who_has_the_lease_and_until_when(one: Platform, two: Platform) -> None:
    acquire(one, "topic/t")
    acquire(one, "dlq/drain")
    with pytest.raises(LeaseHeldError) as told:
        acquire(two, "topic/t")
    assert str(told.value) == (
        "topic/t: one is working on it until 2026-11-15 08:05:00 UTC unless it renews its lease; wait for it, "
        "or if it hangs: leanops topics unlock t"
    )
    with pytest.raises(LeaseHeldError, match="leanops topics unlock dlq/drain"):
        acquire(two, "dlq/drain")


def test_an_unlocked_lease_is_free_and_its_former_holder_cannot_renew_it(one: Platform, two: Platform) -> None:
    lease = acquire(one, "topic/t")
    assert unlock(two, "topic/t") == Held("one", NOW_MS, NOW_MS + 300_000)
    for attempt in (check, renew, release):
        with pytest.raises(LeaseLostError):
            attempt(one, lease)
    assert unlock(two, "topic/t") is None
    assert acquire(two, "topic/t").generation > lease.generation
    assert unlock(two, "topic/never") is None


def test_of_many_workers_at_once_exactly_one_gets_the_lease(tmp_path: Path, clock: Clock) -> None:
    workers = 8
    barrier = threading.Barrier(workers)

    def race(platform: Platform) -> Lease | None:
        barrier.wait()
        try:
            return acquire(platform, "topic/t")
        except LeaseHeldError:
            return None

    with ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
        platforms = [
            stack.enter_context(platform_in(tmp_path, clock=clock, owner=f"w{number}")) for number in range(workers)
        ]
        for generation in (1, 2, 3):
            winners = [lease for lease in pool.map(race, platforms) if lease]
            assert [lease.generation for lease in winners] == [generation]
            assert stored(platforms[0])["owner"] == winners[0].owner
            clock.advance(LEASE_S)


def test_work_under_a_lease_gives_it_back_at_the_end(one: Platform, two: Platform) -> None:
    with held(one, "topic/t") as lease:
        check(one, lease)
        with pytest.raises(LeaseHeldError), held(two, "topic/t"):
            pytest.fail("the lease was given twice")
    assert acquire(two, "topic/t").generation == 2


def test_work_that_fails_gives_its_lease_back_too(one: Platform, two: Platform) -> None:
    with pytest.raises(ValueError, match="broken"), held(one, "topic/t"):
        raise ValueError("broken")
    assert acquire(two, "topic/t").generation == 2


def test_who_can_wait_gets_the_lease_as_soon_as_it_is_free(one: Platform, two: Platform) -> None:
    taken = acquire(one, "topic/orders")
    timer = threading.Timer(0.05, release, (one, taken))
    timer.start()
    with held(two, "topic/orders", wait_s=60) as lease:
        assert lease.generation == taken.generation + 1
    timer.join()
    acquire(one, "topic/orders")
    with pytest.raises(LeaseHeldError), held(two, "topic/orders", wait_s=0.01):
        pytest.fail("it was not free")


def test_a_killed_worker_leaves_its_lease_to_expire(one: Platform, two: Platform, clock: Clock) -> None:
    class Kill(BaseException):
        pass

    with pytest.raises(Kill), held(one, "topic/t"):
        raise Kill
    with pytest.raises(LeaseHeldError):
        acquire(two, "topic/t")
    clock.advance(LEASE_S)
    acquire(two, "topic/t")


def test_a_held_topic_is_ours_until_another_worker_takes_it_over(one: Platform, two: Platform, clock: Clock) -> None:
    with hold_topic(one, "t") as ours:
        ours.check()
        assert (ours.topic, ours.is_ours(), ours.is_overtaken(one.state.get(LOCKS, (RESOURCE,)))) == ("t", True, False)
        clock.advance(LEASE_S)
        with hold_topic(two, "t") as theirs:
            assert (ours.is_ours(), theirs.is_ours()) == (False, True)
            with pytest.raises(LeaseLostError):
                ours.check()
            stored_by_them = two.state.get(LOCKS, (RESOURCE,))
            assert (ours.is_overtaken(stored_by_them), theirs.is_overtaken(stored_by_them)) == (True, False)
            assert not ours.is_overtaken(None)


def test_a_worker_whose_lease_was_taken_over_does_not_give_it_away(one: Platform, two: Platform, clock: Clock) -> None:
    with held(one, "topic/t"):
        clock.advance(LEASE_S)
        mine = acquire(two, "topic/t")
    check(two, mine)
    with pytest.raises(LeaseHeldError):
        acquire(one, "topic/t")


def test_the_heart_has_stopped_before_the_lease_is_given_back(one: Platform) -> None:
    beating: list[bool] = []

    class Watched:
        """A state store that looks for the heart at each release."""

        def put(self, table: object, row: dict[str, object], *, expected: int | None) -> int:
            if row.get("lease_until") == 0:
                beating.append(any(thread.name == "lease-topic/t" for thread in threading.enumerate()))
            return one.state.put(LOCKS, row, expected=expected)

        def __getattr__(self, name: str) -> object:
            return getattr(one.state, name)

    with held(replace(one, state=Watched()), "topic/t"):
        pass
    assert beating == [False]


def test_serve_tells_who_holds_a_topic_that_has_work(runtime: Embedded) -> None:
    land(runtime.platform, "orders", [event()])
    acquire(replace(runtime.platform, owner="laptop/4711"), "topic/orders")
    told: list[str] = []
    parts = parts_of(runtime, threading.Event(), lambda _part, text: told.append(text))
    next(part for part in parts if part.name == CYCLES).turn()
    assert [line for line in told if "locked" in line and "laptop/4711 is working on it until" in line]


class Leases(RuleBasedStateMachine):
    """Two workers and a clock, in any order; each run has a folder of its own."""

    @initialize()
    def start(self) -> None:
        self.stack, self.clock = ExitStack(), Clock()
        folder = self.stack.enter_context(TemporaryDirectory(prefix="leanops-leases-"))
        first = self.stack.enter_context(platform_in(Path(folder), clock=self.clock, owner="w0"))
        self.workers = [first, replace(first, owner="w1")]
        self.leases: list[Lease | None] = [None, None]
        self.newest = 0

    @rule(worker=st.integers(0, 1))
    def take(self, worker: int) -> None:
        try:
            lease = acquire(self.workers[worker], RESOURCE)
        except LeaseHeldError:
            assert any(self.is_good(other) for other in (0, 1))
            return
        assert not any(self.is_good(other) for other in (0, 1))
        assert lease.generation == self.newest + 1
        self.newest, self.leases[worker] = lease.generation, lease

    @rule(worker=st.integers(0, 1), action=st.sampled_from([renew, release]))
    def change(self, worker: int, action: Callable[[Platform, Lease], None]) -> None:
        lease = self.leases[worker]
        if lease:
            try:
                action(self.workers[worker], lease)
            except RetryableError:
                assert lease.generation < self.newest

    @rule(seconds=st.sampled_from([1, 150, 299, 300, -1, -299, -86_400, 86_400]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def at_most_one_is_good(self) -> None:
        if hasattr(self, "workers"):
            assert sum(self.is_good(worker) for worker in (0, 1)) <= 1

    def is_good(self, worker: int) -> bool:
        lease = self.leases[worker]
        try:
            check(self.workers[worker], lease or Lease(RESOURCE, "nobody", 0))
        except LeaseLostError:
            return False
        return True

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()


def test_leases_obey_their_laws_whatever_two_workers_and_the_clock_do() -> None:
    run_state_machine_as_test(Leases, settings=settings(max_examples=15, stateful_step_count=15, deadline=None))
