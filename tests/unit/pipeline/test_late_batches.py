"""Batches that were given up and committed late: what is rolled back, and where a person has to decide."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import CommitRefusedError, LeaseLostError, UnbalancedBatchError
from leanops.domain.table.batch import STANDARDIZED, pipeline_id
from leanops.domain.table.definitions import OPS
from leanops.domain.table.definitions import STANDARDIZED as DEFINITION
from leanops.domain.table.history import TableView, watermark_from
from leanops.ports.state import ABANDONED_BATCHES, ATTEMPTS
from leanops.usecases.journal import begin, begin_another, open_batch, set_checkpoint
from leanops.usecases.leases import acquire, unlock
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import batch, held_by, native, platform_in, watermark

TABLE, HISTORY = "iceberg_standardized_db.orders", "ops_db.job_run_history"


class Table:
    """A table whose batches are written by hand, and the worker that looks at it."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        platform.catalog.create(TABLE, DEFINITION)
        self.held = held_by(platform, acquire(platform, "topic/orders"))

    def commit(self, name: str, *, is_known: bool = False, is_given_up: bool = False) -> int:
        """One row under a batch id of this name; the snapshot."""
        mark = watermark(batch_seq=self.view().last_sequence_number + 1, batch_id=name)
        self.platform.catalog.append(TABLE, [{"record_key": name}], mark.summary())
        view = self.view()
        assert view.head is not None
        if is_known:
            found = watermark_from(view.snapshots[view.head])
            assert found is not None
            set_checkpoint(self.held, STANDARDIZED, found)
        if is_given_up:
            self.give_up(name)
        return view.head

    def give_up(self, name: str) -> None:
        row = {"pipeline_id": pipeline_id("orders", STANDARDIZED), "batch_id": name, "abandoned_at": 1}
        self.platform.state.put_many(ABANDONED_BATCHES, [row])

    def view(self) -> TableView:
        view = self.platform.catalog.load(TABLE)
        assert view is not None
        return view

    def look(self) -> TableView:
        return without_late_batches(self.held, STANDARDIZED, self.view())

    def keys(self) -> list[Any]:
        return sorted(row["record_key"] for row in self.platform.catalog.select(TABLE, ["record_key"]))

    def expire(self, snapshot: int) -> None:
        """What an outside tool does; it forgets whose child the next snapshot was."""
        found = native(self.platform).load_table(TABLE)
        found.maintenance.expire_snapshots().by_id(snapshot).commit()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with platform_in(tmp_path) as platform:
        add_topic(platform, "orders")
        yield Table(platform)


def test_a_table_without_late_batches_stays_as_it_is(table: Table) -> None:
    assert table.look() == table.view()
    table.commit("a", is_known=True)
    table.give_up("b")
    assert table.look() == table.view()
    table.commit("c")
    assert table.look() == table.view()
    assert table.keys() == ["a", "c"]


def test_a_late_batch_goes_and_so_does_the_one_that_was_counted_without_it(table: Table) -> None:
    good = table.commit("a", is_known=True)
    table.commit("late", is_given_up=True)
    begin(table.held, batch("ours"))
    table.commit("ours")
    assert table.look().head == good
    assert table.keys() == ["a"]
    assert table.look() == table.view()


def test_a_late_batch_above_one_that_is_committed_goes_alone(table: Table) -> None:
    begin(table.held, batch("ours"))
    ours = table.commit("ours", is_known=True)
    table.commit("late", is_given_up=True)
    assert table.look().head == ours


def test_the_first_batch_of_a_table_leaves_it_empty(table: Table) -> None:
    table.commit("late", is_given_up=True)
    assert table.look().head is None
    assert table.keys() == []
    table.commit("a", is_known=True)
    assert table.keys() == ["a"]


def test_a_batch_that_was_recorded_is_not_late_whoever_says_so(table: Table) -> None:
    table.platform.catalog.create(HISTORY, OPS["job_run_history"])
    table.platform.catalog.append(HISTORY, [{"batch_id": "a", "topic_name": "orders"}])
    table.commit("a", is_given_up=True)
    table.commit("late", is_given_up=True)
    assert table.look() == table.view()
    assert table.keys() == ["a"]


def test_below_a_batch_that_was_recorded_nothing_is_taken_out(table: Table) -> None:
    table.platform.catalog.create(HISTORY, OPS["job_run_history"])
    table.commit("given up", is_given_up=True)
    table.commit("a")
    table.platform.catalog.append(HISTORY, [{"batch_id": "a", "topic_name": "orders"}])
    assert table.look() == table.view()
    assert table.keys() == ["a", "given up"]


def test_a_twin_of_a_recorded_batch_hides_no_late_one(table: Table) -> None:
    table.platform.catalog.create(HISTORY, OPS["job_run_history"])
    table.platform.catalog.append(HISTORY, [{"batch_id": "a", "topic_name": "orders"}])
    first = table.commit("a", is_known=True)
    table.commit("late", is_given_up=True)
    twin = watermark(batch_seq=1, batch_id="a")
    table.platform.catalog.mark(TABLE, twin.summary())
    assert table.look().head == first


def test_a_batch_that_came_in_meanwhile_is_not_given_up(table: Table) -> None:
    begin(table.held, batch("ours"))
    table.commit("ours")
    with pytest.raises(CommitRefusedError, match="its last batch was committed"):
        begin_another(table.held, STANDARDIZED, TABLE)
    assert open_batch(table.platform, "orders", STANDARDIZED) == batch("ours")
    assert not list(table.platform.state.rows(ABANDONED_BATCHES))


def foreign(table: Table) -> str:
    table.platform.catalog.append(TABLE, [{"record_key": "foreign"}])
    return "others have written to the table since"


def cancelled(table: Table) -> str:
    """Whoever stands before the head that was cancelled would find it again."""
    table.platform.catalog.mark(TABLE, {"leanops.kind": "cancelled"})
    return "others have written to the table since"


def expired(table: Table) -> str:
    parent = table.view().ancestors()[1].snapshot_id
    table.expire(parent)
    return "the snapshot before it has expired"


@pytest.mark.parametrize("outside", [foreign, cancelled, expired])
def test_a_late_batch_that_cannot_go_parks_its_topic(table: Table, outside: Any) -> None:
    table.commit("a", is_known=True)
    table.commit("late", is_given_up=True)
    why = outside(table)
    before = table.view()
    with pytest.raises(UnbalancedBatchError, match=f"batch late .* because {why}; rebuild .* leanops rebuild orders"):
        table.look()
    assert table.view() == before
    failure = table.platform.state.get(ATTEMPTS, (pipeline_id("orders", STANDARDIZED),))
    assert failure is not None
    assert failure.row["parked"]


def test_whoever_lost_the_lease_takes_nothing_out(table: Table) -> None:
    table.commit("a", is_known=True)
    table.commit("late", is_given_up=True)
    unlock(table.platform, "topic/orders")
    with pytest.raises(LeaseLostError):
        table.look()
    assert table.keys() == ["a", "late"]
