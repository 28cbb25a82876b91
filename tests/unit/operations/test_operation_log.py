"""Operations in the state store: written down before they start, fenced by generation, closed by their own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from leanops.domain.errors import CommitRefusedError, LeaseHeldError, LeaseLostError, StateConflictError, UsageError
from leanops.domain.table.comparison import Comparison
from leanops.domain.table.definitions import CURATED, STANDARDIZED
from leanops.domain.table.history import has_batch
from leanops.domain.table.operation import (
    Accept,
    Accepted,
    Operation,
    Place,
    Scope,
    Stage,
    UnfinishedOperation,
    Work,
)
from leanops.ports.state import LOCKS
from leanops.usecases.leases import Lease, held, release
from leanops.usecases.operation_log import (
    advance,
    agree,
    begin,
    begin_attempt,
    block,
    check_free,
    close,
    unfinished_operation,
    unfinished_operations,
)
from leanops.usecases.operations.execute import cancel
from leanops.usecases.operations.shadow import shadow_tables
from leanops.usecases.platform import Platform
from tests.support.builders import NOW_MS, Clock, held_by, platform_in

FIRST, SECOND = Lease("topic/orders", "one", 1), Lease("topic/orders", "two", 2)
REBUILD = Operation("op1", "orders", Work.REBUILD, "ada", NOW_MS, 3, previous=3, scope=Scope.BOTH)
BEGUN = "rebuild started at 2026-11-15 08:00:00 UTC by ada"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def platform(tmp_path: Path, clock: Clock) -> Iterator[Platform]:
    with platform_in(tmp_path, clock=clock) as platform:
        hold(platform, FIRST)
        hold(platform, Lease("topic/users", "one", 1))
        yield platform


def hold(platform: Platform, lease: Lease) -> None:
    """Take the lease over, whoever has it."""
    stored = platform.state.get(LOCKS, (lease.resource,))
    until = platform.now_ms() + platform.rules.pipeline.lease_s * 1000
    row = {"resource": lease.resource, "owner": lease.owner, "generation": lease.generation, "lease_until": until}
    platform.state.put(LOCKS, row, expected=stored.revision if stored else None)


def stopping_at(platform: Platform, step: str) -> Platform:
    """A process that is killed at a step."""

    def stop(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    return replace(platform, step=stop)


def test_an_operation_comes_back_as_it_was_written() -> None:
    place = Place("uuid", 2**62, 7, 9)
    whole = msgspec.structs.replace(
        REBUILD, accept=Accept.FAILING, raw=place, standardized=place, curated=place, back_to=5, curated_back_to=6
    )
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Operation) == whole
    limited = msgspec.structs.replace(REBUILD, accept=7)
    assert msgspec.json.decode(msgspec.json.encode(limited), type=Operation) == limited
    assert msgspec.json.decode(msgspec.json.encode(REBUILD), type=Operation) == REBUILD


@pytest.mark.parametrize(
    ("accept", "refused"),
    [(Accept.NONE, 5), (Accept.FAILING, 2), (Accept.ALL, 0), (0, 5), (4, 5), (5, 0), (6, 0)],
)
def test_keys_go_missing_only_as_far_as_somebody_let_them(accept: Accepted, refused: int) -> None:
    assert Comparison(9, 4, "", "", failing=3, lost=2).refused(accept) == refused
    assert Comparison(9, 9, "", "", failing=0, lost=0).refused(accept) == 0


def test_an_operation_stands_from_its_beginning_until_it_is_closed(platform: Platform) -> None:
    assert unfinished_operation(platform, "orders") is None
    assert begin(held_by(platform, FIRST), REBUILD, Stage.BUILDING) == UnfinishedOperation(
        REBUILD, Stage.BUILDING, None
    )
    assert unfinished_operation(platform, "orders") == UnfinishedOperation(REBUILD, Stage.BUILDING, None)
    advance(held_by(platform, FIRST), REBUILD)
    assert unfinished_operation(platform, "orders") == UnfinishedOperation(REBUILD, Stage.GOING, None)
    close(held_by(platform, SECOND), REBUILD)
    assert unfinished_operation(platform, "orders") is None
    close(held_by(platform, SECOND), REBUILD)


def test_topics_have_operations_of_their_own(platform: Platform) -> None:
    other = msgspec.structs.replace(REBUILD, operation_id="op2", topic="users")
    begin(held_by(platform, FIRST), REBUILD, Stage.BUILDING)
    begin(held_by(platform, Lease("topic/users", "one", 1)), other, Stage.GOING)
    assert unfinished_operations(platform) == {
        "orders": UnfinishedOperation(REBUILD, Stage.BUILDING, None),
        "users": UnfinishedOperation(other, Stage.GOING, None),
    }
    close(held_by(platform, SECOND), REBUILD)
    assert list(unfinished_operations(platform)) == ["users"]


def test_what_waits_for_a_person_says_so_until_it_goes_on(platform: Platform) -> None:
    begin(held_by(platform, FIRST), REBUILD, Stage.BUILDING)
    block(held_by(platform, FIRST), REBUILD, "2 keys would be missing")
    assert unfinished_operation(platform, "orders") == UnfinishedOperation(
        REBUILD, Stage.BUILDING, "2 keys would be missing"
    )
    assert agree(held_by(platform, SECOND), UnfinishedOperation(REBUILD, Stage.BUILDING, None)).blocked is None
    assert unfinished_operation(platform, "orders") == UnfinishedOperation(REBUILD, Stage.BUILDING, None)


def test_a_worker_that_lost_its_lease_cannot_write(platform: Platform) -> None:
    hold(platform, SECOND)
    begin(held_by(platform, SECOND), REBUILD, Stage.BUILDING)
    for write in (
        lambda: begin(held_by(platform, FIRST), REBUILD, Stage.BUILDING),
        lambda: advance(held_by(platform, FIRST), REBUILD),
        lambda: block(held_by(platform, FIRST), REBUILD, "late"),
    ):
        with pytest.raises(StateConflictError):
            write()
    assert unfinished_operation(platform, "orders") == UnfinishedOperation(REBUILD, Stage.BUILDING, None)


def test_an_operation_is_closed_only_by_its_own(platform: Platform) -> None:
    later = msgspec.structs.replace(REBUILD, operation_id="op2")
    hold(platform, SECOND)
    begin(held_by(platform, SECOND), later, Stage.BUILDING)
    close(held_by(platform, SECOND), REBUILD)
    assert unfinished_operation(platform, "orders") == UnfinishedOperation(later, Stage.BUILDING, None)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("before operation", None),
        ("after operation", Stage.BUILDING),
        ("before going", Stage.BUILDING),
        ("after going", Stage.GOING),
        ("before operation closed", Stage.GOING),
        ("after operation closed", None),
    ],
)
def test_a_kill_at_any_step_leaves_a_stage_or_nothing(platform: Platform, step: str, expected: Stage | None) -> None:
    killed = stopping_at(platform, step)

    def work() -> None:
        begin(held_by(killed, FIRST), REBUILD, Stage.BUILDING)
        advance(held_by(killed, FIRST), REBUILD)
        close(held_by(killed, FIRST), REBUILD)

    with pytest.raises(KeyboardInterrupt):
        work()
    found = unfinished_operation(platform, "orders")
    assert (found.stage if found else None) == expected


def test_a_free_topic_is_free(platform: Platform) -> None:
    check_free(platform, "orders")


@pytest.mark.parametrize(
    ("stage", "blocked", "said"),
    [
        (
            Stage.BUILDING,
            None,
            f"orders: {BEGUN} is unfinished; the next cycle resumes it; to resume now: leanops rebuild orders "
            "--resume; to cancel: leanops rebuild orders --cancel",
        ),
        (
            Stage.GOING,
            None,
            f"orders: {BEGUN} is unfinished; the next cycle resumes it; to resume now: leanops rebuild orders --resume",
        ),
        (Stage.BUILDING, "2 keys; answer", f"orders: {BEGUN} waits: 2 keys; answer"),
    ],
)
def test_a_second_operation_is_refused_with_what_to_do(
    platform: Platform, stage: Stage, blocked: str | None, said: str
) -> None:
    begin(held_by(platform, FIRST), REBUILD, stage)
    if blocked:
        block(held_by(platform, FIRST), REBUILD, blocked)
    with pytest.raises(UsageError) as refused:
        check_free(platform, "orders")
    assert str(refused.value) == said


def test_undoing_removes_what_was_built_and_starts_no_spark(platform: Platform) -> None:
    begin(held_by(platform, FIRST), REBUILD, Stage.BUILDING)
    release(platform, FIRST)
    shadow = shadow_tables(platform, REBUILD, None)["curated"]
    platform.catalog.create(shadow, CURATED)
    assert cancel(platform, "orders") == REBUILD
    assert platform.catalog.load(shadow) is None
    assert unfinished_operation(platform, "orders") is None


def test_nothing_is_undone_once_tables_are_replaced(platform: Platform) -> None:
    begin(held_by(platform, FIRST), REBUILD, Stage.GOING)
    release(platform, FIRST)
    live = platform.rules.databases.standardized_table("orders")
    platform.catalog.create(live, STANDARDIZED)
    platform.catalog.append(live, [{"record_key": "key:k"}], {"leanops.batch-id": REBUILD.standardized_batch})
    with pytest.raises(UsageError, match="can no longer be cancelled; finish it with: leanops rebuild orders --resume"):
        cancel(platform, "orders")
    assert unfinished_operation(platform, "orders") == UnfinishedOperation(REBUILD, Stage.GOING, None)


def test_what_was_about_to_go_live_can_still_be_undone(platform: Platform) -> None:
    begin(held_by(platform, FIRST), REBUILD, Stage.GOING)
    release(platform, FIRST)
    assert cancel(platform, "orders") == REBUILD
    assert unfinished_operation(platform, "orders") is None


def test_nothing_is_undone_while_somebody_works_on_it(tmp_path: Path, clock: Clock) -> None:
    with platform_in(tmp_path, clock=clock) as platform, held(platform, "topic/orders") as lease:
        begin(held_by(platform, lease), REBUILD, Stage.BUILDING)
        with pytest.raises(LeaseHeldError):
            cancel(platform, "orders")
        assert unfinished_operation(platform, "orders") is not None


def test_an_operation_written_down_too_late_is_taken_back(platform: Platform) -> None:
    hold(platform, SECOND)
    with pytest.raises(LeaseLostError):
        begin(held_by(platform, FIRST), REBUILD, Stage.BUILDING)
    assert unfinished_operation(platform, "orders") is None


def test_what_others_finished_or_undid_does_not_come_back(platform: Platform) -> None:
    begin(held_by(platform, FIRST), REBUILD, Stage.BUILDING)
    hold(platform, SECOND)
    close(held_by(platform, SECOND), REBUILD)
    for late in (
        lambda: begin(held_by(platform, FIRST), REBUILD, Stage.BUILDING),
        lambda: begin_attempt(held_by(platform, FIRST), REBUILD),
        lambda: advance(held_by(platform, FIRST), REBUILD),
        lambda: block(held_by(platform, FIRST), REBUILD, "late"),
        lambda: agree(held_by(platform, SECOND), UnfinishedOperation(REBUILD, Stage.BUILDING, None)),
    ):
        with pytest.raises(StateConflictError):
            late()
    assert unfinished_operation(platform, "orders") is None


def test_undoing_removes_no_file_and_refuses_whoever_stands_before_the_swap(platform: Platform) -> None:
    live = platform.rules.databases.standardized_table("orders")
    platform.catalog.create(live, STANDARDIZED)
    platform.catalog.append(live, [{"record_key": "key:k"}])
    before = platform.catalog.load(live)
    begin(held_by(platform, FIRST), REBUILD, Stage.GOING)
    shadow = shadow_tables(platform, REBUILD, None)["standardized"]
    platform.catalog.create(shadow, STANDARDIZED)
    platform.catalog.append(shadow, [{"record_key": "key:k"}])
    built = platform.catalog.load(shadow)
    assert before is not None
    assert built is not None
    release(platform, FIRST)
    cancel(platform, "orders")
    # A worker that stalled in the swap has everything it needs but the head it was told.
    platform.catalog.create(shadow, STANDARDIZED)
    platform.catalog.append(shadow, [{"record_key": "key:k"}])
    again = platform.catalog.load(shadow)
    assert again is not None
    assert again.head is not None
    with pytest.raises(CommitRefusedError):
        platform.catalog.take_place(live, shadow, again.head, {}, only_at=before.head, after=0)
    assert platform.catalog.count(live) == 1


def test_a_fork_begins_as_the_other_is_and_goes_its_own_way(platform: Platform) -> None:
    platform.catalog.create("shadow.one", STANDARDIZED)
    platform.catalog.append("shadow.one", [{"record_key": "key:a"}], {"leanops.batch-id": "b1"})
    platform.catalog.fork("shadow.two", "shadow.one")
    platform.catalog.fork("shadow.two", "shadow.one")
    platform.catalog.append("shadow.one", [{"record_key": "key:b"}])
    platform.catalog.append("shadow.two", [{"record_key": "key:c"}])
    platform.catalog.append("shadow.two", [{"record_key": "key:d"}])
    two = platform.catalog.load("shadow.two")
    assert two is not None
    assert has_batch(two, "b1")
    assert [platform.catalog.count(name) for name in ("shadow.one", "shadow.two")] == [2, 3]
    platform.catalog.forget("shadow.one")
    assert platform.catalog.count("shadow.two") == 3


def test_tables_that_were_forked_live_through_many_commits_of_each_other(platform: Platform) -> None:
    platform.catalog.create("shadow.one", replace(STANDARDIZED, is_shadow=True))
    platform.catalog.append("shadow.one", [{"record_key": "key:a"}])
    platform.catalog.fork("shadow.two", "shadow.one")
    for name, other in (("shadow.one", "shadow.two"), ("shadow.two", "shadow.one")):
        # More than the metadata files a table keeps: the oldest were those of both.
        for _ in range(25):
            platform.catalog.append(name, [{"record_key": "key:b"}])
        assert platform.catalog.load(other) is not None
    assert [platform.catalog.count(name) for name in ("shadow.one", "shadow.two")] == [26, 26]
