"""One commit, exactly once: whatever the engine answers, the table decides."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from leanops.domain.errors import CommitUnknownError, LeaseLostError, UnbalancedBatchError
from leanops.domain.table.balance import StandardizedCounts, Totals
from leanops.domain.table.batch import STANDARDIZED
from leanops.domain.table.definitions import STANDARDIZED as STANDARDIZED_TABLE
from leanops.domain.table.history import valid_watermark
from leanops.ports.engine import Target, Written
from leanops.ports.state import ATTEMPTS, CHECKPOINTS
from leanops.usecases.attempts import record_failure
from leanops.usecases.leases import Lease, acquire
from leanops.usecases.pipeline.commit import commit
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.platform import Platform
from tests.support.builders import Clock, batch, held_by, platform_in, watermark

TABLE = "iceberg_standardized_db.orders"


class FakeEngine:
    """An engine whose commit is an append of as many rows as it is told, and which then answers as it is told."""

    def __init__(self, platform: Platform, rows: int, answer: Callable[[], None] = lambda: None) -> None:
        self.platform, self.rows, self.answer = platform, rows, answer
        self.commits = 0

    def commit(self, target: Target, _written: Written, summary: Mapping[str, str]) -> None:
        self.commits += 1
        rows = [{"record_key": f"key:{number}"} for number in range(self.rows)]
        self.platform.catalog.append(target.table, rows, summary)
        self.answer()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def platform(tmp_path: Path, clock: Clock) -> Iterator[Platform]:
    with platform_in(tmp_path, clock=clock) as platform:
        platform.catalog.create(TABLE, STANDARDIZED_TABLE)
        yield platform


@pytest.fixture
def lease(platform: Platform) -> Lease:
    return acquire(platform, "topic/orders")


def prepared() -> Prepared:
    counts = StandardizedCounts(read=3, inserted=2, updated=0, duplicates=1, superseded=0, parse_errors=0)
    mark = watermark(7, counts=asdict(counts), totals=Totals().after(counts))
    return Prepared(batch("b1"), Target(TABLE, "uuid", None, "errors"), Written(), counts, mark.summary())


def snapshots(platform: Platform) -> int:
    table = platform.catalog.load(TABLE)
    assert table is not None
    return len(table.snapshots)


def checkpoint(platform: Platform) -> object:
    stored = platform.state.get(CHECKPOINTS, ("orders/standardized", "watermark"))
    return stored.row["snapshot_id"] if stored else None


def refuse(error: BaseException) -> Callable[[], None]:
    def answer() -> None:
        raise error

    return answer


def test_a_commit_is_in_the_table_with_its_watermark_and_in_the_checkpoint(platform: Platform, lease: Lease) -> None:
    snapshot = commit(held_by(platform, lease), FakeEngine(platform, 2), prepared())
    table = platform.catalog.load(TABLE)
    assert table is not None
    mark = valid_watermark(table)
    assert mark is not None
    assert (mark.batch_id, mark.source_to, mark.totals.read, mark.snapshot_id) == ("b1", 7, 3, snapshot.snapshot_id)
    assert checkpoint(platform) == snapshot.snapshot_id


@pytest.mark.parametrize("error", [CommitUnknownError("lost"), RuntimeError("boom"), TimeoutError()])
def test_a_commit_whose_answer_is_lost_is_found_in_the_table(
    platform: Platform, lease: Lease, error: Exception
) -> None:
    engine = FakeEngine(platform, 2, refuse(error))
    snapshot = commit(held_by(platform, lease), engine, prepared())
    assert (engine.commits, snapshots(platform)) == (1, 1)
    assert checkpoint(platform) == snapshot.snapshot_id


def test_a_commit_that_is_not_in_the_table_keeps_its_error(platform: Platform, lease: Lease) -> None:
    engine = FakeEngine(platform, 0, refuse(CommitUnknownError("lost")))
    with pytest.raises(CommitUnknownError):
        commit(held_by(platform, lease), engine, prepared())
    assert (snapshots(platform), checkpoint(platform)) == (0, None)


def test_a_commit_that_says_it_is_done_and_left_nothing_is_not_believed(platform: Platform, lease: Lease) -> None:
    with pytest.raises(UnbalancedBatchError, match="batch b1 is not in"):
        commit(held_by(platform, lease), FakeEngine(platform, 0), prepared())


@pytest.mark.parametrize("rows", [1, 3])
def test_a_table_that_gained_another_number_of_rows_parks_its_topic(
    platform: Platform, lease: Lease, rows: int
) -> None:
    with pytest.raises(UnbalancedBatchError, match=rf"added {rows} rows?, not 2"):
        commit(held_by(platform, lease), FakeEngine(platform, rows), prepared())
    stored = platform.state.get(ATTEMPTS, (f"orders/{STANDARDIZED}",))
    assert stored is not None
    assert stored.row["parked"] is True
    assert "leanops topics retry orders" in str(stored.row["reason"])
    assert checkpoint(platform) is None
    record_failure(platform, "orders", STANDARDIZED, "as the cycle does with every failure")
    again = platform.state.get(ATTEMPTS, (f"orders/{STANDARDIZED}",))
    assert again is not None
    assert again.row["parked"] is True


def test_without_the_lease_nothing_is_committed(platform: Platform, lease: Lease, clock: Clock) -> None:
    clock.advance(300)
    engine = FakeEngine(platform, 2)
    with pytest.raises(LeaseLostError):
        commit(held_by(platform, lease), engine, prepared())
    acquire(replace(platform, owner="other"), "topic/orders")
    with pytest.raises(LeaseLostError):
        commit(held_by(platform, lease), engine, prepared())
    assert (engine.commits, snapshots(platform)) == (0, 0)
