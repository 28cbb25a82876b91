"""Batches in the state store: begun once, fenced by generation, closed by their own; failures counted and parked."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leanops.domain.errors import StateConflictError
from leanops.domain.table.balance import Totals
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.ports.state import ATTEMPTS, BATCHES, CHECKPOINTS
from leanops.usecases.attempts import forget_failures, record_failure
from leanops.usecases.journal import begin, close, open_batch, set_checkpoint
from leanops.usecases.leases import Lease
from leanops.usecases.platform import Platform
from tests.support.builders import NOW_MS, Clock, batch, held_by, platform_in, watermark

FIRST, SECOND = Lease("topic/orders", "one", 1), Lease("topic/orders", "two", 2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def platform(tmp_path: Path, clock: Clock) -> Iterator[Platform]:
    with platform_in(tmp_path, clock=clock, pipeline={"tries": 3, "backoff_s": 60}) as platform:
        yield platform


def test_a_batch_is_open_from_its_beginning_until_it_is_closed(platform: Platform) -> None:
    assert open_batch(platform, "orders", STANDARDIZED) is None
    begin(held_by(platform, FIRST), batch("b1"))
    assert open_batch(platform, "orders", STANDARDIZED) == batch("b1")
    close(platform, batch("b1"))
    assert open_batch(platform, "orders", STANDARDIZED) is None


def test_layers_and_topics_have_batches_of_their_own(platform: Platform) -> None:
    batches = [batch("b1"), batch("b2", layer=CURATED), batch("b3", topic="users")]
    for each in batches:
        begin(held_by(platform, FIRST), each)
    assert [open_batch(platform, each.topic, each.layer) for each in batches] == batches
    close(platform, batches[0])
    assert [open_batch(platform, each.topic, each.layer) for each in batches] == [None, *batches[1:]]


def test_closing_twice_is_the_same_as_once(platform: Platform) -> None:
    begin(held_by(platform, FIRST), batch("b1"))
    close(platform, batch("b1"))
    close(platform, batch("b1"))
    assert open_batch(platform, "orders", STANDARDIZED) is None


def test_a_batch_is_not_closed_in_the_name_of_another(platform: Platform) -> None:
    begin(held_by(platform, FIRST), batch("b2"))
    close(platform, batch("b1"))
    assert open_batch(platform, "orders", STANDARDIZED) == batch("b2")


def test_a_later_generation_replaces_an_open_batch_and_an_earlier_one_is_refused(platform: Platform) -> None:
    begin(held_by(platform, FIRST), batch("b1"))
    begin(held_by(platform, SECOND), batch("b2"))
    with pytest.raises(StateConflictError):
        begin(held_by(platform, FIRST), batch("b3"))
    assert open_batch(platform, "orders", STANDARDIZED) == batch("b2")


def test_every_durable_step_is_announced_before_and_after(platform: Platform) -> None:
    steps: list[str] = []
    watched = replace(platform, step=steps.append)
    begin(held_by(watched, FIRST), batch("b1"))
    set_checkpoint(held_by(watched, FIRST), STANDARDIZED, watermark(snapshot_id=7))
    close(watched, batch("b1"))
    assert steps == [f"{when} {what}" for what in ("intent", "checkpoint", "close") for when in ("before", "after")]


def test_work_stopped_before_a_step_leaves_nothing_of_it(platform: Platform) -> None:
    def stop(step: str) -> None:
        if step.startswith("before"):
            raise KeyboardInterrupt

    stopped = replace(platform, step=stop)
    with pytest.raises(KeyboardInterrupt):
        begin(held_by(stopped, FIRST), batch("b1"))
    with pytest.raises(KeyboardInterrupt):
        set_checkpoint(held_by(stopped, FIRST), STANDARDIZED, watermark(snapshot_id=7))
    assert [*platform.state.rows(BATCHES), *platform.state.rows(CHECKPOINTS)] == []


# Checkpoints


def checkpoint(platform: Platform) -> dict[str, object] | None:
    found = platform.state.get(CHECKPOINTS, ("orders/standardized", "watermark"))
    return found.row if found else None


def test_a_checkpoint_is_a_copy_of_the_watermark(platform: Platform) -> None:
    mark = watermark(batch_seq=4, snapshot_id=7, totals=Totals(read=55))
    set_checkpoint(held_by(platform, FIRST), STANDARDIZED, mark)
    assert checkpoint(platform) == {
        "pipeline_id": "orders/standardized",
        "checkpoint_type": "watermark",
        "snapshot_id": 7,
        "batch_seq": 4,
        "records_processed": 55,
        "timeline": "",
        "key_check": "",
        "generation": 1,
        "updated_at": NOW_MS,
    }


def test_a_checkpoint_that_is_right_is_not_written_again(platform: Platform, clock: Clock) -> None:
    set_checkpoint(held_by(platform, FIRST), STANDARDIZED, watermark(snapshot_id=7))
    clock.advance(60)
    set_checkpoint(held_by(platform, FIRST), STANDARDIZED, watermark(snapshot_id=7))
    found = checkpoint(platform)
    assert found is not None
    assert found["updated_at"] == NOW_MS


def test_a_checkpoint_follows_the_table_also_backwards(platform: Platform) -> None:
    for snapshot_id in (7, 9, 7):
        set_checkpoint(held_by(platform, FIRST), STANDARDIZED, watermark(snapshot_id=snapshot_id))
        found = checkpoint(platform)
        assert found is not None
        assert found["snapshot_id"] == snapshot_id


def test_a_checkpoint_of_an_earlier_generation_is_refused(platform: Platform) -> None:
    set_checkpoint(held_by(platform, SECOND), STANDARDIZED, watermark(batch_seq=2, snapshot_id=9))
    with pytest.raises(StateConflictError):
        set_checkpoint(held_by(platform, FIRST), STANDARDIZED, watermark(snapshot_id=7))
    found = checkpoint(platform)
    assert found is not None
    assert (found["snapshot_id"], found["generation"]) == (9, 2)


# Failures


def attempts(platform: Platform, layer: str = STANDARDIZED) -> tuple[object, object, object] | None:
    found = platform.state.get(ATTEMPTS, (f"orders/{layer}",))
    return (found.row["tries"], found.row["parked"], found.row["next_try_at"]) if found else None


def test_each_failure_doubles_the_wait_and_the_last_parks_the_layer(platform: Platform) -> None:
    found = []
    for reason in ("first", "second", "third"):
        record_failure(platform, "orders", STANDARDIZED, reason)
        found.append(attempts(platform))
    assert found == [
        (1, False, NOW_MS + 60_000),
        (2, False, NOW_MS + 120_000),
        (3, True, NOW_MS + 240_000),
    ]
    stored = platform.state.get(ATTEMPTS, ("orders/standardized",))
    assert stored is not None
    assert stored.row["reason"] == "third"
    assert attempts(platform, CURATED) is None


def test_a_failure_that_cannot_be_tried_again_parks_at_once(platform: Platform) -> None:
    record_failure(platform, "orders", CURATED, "unbalanced", park=True)
    assert attempts(platform, CURATED) == (1, True, NOW_MS + 60_000)


def test_failures_can_be_counted_for_ever(platform: Platform) -> None:
    for _ in range(70):
        record_failure(platform, "orders", STANDARDIZED, "again")
    tries, parked, next_try_at = attempts(platform) or (0, False, 0)
    assert (tries, parked) == (70, True)
    assert isinstance(next_try_at, int)
    assert next_try_at <= NOW_MS + 86_400_000


def test_forgotten_failures_are_counted_anew(platform: Platform) -> None:
    record_failure(platform, "orders", STANDARDIZED, "first")
    forget_failures(platform, "orders", STANDARDIZED)
    forget_failures(platform, "orders", STANDARDIZED)
    assert attempts(platform) is None
    record_failure(platform, "orders", STANDARDIZED, "first")
    assert attempts(platform) == (1, False, NOW_MS + 60_000)
