"""Whoever stalls between its plan and its commit, and was overtaken meanwhile, plans again and doubles nothing."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from leanops.domain.event.envelope import Envelope
from leanops.domain.event.record import raw_record
from leanops.domain.failures import Rule
from leanops.usecases.dlq.drain import Drained, drain
from leanops.usecases.ingest.archive import DeadLetter, archive
from leanops.usecases.ingest.deliver import SNAPSHOTS_BEFORE_EXPIRY, deliver
from leanops.usecases.platform import no_step
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import NOW_MS, Clock, stalled
from tests.support.hub import Hub, hub_in
from tests.support.world import Abandoned

CLAIM_S, LEASE_S = 61, 301


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(tmp_path: Path, clock: Clock) -> Iterator[Hub]:
    with hub_in(tmp_path, clock=clock) as hub:
        add_topic(hub.platform, "orders")
        yield hub


def record(message_id: str) -> bytes:
    return raw_record(Envelope("orders", message_id, NOW_MS * 1000, payload="{}"), "{}", NOW_MS)


def kill(step: str) -> None:
    if step == "before forget":
        raise Abandoned(step)


@pytest.mark.parametrize("step", [no_step, kill], ids=["to its end", "until it had landed"])
def test_a_flush_whose_claim_was_taken_over_is_in_raw_once(
    hub: Hub, tmp_path: Path, clock: Clock, step: Callable[[str], None]
) -> None:
    hub.buffer.put([record("m1"), record("m2")])

    def take_over() -> None:
        clock.advance(CLAIM_S)
        with hub_in(tmp_path, clock=clock, step=step) as other, suppress(Abandoned):
            assert other.flush().records == 2

    late = stalled(hub.platform, take_over, at="iceberg_raw_db.orders_staging", after="before land")
    flushed = deliver(replace(hub.stream, platform=late), now=True)
    assert (flushed.records, flushed.failures) == (2, {})
    assert hub.ids() == ["m1", "m2"]
    assert hub.flush() is None


def test_a_flush_that_another_finished_and_whose_snapshot_has_expired_since_is_not_landed_again(
    hub: Hub, tmp_path: Path, clock: Clock
) -> None:
    hub.buffer.put([record("m1"), record("m2")])

    def take_over() -> None:
        clock.advance(CLAIM_S)
        with hub_in(tmp_path, clock=clock) as other:
            assert other.flush().records == 2
            for number in range(SNAPSHOTS_BEFORE_EXPIRY + 1):
                other.buffer.put([record(f"x{number:03}")])
                assert other.flush().records == 1

    late = stalled(hub.platform, take_over, at="iceberg_raw_db.orders_staging", after="before land")
    deliver(replace(hub.stream, platform=late), now=True)
    assert hub.ids() == ["m1", "m2", *(f"x{number:03}" for number in range(SNAPSHOTS_BEFORE_EXPIRY + 1))]


def dead_letter(message_id: str) -> DeadLetter:
    return DeadLetter("orders", b"{}", Rule.BAD_ENVELOPE, "it is bad", message_id)


@pytest.mark.parametrize("before", [[], ["m1"]], ids=["appended", "replaced"])
def test_a_drain_whose_lease_was_lost_leaves_every_dead_letter_in_dlq_errors_once(
    hub: Hub, tmp_path: Path, clock: Clock, before: list[str]
) -> None:
    table = hub.platform.rules.databases.dlq_errors

    def note(*names: str) -> None:
        archive([dead_letter(name) for name in names], hub.files, hub.platform.state, clock)

    note("m0", *before)
    drain(hub.platform)
    note("m1", "m2")

    def overtake() -> None:
        clock.advance(LEASE_S)
        drain(hub.platform)

    with hub_in(tmp_path, clock=clock) as slow:
        assert drain(stalled(slow.platform, overtake, at=table, after="before drain")) == Drained()
    found = [
        (row["message_id"], row["attempts"]) for row in hub.platform.catalog.select(table, ["message_id", "attempts"])
    ]
    assert sorted(found) == [("m0", 1), ("m1", 1 + len(before)), ("m2", 1)]
