"""Every engine keeps the same promises: a batch is committed on the head it was planned on, or not at all."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.errors import CommitRefusedError
from leanops.domain.table.definitions import ERRORS, STANDARDIZED
from leanops.domain.table.history import TableView
from leanops.ports.engine import Fold, StandardizeWork, Target, Written
from leanops.usecases.leases import hold_topic
from leanops.usecases.pipeline import standardize
from leanops.usecases.platform import Platform
from leanops.views.balance import whole_topic
from tests.oracle.rows import RawRow
from tests.oracle.streams import SCHEMA
from tests.support.verify import sources_of
from tests.support.world import FIRST, World

COLUMNS = [{"name": "amount", "path": "$.amount", "type": "INT"}]
ORDERS: dict[str, Any] = {**SCHEMA, "payload_columns": COLUMNS, "keys": {"idempotency_key": "$.key"}}
SIZES = {"one task": TaskRules(), "shuffled": TaskRules(task_rows=1)}
TABLE = "orders"


@pytest.fixture(params=["in process", "on Spark"])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.getfixturevalue("world" if request.param == "in process" else "spark_world")
    made.add(TABLE, json.dumps(ORDERS))
    return made


def event(number: int) -> RawRow:
    text = json.dumps({"key": f"k{number}", "amount": number})
    return replace(FIRST, message_id=f"m{number}", json_payload=text, ingestion_ts=FIRST.ingestion_ts + number)


class Waiting:
    """A worker that has written its batch, lost its topic to others, and is about to commit."""

    def __init__(self, world: World, numbers: range) -> None:
        self.world, self.platform = world, world.platform()
        for number in numbers:
            world.publish(TABLE, [event(number)])
        with hold_topic(self.platform, TABLE) as held:
            begun = standardize.begin_next(held, self.platform.schemas.active(TABLE))
            assert begun is not None
            self.work, self.written = self._written(self.platform, begun)
            self.prepared = standardize.prepared(self.platform, begun, self.work, self.written)
        world.wait_for_leases()

    def _written(self, platform: Platform, begun: standardize.StandardizeBatch) -> tuple[StandardizeWork, Written]:
        platform.catalog.create(self.world.databases.parse_errors, ERRORS)
        for _ in range(2):
            work = standardize.work_of(platform, begun)
            (answer,) = platform.engine().standardize([work])
            assert isinstance(answer, Written), answer
            if not answer.lacks_columns:
                break
            added = standardize.added_columns(work, answer)
            begun = replace(begun, target=platform.catalog.alter(begun.target.name, added))
        return work, answer

    def commit(self) -> None:
        self.platform.engine().commit(self.work.target, self.written, self.prepared.summary)

    @property
    def files(self) -> list[Path]:
        return [Path(file.file_path.removeprefix("file://")) for file in (*self.written.files, *self.written.deletes)]


def view_of(world: World) -> TableView:
    view = world.embedded.platform.catalog.load(world.databases.standardized_table(TABLE))
    assert view is not None
    return view


def foreign_row(number: int) -> dict[str, Any]:
    """A row that no worker of ours wrote."""
    known = {"record_key": f"key:f{number}", "idempotency_key": f"f{number}", "message_id": f"f{number}"}
    times = {"publish_time": FIRST.publish_time, "last_updated_ts": FIRST.publish_time}
    return {**known, **times, "topic_name": TABLE, "period_reference": "2024-01"}


def a_twin_commits_the_same_batch(world: World) -> None:
    world.settle()


def a_rival_commits_a_part_of_it(world: World) -> None:
    """A batch of the same events and others: what was begun before is given up by a deployment."""
    world.add(TABLE, json.dumps({**ORDERS, "version": 2, "description": "other words"}))
    world.publish(TABLE, [event(100)])
    world.settle()


def another_tool_appends(world: World) -> None:
    world.embedded.platform.catalog.append(view_of(world).name, [foreign_row(1)])


def another_tool_deletes(world: World) -> None:
    another_tool_appends(world)
    world.embedded.platform.catalog.delete(view_of(world).name, {"message_id": "f1"})


def somebody_folds(world: World) -> None:
    """A compaction: the same rows in other files."""
    another_tool_appends(world)
    another_tool_appends(world)
    world.embedded.platform.catalog.delete(view_of(world).name, {"message_id": "f1"})
    for number in (2, 3):
        world.embedded.platform.catalog.append(view_of(world).name, [foreign_row(number)])
    world.tasks, rules = TaskRules(fold_files=2), world.tasks
    view = view_of(world)
    target = Target(view.name, view.uuid, view.head, world.databases.parse_errors)
    (failed,) = world.engine().fold([Fold(target, "record_key", {})])
    assert failed is None
    assert view_of(world).head != view.head
    world.tasks = rules


def somebody_swaps_the_table(world: World) -> None:
    catalog, other = world.embedded.platform.catalog, f"{world.databases.standardized_table(TABLE)}_other"
    catalog.create(other, STANDARDIZED)
    catalog.append(other, [foreign_row(4)])
    head = catalog.load(other)
    assert head is not None
    assert head.head is not None
    view = view_of(world)
    catalog.take_place(view.name, other, head.head, {}, only_at=view.head, after=view.last_sequence_number)


def somebody_rolls_back(world: World) -> None:
    """To the snapshot before the newest, or to none."""
    view = view_of(world)
    before = [snapshot.snapshot_id for snapshot in view.ancestors()][1:2]
    world.embedded.platform.catalog.roll_back(view.name, before[0] if before else None, only_at=view.head)


def somebody_expires_all_but_the_head(world: World) -> None:
    table = world.embedded.catalog.load_table(view_of(world).name)
    head = table.metadata.current_snapshot_id
    for snapshot in [one.snapshot_id for one in table.snapshots() if one.snapshot_id != head]:
        table.maintenance.expire_snapshots().by_ids([snapshot]).commit()


MOVES = [
    a_twin_commits_the_same_batch,
    a_rival_commits_a_part_of_it,
    another_tool_appends,
    another_tool_deletes,
    somebody_folds,
    somebody_swaps_the_table,
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("has_base", [True, False], ids=["with a base", "without a base"])
@pytest.mark.parametrize("move", MOVES)
def test_a_batch_is_refused_on_any_other_head_and_its_files_are_gone(
    world: World, move: Callable[[World], None], has_base: bool, size: str
) -> None:
    world.tasks = SIZES[size]
    if has_base:
        world.publish(TABLE, [event(number) for number in range(3)])
        world.settle()
    waiting = Waiting(world, range(2, 5))
    move(world)
    before, rows = view_of(world), sorted(row["message_id"] for row in world.standardized(TABLE))
    with pytest.raises(CommitRefusedError):
        waiting.commit()
    assert view_of(world) == before
    assert sorted(row["message_id"] for row in world.standardized(TABLE)) == rows
    assert [path for path in waiting.files if path.exists()] == []


@pytest.mark.parametrize("move", [somebody_rolls_back, somebody_expires_all_but_the_head])
def test_a_batch_on_its_own_head_is_committed_whatever_became_of_older_ones(
    world: World, move: Callable[[World], None]
) -> None:
    """Once a rollback has moved the head it is another one; expiry moves none."""
    for first in (0, 3):
        world.publish(TABLE, [event(number) for number in range(first, first + 3)])
        world.settle()
    waiting = Waiting(world, range(5, 8))
    move(world)
    if move is somebody_rolls_back:
        with pytest.raises(CommitRefusedError):
            waiting.commit()
    else:
        waiting.commit()
    world.settle()
    assert sorted(row["message_id"] for row in world.standardized(TABLE)) == [f"m{number}" for number in range(8)]
    assert sorted(row["message_id"] for row in world.curated(TABLE)) == [f"m{number}" for number in range(8)]


def test_a_table_that_is_back_without_a_snapshot_is_as_empty_as_before(world: World) -> None:
    waiting = Waiting(world, range(3))
    another_tool_appends(world)
    somebody_rolls_back(world)
    waiting.commit()
    world.settle()
    assert sorted(row["message_id"] for row in world.curated(TABLE)) == ["m0", "m1", "m2"]
    assert whole_topic(sources_of(world), TABLE).balanced
