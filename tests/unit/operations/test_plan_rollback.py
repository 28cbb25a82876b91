"""What a rollback would change, told by the tables' own history alone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.domain.errors import CommitRefusedError, StateConflictError, UnknownTopicError, UsageError
from leanops.domain.schema.model import Schema
from leanops.domain.table.balance import Totals
from leanops.domain.table.batch import pipeline_id
from leanops.domain.table.definitions import CURATED, STANDARDIZED, TableDefinition
from leanops.domain.table.history import TableView, is_same_data
from leanops.domain.table.operation import Accept
from leanops.ports.state import ABANDONED_BATCHES
from leanops.usecases.leases import hold_topic, unlock
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.operations.execute import cancel, resume
from leanops.usecases.operations.plan_rollback import plan_rollback, roll_back_topic
from leanops.usecases.pipeline.curate import source_moved
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic, find_topic, pause_topic, undo_pause
from tests.support.builders import column, event, land, platform_in, schema_text, watermark
from tests.support.world import Abandoned

RAW, STANDARD, CURATE = "iceberg_raw_db.orders_staging", "iceberg_standardized_db.orders", "iceberg_curated_db.orders"
BATCH_MS = 1_000


class Histories(IcebergCatalog):
    """Real tables, whose heads became so one second after the other, and of which some are no ancestors any more."""

    def __init__(self, catalog: IcebergCatalog) -> None:
        super().__init__(catalog.native)
        self.cut: set[int] = set()
        """Snapshots that a replace commit has no parent for."""

    def load(self, name: str) -> TableView | None:
        view = super().load(name)
        if view is None:
            return None
        kept = {
            number: replace(snapshot, parent_id=None) if number in self.cut else snapshot
            for number, snapshot in view.snapshots.items()
        }
        order = sorted(kept.values(), key=lambda snapshot: snapshot.sequence_number)
        history = tuple((at * BATCH_MS, snapshot.snapshot_id) for at, snapshot in enumerate(order, start=1))
        return replace(view, snapshots=kept, history=history)


class Tables:
    """A topic whose batches are written by hand."""

    def __init__(self, platform: Platform) -> None:
        self.catalog = Histories(platform.catalog)  # type: ignore[arg-type]
        self.platform = replace(platform, catalog=self.catalog)
        self.rows = 0

    def standardize(self, rows: int, *, schema_version: int = 1, is_rebuild: bool = False, key_check: str = "") -> int:
        """New events in RAW and a batch that reads them, or a rebuild that reads all; the snapshot."""
        land(self.platform, "orders", [event(f"m{self.rows + number}") for number in range(rows)])
        self.rows += rows
        raw = self.view(RAW)
        assert raw.head is not None
        read = self.rows if is_rebuild else rows
        mark = watermark(
            raw.head,
            self._next(STANDARD, STANDARDIZED),
            source_uuid=raw.uuid,
            counts={"read": read},
            totals=Totals(read=self.rows, rows=self.rows),
            schema_version=schema_version,
            key_check=key_check,
        )
        snapshot = self._append(STANDARD, {"record_key": f"key:{self.rows}"}, mark)
        if is_rebuild:
            self.catalog.cut.add(snapshot)
        return snapshot

    def curate(self) -> int:
        """A batch that reads Standardized as it is; the snapshot."""
        source = self.view(STANDARD)
        assert source.head is not None
        seq = source.snapshots[source.head].summary["leanops.batch-seq"]
        place = {"source_uuid": source.uuid, "source_snapshot": source.head}
        counts = {"inserted": 0, "updated": 0}
        mark = watermark(int(seq), self._next(CURATE, CURATED), counts=counts, **place)
        return self._append(CURATE, {"idempotency_key": f"{self.rows}"}, mark)

    def compact(self, name: str) -> int:
        """A commit that says nothing of a batch."""
        self.catalog.append(name, [{"message_id": "moved"}])
        return int(self.view(name).head or 0)

    def plan(self, **target: int) -> Any:
        return plan_rollback(self.platform, "orders", **target)

    def _next(self, name: str, definition: TableDefinition) -> int:
        return self.catalog.create(name, definition).last_sequence_number + 1

    def _append(self, name: str, row: dict[str, Any], mark: Any) -> int:
        self.catalog.append(name, [row], mark.summary())
        return int(self.view(name).head or 0)

    def expire(self, name: str, snapshot: int) -> None:
        """What an outside tool does."""
        self.catalog.native.load_table(name).maintenance.expire_snapshots().by_id(snapshot).commit()

    @property
    def schema(self) -> Schema:
        found = self.platform.schemas.active("orders")
        assert found is not None
        return found

    def view(self, name: str) -> TableView:
        view = self.catalog.load(name)
        assert view is not None
        return view


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    with platform_in(tmp_path) as platform:
        add_topic(platform, "orders")
        deploy_schema(platform, "orders", schema_text(), "schema.json")
        yield Tables(platform)


def test_an_ancestor_undoes_the_batches_after_it_and_takes_curated_along(tables: Tables) -> None:
    first = tables.standardize(3)
    curated = tables.curate()
    tables.standardize(2)
    tables.curate()
    tables.standardize(4)
    tables.curate()
    plan = tables.plan(snapshot=first)
    assert (plan.snapshot, plan.curated_snapshot, plan.by_replace) == (first, curated, False)
    assert (plan.rows_now, plan.rows_then, plan.read_again) == (9, 3, 6)
    assert plan.batches == ("b3", "b2")
    assert not plan.changes_nothing


@pytest.mark.parametrize(("at_ms", "rows"), [(1_000, 3), (1_999, 3), (2_000, 5), (9_000, 9)])
def test_a_moment_is_the_snapshot_that_was_the_head_then(tables: Tables, at_ms: int, rows: int) -> None:
    for count in (3, 2, 4):
        tables.standardize(count)
        tables.curate()
    assert tables.plan(at_ms=at_ms).rows_then == rows


@pytest.mark.parametrize("at_ms", [0, 999])
def test_a_moment_before_the_first_snapshot_is_told(tables: Tables, at_ms: int) -> None:
    tables.standardize(3)
    with pytest.raises(UsageError, match="had no snapshot yet at that time; choose a later one"):
        tables.plan(at_ms=at_ms)


def test_the_head_changes_nothing(tables: Tables) -> None:
    tables.standardize(3)
    tables.curate()
    head = tables.standardize(2)
    tables.curate()
    plan = tables.plan(snapshot=head)
    assert plan.changes_nothing
    assert (plan.rows_now, plan.rows_then, plan.batches, plan.read_again) == (5, 5, (), 0)


def test_before_a_compaction_no_batch_is_undone(tables: Tables) -> None:
    batch = tables.standardize(3)
    tables.curate()
    tables.compact(STANDARD)
    assert tables.plan(snapshot=batch).changes_nothing


def test_curated_that_was_late_goes_back_to_what_it_had_read(tables: Tables) -> None:
    tables.standardize(3)
    early = tables.curate()
    second = tables.standardize(2)
    tables.standardize(4)
    tables.curate()
    assert tables.plan(snapshot=second).curated_snapshot == early


def test_a_compacted_curated_goes_back_to_its_batch(tables: Tables) -> None:
    first = tables.standardize(3)
    early = tables.curate()
    tables.compact(CURATE)
    tables.standardize(2)
    tables.curate()
    assert tables.plan(snapshot=first).curated_snapshot == early


def test_curated_that_began_later_is_made_anew(tables: Tables) -> None:
    first = tables.standardize(3)
    assert tables.plan(snapshot=first).curated_snapshot is None
    tables.standardize(2)
    tables.curate()
    assert tables.plan(snapshot=first).curated_snapshot is None


def test_beyond_a_rebuild_with_the_same_keys_the_table_comes_back_by_a_commit_of_its_own(tables: Tables) -> None:
    first = tables.standardize(3)
    tables.curate()
    tables.standardize(2)
    tables.curate()
    rebuilt = tables.standardize(0, is_rebuild=True)
    tables.curate()
    tables.standardize(4)
    tables.curate()
    plan = tables.plan(snapshot=first)
    assert (plan.by_replace, plan.curated_snapshot, plan.changes_nothing) == (True, None, False)
    assert (plan.rows_now, plan.rows_then, plan.read_again) == (9, 3, 6)
    after = tables.plan(snapshot=rebuilt)
    assert (after.by_replace, after.read_again, after.rows_then) == (False, 4, 5)


def test_beyond_a_rebuild_with_other_keys_the_schema_goes_back_first(tables: Tables) -> None:
    first = tables.standardize(3)
    tables.curate()
    other = schema_text(column(), column("d"), keys={"idempotency_key": "$.c"}, version=2)
    # The tables are written by hand here: only the schema changes, as it would before they are replaced.
    tables.platform.schemas.keep("orders", 2, other)
    tables.platform.schemas.activate("orders", 2)
    tables.standardize(0, is_rebuild=True, schema_version=2)
    tables.curate()
    with pytest.raises(
        UsageError, match=r"a rebuild changed the keys since then; .* leanops schema rollback orders --to 1 --rebuild"
    ):
        tables.plan(snapshot=first)


def test_beyond_a_rebuild_with_another_key_nothing_comes_back(tables: Tables) -> None:
    first = tables.standardize(3, key_check="one")
    tables.curate()
    tables.standardize(0, is_rebuild=True, key_check="two")
    tables.curate()
    with pytest.raises(UsageError, match=r"another key since then.* leanops rebuild orders --new-key"):
        tables.plan(snapshot=first)


def test_beyond_what_raw_remembers_everything_is_read_again(tables: Tables) -> None:
    first = tables.standardize(3)
    for _ in range(3):
        tables.standardize(2)
    tables.curate()
    assert tables.plan(snapshot=first).read_again == 6
    for landed in tables.view(RAW).ancestors()[2:]:
        tables.expire(RAW, landed.snapshot_id)
    assert tables.plan(snapshot=first).read_again == 9


def test_a_batch_that_was_given_up_does_not_come_back(tables: Tables) -> None:
    first = tables.standardize(3)
    late = tables.standardize(1)
    batch = tables.view(STANDARD).snapshots[late].batch_id
    row = {"pipeline_id": pipeline_id("orders", "standardized"), "batch_id": batch, "abandoned_at": 1}
    tables.platform.state.put_many(ABANDONED_BATCHES, [row])
    tables.catalog.roll_back(STANDARD, first, only_at=late)
    tables.standardize(1)
    tables.curate()
    with pytest.raises(UsageError, match="holds an abandoned batch"):
        tables.plan(snapshot=late)
    assert tables.plan(snapshot=first).batches


def begun(tables: Tables, step: str) -> int:
    """A rollback to the first of three batches, killed at a step; the snapshot it goes back to."""
    first = tables.standardize(3)
    tables.curate()
    for _ in range(2):
        tables.standardize(1)
        tables.curate()

    def kill(name: str) -> None:
        if name == step:
            raise Abandoned(name)

    with pytest.raises(Abandoned):
        roll_back_topic(replace(tables.platform, step=kill), tables.plan(snapshot=first), accept=Accept.ALL)
    unlock(tables.platform, "topic/orders")
    return first


def test_a_rollback_whose_snapshot_expired_meanwhile_can_be_undone(tables: Tables) -> None:
    first = begun(tables, "before rollback standardized")
    tables.expire(STANDARD, first)
    head = tables.view(STANDARD).head
    with pytest.raises(CommitRefusedError, match=r"has expired .* leanops rebuild orders --cancel"):
        resume(tables.platform, "orders")
    assert find_topic(tables.platform, "orders").status == "PAUSED"
    cancel(tables.platform, "orders")
    assert unfinished_operation(tables.platform, "orders") is None
    assert find_topic(tables.platform, "orders").status == "READY"
    assert is_same_data(tables.view(STANDARD), head)


def test_a_rollback_of_which_curateds_snapshot_expired_ends_without_it(tables: Tables) -> None:
    first = begun(tables, "before rollback curated")
    oldest = tables.view(CURATE).ancestors()[-1].snapshot_id
    tables.expire(CURATE, oldest)
    resume(tables.platform, "orders")
    assert unfinished_operation(tables.platform, "orders") is None
    assert tables.view(STANDARD).head == first
    with hold_topic(tables.platform, "orders") as held:
        assert source_moved(held, tables.schema)


def test_a_pause_that_comes_after_its_rollback_was_undone_is_refused(tables: Tables) -> None:
    def late() -> None:
        undo_pause(tables.platform, "orders", "rolled back")

    with pytest.raises(StateConflictError):
        pause_topic(tables.platform, "orders", "rolled back", guard=late)
    assert find_topic(tables.platform, "orders").status == "READY"


@pytest.mark.parametrize("snapshot", [0, 12])
def test_a_snapshot_that_is_not_there_is_told_with_where_to_look(tables: Tables, snapshot: int) -> None:
    tables.standardize(3)
    with pytest.raises(UsageError, match=f"has no snapshot {snapshot}; leanops topics show orders lists those it has"):
        tables.plan(snapshot=snapshot)


def test_before_the_first_batch_there_is_nothing_to_go_back_to(tables: Tables) -> None:
    tables.catalog.create(STANDARD, STANDARDIZED)
    empty = tables.compact(STANDARD)
    tables.standardize(3)
    with pytest.raises(UsageError, match="older than its first batch"):
        tables.plan(snapshot=empty)


def test_a_topic_without_tables_schema_or_name_is_told(tables: Tables) -> None:
    with pytest.raises(UsageError, match="no tables to roll back yet"):
        tables.plan(snapshot=1)
    add_topic(tables.platform, "users")
    with pytest.raises(UsageError, match="has no schema"):
        plan_rollback(tables.platform, "users", snapshot=1)
    with pytest.raises(UnknownTopicError):
        plan_rollback(tables.platform, "nosuch", snapshot=1)
