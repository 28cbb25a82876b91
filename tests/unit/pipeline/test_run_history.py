"""Records: run history and drift, complete and never doubled, wherever the work is stopped."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.balance import StandardizedCounts, Totals
from leanops.domain.table.batch import CURATED, STANDARDIZED, Batch
from leanops.domain.table.definitions import CURATED as CURATED_TABLE
from leanops.domain.table.definitions import OPS
from leanops.domain.table.definitions import STANDARDIZED as STANDARDIZED_TABLE
from leanops.domain.table.history import has_batch
from leanops.ports.state import ATTEMPTS, CHECKPOINTS, DRIFT_STATE
from leanops.usecases.journal import begin, open_batch
from leanops.usecases.leases import Lease, acquire
from leanops.usecases.pipeline.drift import note_kinds
from leanops.usecases.pipeline.run_history import LayerResult, complete_begun, record
from leanops.usecases.platform import Platform
from tests.support.builders import NOW, batch, held_by, platform_in, schema, watermark

STANDARD = "iceberg_standardized_db.orders"
LEASES = {topic: Lease(f"topic/{topic}", "one", 1) for topic in ("orders", "users")}
LEASE = LEASES["orders"]
COUNTS = asdict(StandardizedCounts(3, 1, 1, 1, 0, 0, 4, 5))
STEPS = ["before drift", "after drift", "before run record", "after run record", "before close", "after close"]


class Killed(BaseException):
    """What a kill looks like from inside."""


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path) as platform:
        for lease in LEASES.values():
            assert acquire(platform, lease.resource).generation == lease.generation
        yield platform


def commit(platform: Platform, what: Batch, table: str = STANDARD) -> LayerResult:
    """What a committed batch leaves in the state store and in its table."""
    begin(held_by(platform, LEASE), what)
    platform.catalog.create(table, STANDARDIZED_TABLE if what.layer == STANDARDIZED else CURATED_TABLE)
    mark = watermark(what.source_to, what.batch_seq, batch_id=what.batch_id, counts=COUNTS, totals=Totals(read=3))
    if what.layer == STANDARDIZED:
        note_kinds(platform, what.topic, what.batch_id, {"$.a": {"string"}})
        platform.catalog.alter(table, {"a": ("string", "$.a")})
    # An append replaces nothing, so it has to say that it did.
    summary = {**mark.summary(), "added-position-deletes": str(COUNTS["updated"])}
    platform.catalog.append(table, [{"message_id": "m1"}, {"message_id": "m2"}], summary)
    return result_of(platform, what, table)


def result_of(platform: Platform, what: Batch, table: str = STANDARD) -> LayerResult:
    view = platform.catalog.load(table)
    assert view is not None
    snapshot = has_batch(view, what.batch_id)
    assert snapshot is not None
    return LayerResult(what, COUNTS, snapshot, 1.5)


def history(platform: Platform, *names: str) -> list[tuple[object, ...]]:
    rows = platform.catalog.select("ops_db.job_run_history", ["batch_id", *names])
    return sorted(tuple(row[name] for name in ("batch_id", *names)) for row in rows)


def drift(platform: Platform) -> list[tuple[object, ...]]:
    names = ("topic_name", "column_name", "action")
    return sorted(tuple(row[name] for name in names) for row in platform.catalog.select("ops_db.drift_log", names))


def test_a_recorded_batch_has_its_run_its_drift_and_is_closed(platform: Platform) -> None:
    done = commit(platform, batch("b1", source_from=None, source_to=7))
    record(platform, "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: done})])
    (row,) = platform.catalog.select("ops_db.job_run_history", list(STANDARD_RUN))
    assert row == {**STANDARD_RUN, "target_snapshot_id": done.snapshot.snapshot_id}
    said = done.as_json()
    assert (said["source_snapshot"], said["target_snapshot"]) == ("1", str(done.snapshot.snapshot_id))
    assert drift(platform) == [("orders", "a", "ADDED")]
    assert open_batch(platform, "orders", STANDARDIZED) is None


STANDARD_RUN = {
    "run_id": "b1/standardized",
    "cycle_id": "cycle-1",
    "topic_name": "orders",
    "layer": "standardized",
    "outcome": "done",
    "batch_id": "b1",
    "source_from": None,
    "source_to": 7,
    "source_snapshot_id": 1,
    "target_snapshot_id": None,
    "rows_read": 3,
    "inserted": 1,
    "updated": 1,
    "duplicates": 1,
    "superseded": 0,
    "parse_errors": 0,
    "unchanged": None,
    "errors": None,
    "version_fallback": 4,
    "missing_keys": 5,
    "files": 1,
    "started_ts": NOW,
    "seconds": 1.5,
    "error": None,
}


def test_a_run_history_of_an_earlier_version_gets_the_counts_it_lacks(platform: Platform) -> None:
    today = OPS["job_run_history"]
    columns = {name: kind for name, kind in today.columns.items() if name != "publish_time_ahead"}
    platform.catalog.create("ops_db.job_run_history", replace(today, columns=columns))
    done = commit(platform, batch("b1", source_from=None, source_to=7))
    counts = {**COUNTS, "publish_time_ahead": 2}
    record(platform, "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: replace(done, counts=counts)})])
    assert history(platform, "publish_time_ahead", "missing_keys") == [("b1", 2, 5)]


def test_many_topics_are_recorded_in_one_append(platform: Platform) -> None:
    done = [
        (
            held_by(platform, lease),
            {STANDARDIZED: commit(platform, batch(f"b-{topic}", topic=topic), f"iceberg_standardized_db.{topic}")},
        )
        for topic, lease in LEASES.items()
    ]
    record(platform, "cycle-1", done)
    for name in ("job_run_history", "drift_log"):
        table = platform.catalog.load(f"ops_db.{name}")
        assert table is not None
        assert [snapshot.added_records for snapshot in table.ancestors()] == [2]


def test_nothing_done_is_nothing_recorded(platform: Platform) -> None:
    record(platform, "cycle-1", [(held_by(platform, LEASE), {})])
    assert platform.catalog.load("ops_db.job_run_history") is None


def test_a_gap_is_recorded_as_one(platform: Platform) -> None:
    record(
        platform, "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: commit(platform, batch("b1", is_gap=True))})]
    )
    assert history(platform, "outcome") == [("b1", "gap")]


def test_a_commit_without_its_records_is_completed_by_the_next_cycle(platform: Platform) -> None:
    done = commit(platform, batch("b1"))
    complete_begun(held_by(platform, LEASE), "cycle-2", schema())
    assert history(platform, "cycle_id", "rows_read", "seconds") == [("b1", "cycle-2", 3, None)]
    assert drift(platform) == [("orders", "a", "ADDED")]
    assert open_batch(platform, "orders", STANDARDIZED) is None
    stored = platform.state.get(CHECKPOINTS, ("orders/standardized", "watermark"))
    assert stored is not None
    assert (stored.row["snapshot_id"], stored.row["records_processed"]) == (done.snapshot.snapshot_id, 3)


def test_a_commit_of_another_number_of_rows_is_not_completed_but_parked(platform: Platform) -> None:
    what = batch("b1")
    done = commit(platform, what)
    counts = {**COUNTS, "inserted": 7}
    mark = watermark(what.source_to, 2, batch_id="b2", counts=counts, totals=Totals(read=3))
    begin(held_by(platform, LEASE), batch("b2", batch_seq=2))
    platform.catalog.append(STANDARD, [{"message_id": "m3"}], mark.summary())
    with pytest.raises(UnbalancedBatchError, match="added 1 row, not 8"):
        complete_begun(held_by(platform, LEASE), "cycle-2", schema())
    stored = platform.state.get(ATTEMPTS, ("orders/standardized",))
    assert stored is not None
    assert stored.row["parked"] is True
    assert (done.snapshot.added_records, history(platform)) == (2, [])


def test_a_commit_that_replaced_another_number_of_rows_is_not_completed_either(platform: Platform) -> None:
    begin(held_by(platform, LEASE), batch("b1"))
    platform.catalog.create(STANDARD, STANDARDIZED_TABLE)
    mark = watermark(7, 1, batch_id="b1", counts=COUNTS, totals=Totals(read=3))
    rows = [{"message_id": "m1"}, {"message_id": "m2"}]
    platform.catalog.append(STANDARD, rows, {**mark.summary(), "added-position-deletes": "0"})
    with pytest.raises(UnbalancedBatchError, match="replaced 0 rows, not 1"):
        complete_begun(held_by(platform, LEASE), "cycle-2", schema())
    assert history(platform) == []
    complete_begun(held_by(platform, LEASE), "cycle-2", schema(), accept_counts=True)
    assert [row[0] for row in history(platform)] == ["b1"]


def test_a_merge_of_an_earlier_version_that_wrote_deletes_again_is_completed(platform: Platform) -> None:
    begin(held_by(platform, LEASE), batch("b1"))
    platform.catalog.create(STANDARD, STANDARDIZED_TABLE)
    mark = watermark(7, 1, batch_id="b1", counts=COUNTS, totals=Totals(read=3))
    deletes = {"added-position-deletes": "41", "removed-position-deletes": "40"}
    platform.catalog.append(STANDARD, [{"message_id": "m1"}, {"message_id": "m2"}], {**mark.summary(), **deletes})
    complete_begun(held_by(platform, LEASE), "cycle-2", schema())
    assert [row[0] for row in history(platform)] == ["b1"]


def test_a_batch_that_was_not_committed_stays_open(platform: Platform) -> None:
    begin(held_by(platform, LEASE), batch("b1"))
    complete_begun(held_by(platform, LEASE), "cycle-2", schema())
    assert open_batch(platform, "orders", STANDARDIZED) == batch("b1")
    assert history(platform) == []


def test_both_layers_are_completed_and_curated_only_where_there_is_a_schema(platform: Platform) -> None:
    commit(platform, batch("b1"))
    commit(platform, batch("b2", layer=CURATED), "iceberg_curated_db.orders")
    complete_begun(held_by(platform, LEASE), "cycle-2", None)
    assert history(platform, "layer") == [("b1", "standardized")]
    complete_begun(held_by(platform, LEASE), "cycle-2", schema())
    assert history(platform, "layer") == [("b1", "standardized"), ("b2", "curated")]
    assert open_batch(platform, "orders", CURATED) is None


@pytest.mark.parametrize("at", STEPS)
def test_a_kill_at_any_step_leaves_nothing_lost_and_nothing_doubled(platform: Platform, at: str) -> None:
    def kill(step: str) -> None:
        if step == at:
            raise Killed

    done = commit(platform, batch("b1"))
    with pytest.raises(Killed):
        record(replace(platform, step=kill), "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: done})])
    later = replace(platform, clock=lambda: NOW + timedelta(hours=1))
    taken_over = acquire(later, LEASE.resource)
    for _ in range(2):
        complete_begun(held_by(later, taken_over), "cycle-2", schema())
    assert history(platform) == [("b1",)]
    assert drift(platform) == [("orders", "a", "ADDED")]
    assert open_batch(platform, "orders", STANDARDIZED) is None


def test_columns_older_than_the_memory_are_logged_once(platform: Platform) -> None:
    """A home from before there was a drift_log: its table has columns that no batch has noted."""
    platform.catalog.create(STANDARD, STANDARDIZED_TABLE)
    platform.catalog.alter(STANDARD, {"old": ("string", "$.old"), "older": ("string", "$.older")})
    for number in (1, 2):
        done = commit(platform, batch(f"b{number}", source_to=number, batch_seq=number))
        record(platform, "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: done})])
    assert drift(platform) == [
        ("orders", "a", "ADDED"),
        ("orders", "old", "ADDED"),
        ("orders", "older", "ADDED"),
    ]


def test_a_memory_that_was_lost_doubles_nothing_in_drift_log(platform: Platform) -> None:
    record(platform, "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: commit(platform, batch("b1"))})])
    stored = platform.state.get(DRIFT_STATE, ("orders",))
    assert stored is not None
    platform.state.delete(DRIFT_STATE, ("orders",), expected=stored.revision)
    platform.catalog.alter(STANDARD, {"new": ("string", "$.new")})
    for number in (2, 3):
        done = commit(platform, batch(f"b{number}", source_to=number, batch_seq=number))
        record(platform, "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: done})])
    assert drift(platform) == [("orders", "a", "ADDED"), ("orders", "new", "ADDED")]


def test_a_column_of_curated_is_not_taken_for_one_of_standardized(platform: Platform) -> None:
    platform.catalog.create("ops_db.drift_log", OPS["drift_log"])
    row = {"detected_ts": NOW, "topic_name": "orders", "column_name": "a", "action": "ADDED"}
    platform.catalog.append("ops_db.drift_log", [{**row, "source_layer": "curated", "details": "{}"}])
    record(platform, "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: commit(platform, batch("b1"))})])
    assert drift(platform) == [("orders", "a", "ADDED")] * 2


def test_who_lost_the_lease_records_nothing_and_who_took_over_records_it_once(platform: Platform) -> None:
    done = commit(platform, batch("b1"))
    later = replace(platform, clock=lambda: NOW + timedelta(hours=1))

    def stall(step: str) -> None:
        """Another worker takes the topic over and records the batch just before this one does."""
        if step == "before run record":
            complete_begun(held_by(later, acquire(later, LEASE.resource)), "cycle-2", schema())

    record(replace(platform, step=stall), "cycle-1", [(held_by(platform, LEASE), {STANDARDIZED: done})])
    assert history(platform, "cycle_id") == [("b1", "cycle-2")]
    assert drift(platform) == [("orders", "a", "ADDED")]
