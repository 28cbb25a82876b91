"""The delivery stream: when it flushes, where records go, and each flush in each table exactly once."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.event.envelope import Envelope
from leanops.domain.event.record import raw_record
from leanops.domain.table.definitions import RAW, STANDARDIZED
from leanops.domain.table.history import KEPT_SNAPSHOTS, new_range, valid_watermark
from leanops.ports.delivery import Waiting
from leanops.ports.queue import Outgoing
from leanops.ports.state import ERROR_TRACKER
from leanops.usecases.ingest.deliver import (
    FLUSH_ID,
    SNAPSHOTS_BEFORE_EXPIRY,
    DeliveryRules,
    deliver,
    is_due,
)
from leanops.usecases.ingest.parts import DeliveryPart
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import NOW_MS, Clock, native, stalled, watermark
from tests.support.hub import Hub, hub_in


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(tmp_path: Path, clock: Clock) -> Iterator[Hub]:
    with hub_in(tmp_path, clock=clock) as hub:
        add_topic(hub.platform, "orders")
        yield hub


def record(message_id: str, topic: str = "orders", **rest: Any) -> bytes:
    return raw_record(Envelope(topic, message_id, NOW_MS * 1000, payload="{}", **rest), "{}", NOW_MS)


@pytest.mark.parametrize(
    ("waiting", "due"),
    [
        (Waiting(0, 0, None, 5), False),
        (Waiting(1, 10, NOW_MS, 0), False),
        (Waiting(1, 64_000_000, NOW_MS, 0), True),
        (Waiting(1, 10, NOW_MS - 299_999, 0), False),
        (Waiting(1, 10, NOW_MS - 300_000, 0), True),
        (Waiting(1, 10, NOW_MS + 1, 0), True),
    ],
)
def test_a_flush_is_due_at_64_mb_or_300_s_or_when_the_clock_was_set_back(waiting: Waiting, due: bool) -> None:
    assert is_due(waiting, NOW_MS, DeliveryRules()) is due


def test_nothing_is_flushed_before_its_time(hub: Hub, clock: Clock) -> None:
    hub.buffer.put([record("m1")])
    assert deliver(hub.stream) is None
    clock.advance(300)
    assert deliver(hub.stream) is not None
    assert hub.ids() == ["m1"]


def test_one_flush_is_one_append_in_each_table_it_serves(hub: Hub) -> None:
    add_topic(hub.platform, "payments")
    hub.buffer.put([record("o1"), record("p1", "payments")])
    hub.buffer.put([record("p2", "payments"), record("o2")])
    flushed = hub.flush()
    assert flushed is not None
    assert (flushed.records, set(flushed.tables)) == (4, {"orders", "payments"})
    assert (hub.ids("orders"), hub.ids("payments")) == (["o1", "o2"], ["p1", "p2"])
    for table in ("orders_staging", "payments_staging"):
        view = hub.platform.catalog.load(f"iceberg_raw_db.{table}")
        assert [snapshot.summary[FLUSH_ID] for snapshot in view.ancestors()] == [flushed.flush_id]
    assert hub.flush() is None


def test_a_flush_takes_no_more_than_its_size(hub: Hub) -> None:
    for number in range(6):
        hub.buffer.put([record(f"m{number}")])
    size = hub.buffer.waiting().bytes // 6
    stream = replace(hub.stream, rules=DeliveryRules(flush_mb=2 * size / 1_000_000))
    assert [deliver(stream, now=True).records for _ in range(3)] == [2, 2, 2]
    assert deliver(stream, now=True) is None


def test_the_raw_table_of_a_registered_topic_is_made_on_its_first_use(hub: Hub) -> None:
    native(hub.platform).drop_table("iceberg_raw_db.orders_staging")
    hub.buffer.put([record("m1")])
    hub.flush()
    assert hub.ids() == ["m1"]


def test_a_record_of_a_topic_nobody_added_is_kept_and_listed_and_the_others_land(hub: Hub) -> None:
    sent = record("lost", "nobody", idempotency_key="k", attributes={"a": "b"})
    hub.buffer.put([record("m1"), sent, b"rubbish", record("m2")])
    flushed = hub.flush()
    assert flushed is not None
    assert (flushed.records, flushed.unroutable) == (2, 2)
    assert hub.ids() == ["m1", "m2"]
    rows = {str(stored.row["topic_name"]): stored.row for stored in hub.platform.state.rows(ERROR_TRACKER)}
    assert {row["rule"] for row in rows.values()} == {"unroutable"}
    assert "not registered" in str(rows["nobody"]["reason"])
    add_topic(hub.platform, "nobody")
    hub.queue.send([Outgoing("nobody", hub.files.get(str(rows["nobody"]["source"])) or b"")])
    hub.settle("nobody")
    [row] = hub.raw("nobody")
    assert (row["message_id"], row["idempotency_key"], row["attributes"]) == ("lost", "k", '{"a":"b"}')


def test_a_claim_that_nobody_renewed_is_taken_over_and_landed_once(hub: Hub, tmp_path: Path, clock: Clock) -> None:
    hub.buffer.put([record("m1")])
    assert hub.buffer.claim("f1", 1_000)
    assert hub.flush() is None
    clock.advance(61)
    with hub_in(tmp_path, clock=clock) as other:
        assert other.flush().flush_id == "f1"
    assert (hub.ids(), hub.flush()) == (["m1"], None)


def test_a_claim_found_in_the_ancestry_is_only_cleaned_up(hub: Hub, clock: Clock) -> None:
    hub.buffer.put([record("m1")])
    assert hub.buffer.claim("f1", 1_000)
    columns = {name: [None] for name in RAW.columns} | {"message_id": ["m1"], "publish_time": [NOW_MS * 1000]}
    hub.platform.catalog.land("iceberg_raw_db.orders_staging", RAW, columns, {FLUSH_ID: "f1"}, lambda _: [])
    clock.advance(61)
    assert hub.flush().flush_id == "f1"
    assert hub.ids() == ["m1"]
    assert not hub.buffer.holds_before(NOW_MS + 10**9)


def test_snapshots_that_another_tool_expired_meanwhile_stop_no_flush(hub: Hub) -> None:
    raw = "iceberg_raw_db.orders_staging"
    flush_times(hub, SNAPSHOTS_BEFORE_EXPIRY + 1)

    def expire() -> None:
        table = native(hub.platform).load_table(raw)
        oldest = min(table.metadata.snapshots, key=lambda found: found.sequence_number)
        table.maintenance.expire_snapshots().by_id(oldest.snapshot_id).commit()

    hub.buffer.put([record("last")])
    late = stalled(hub.platform, expire, at=raw, after="before land")
    flushed = deliver(replace(hub.stream, platform=late), now=True)
    assert (flushed.records, flushed.failures) == (1, {})
    assert hub.ids().count("last") == 1


class Full:
    """A catalog whose disk is full for one topic."""

    def __init__(self, hub: Hub) -> None:
        self._catalog = hub.platform.catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def land(self, name: str, *arguments: Any) -> None:
        if "orders" in name:
            raise OSError(28, "No space left on device")
        self._catalog.land(name, *arguments)


def test_a_table_that_keeps_failing_holds_up_no_other_and_doubles_nothing(hub: Hub, clock: Clock) -> None:
    add_topic(hub.platform, "payments")
    part = DeliveryPart(replace(hub.stream, platform=replace(hub.platform, catalog=Full(hub))))
    for number in range(60):
        hub.buffer.put([record(f"o{number:02}"), record(f"p{number:02}", "payments")])
        clock.advance(20)
        part.turn(now=True)
        assert hub.ids("payments") == [f"p{at:02}" for at in range(number + 1)]
    assert part.problem() == (
        "orders: the disk is full (No space left on device); make room, and the next try goes on from here"
    )
    assert hub.ids() == []
    mended = DeliveryPart(hub.stream)
    clock.advance(901)
    while mended.turn(now=True):
        pass
    assert (mended.problem(), hub.ids()) == (None, [f"o{number:02}" for number in range(60)])
    assert hub.ids("payments") == [f"p{number:02}" for number in range(60)]
    assert not hub.buffer.holds_before(2**62)


def test_a_record_that_cannot_be_archived_stops_no_table_and_waits(hub: Hub, clock: Clock, tmp_path: Path) -> None:
    hub.files.put("dlq/nobody", b"a file where a folder belongs")
    said: list[str] = []
    part = DeliveryPart(hub.stream, lambda _, text: said.append(text))
    hub.buffer.put([record("lost", "nobody"), record("m1")])
    assert part.turn(now=True) == 1
    assert hub.ids() == ["m1"]
    assert part.problem().startswith("events of no topic: the file dlq/nobody/")
    hub.files.delete("dlq/nobody")
    clock.advance(61)
    assert part.turn() == 1
    assert (part.problem(), hub.ids()) == (None, ["m1"])
    assert [stored.row["message_id"] for stored in hub.platform.state.rows(ERROR_TRACKER)] == ["lost"]


def test_a_snapshot_that_a_tag_holds_is_kept_and_stops_nothing(hub: Hub) -> None:
    flush_times(hub, 3)
    table = native(hub.platform).load_table("iceberg_raw_db.orders_staging")
    tagged = table.metadata.current_snapshot_id
    table.manage_snapshots().create_tag(tagged, "keep").commit()
    flush_times(hub, SNAPSHOTS_BEFORE_EXPIRY + 5)
    raw = hub.platform.catalog.load("iceberg_raw_db.orders_staging")
    assert tagged in raw.snapshots
    assert len(raw.snapshots) < SNAPSHOTS_BEFORE_EXPIRY


def test_two_delivery_workers_at_once_land_every_record_once(hub: Hub, tmp_path: Path, clock: Clock) -> None:
    for number in range(40):
        hub.buffer.put([record(f"m{number:02}")])
    landed: list[int] = []

    def drain(one: Hub) -> None:
        stream = replace(one.stream, rules=DeliveryRules(flush_mb=1 / 1_000_000))
        while flushed := deliver(stream, now=True):
            landed.append(flushed.records)

    with hub_in(tmp_path, clock=clock) as other:
        threads = [threading.Thread(target=drain, args=(one,)) for one in (hub, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(landed) == 40
    assert hub.ids() == [f"m{number:02}" for number in range(40)]


def flush_times(hub: Hub, times: int) -> None:
    for number in range(times):
        hub.buffer.put([record(f"m{number:03}")])
        hub.flush()


def test_old_snapshots_of_a_topic_never_read_go_and_a_first_read_still_counts_all_rows(hub: Hub) -> None:
    flush_times(hub, SNAPSHOTS_BEFORE_EXPIRY + 5)
    raw = hub.platform.catalog.load("iceberg_raw_db.orders_staging")
    assert KEPT_SNAPSHOTS <= len(raw.snapshots) < SNAPSHOTS_BEFORE_EXPIRY
    assert new_range(raw, None).rows == SNAPSHOTS_BEFORE_EXPIRY + 5
    assert len(hub.ids()) == SNAPSHOTS_BEFORE_EXPIRY + 5


def test_a_flush_that_never_ends_does_not_keep_the_snapshots_of_a_table_for_good(hub: Hub) -> None:
    stream = replace(hub.stream, rules=DeliveryRules(held_snapshots=SNAPSHOTS_BEFORE_EXPIRY + 5))
    add_topic(hub.platform, "payments")
    hub.buffer.put([record("o1"), record("p1", "payments")])
    deliver(replace(stream, platform=replace(hub.platform, catalog=Full(hub))), now=True)
    sizes = []
    for number in range(SNAPSHOTS_BEFORE_EXPIRY + 10):
        hub.buffer.put([record(f"p{number:03}", "payments")])
        assert deliver(stream, now=True).tables.keys() == {"payments"}
        sizes.append(len(hub.platform.catalog.load("iceberg_raw_db.payments_staging").snapshots))
    assert max(sizes) > SNAPSHOTS_BEFORE_EXPIRY + 1
    assert sizes[-1] < SNAPSHOTS_BEFORE_EXPIRY


def test_snapshots_a_consumer_still_needs_are_kept(hub: Hub) -> None:
    flush_times(hub, 3)
    raw = hub.platform.catalog.load("iceberg_raw_db.orders_staging")
    seen = watermark(raw.head, source_uuid=raw.uuid)
    hub.platform.catalog.create("iceberg_standardized_db.orders", STANDARDIZED)
    row = dict.fromkeys(STANDARDIZED.columns) | {"record_key": "k"}
    hub.platform.catalog.append("iceberg_standardized_db.orders", [row], seen.summary())
    assert valid_watermark(hub.platform.catalog.load("iceberg_standardized_db.orders")).source_to == raw.head
    flush_times(hub, SNAPSHOTS_BEFORE_EXPIRY + 10)
    raw = hub.platform.catalog.load("iceberg_raw_db.orders_staging")
    found = new_range(raw, seen)
    assert (found.start, found.rows, found.is_gap) == (seen.source_to, SNAPSHOTS_BEFORE_EXPIRY + 10, False)


def test_events_land_whatever_is_wrong_with_their_schema(hub: Hub, tmp_path: Path) -> None:
    flush_times(hub, SNAPSHOTS_BEFORE_EXPIRY + 1)
    active = next(tmp_path.rglob("schemas")) / "orders" / "active" / "schema.json"
    active.parent.mkdir(parents=True, exist_ok=True)
    active.write_text("{ broken")
    hub.buffer.put([record("last")])
    flushed = hub.flush()
    assert (flushed.records, flushed.failures) == (1, {})
