"""The engine against the model, its tasks in this process: every table and count, however a batch is cut into tasks."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.errors import CommitRefusedError, RetryableError
from leanops.domain.schema.types import TYPES
from leanops.domain.table.history import foreign_snapshots
from leanops.domain.table.outcome import Outcome
from leanops.ports.engine import Fold, StandardizeWork
from leanops.usecases.cycle import run
from leanops.usecases.cycle.job import TopicResult
from leanops.usecases.leases import unlock
from leanops.usecases.pipeline.run_history import record
from leanops.usecases.platform import Platform
from tests.oracle.model import Model
from tests.oracle.streams import SCHEMA, make_stream
from tests.support.verify import assert_counts, assert_tables
from tests.support.world import FIRST, PII_KEY, World, Wrapped, few_batches
from tests.unit.schema.new_entries import FLOAT_TYPE

SIZES = {
    "one task": TaskRules(),
    "shuffled": TaskRules(task_rows=10),
    "a file each": TaskRules(task_bytes=1),
    "folded": TaskRules(fold_files=2),
    "with hardly any memory": TaskRules(task_rows=40, task_memory=2_000, fold_files=4),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_every_table_and_count_is_the_models(world: World, seed: int, size: str) -> None:
    world.tasks, chance = SIZES[size], random.Random(seed)
    batches = [[FIRST], *few_batches(chance, make_stream(chance, 120))]
    world.add("orders", json.dumps(SCHEMA))
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    for batch in batches:
        # Two files of RAW in one batch: appends are cut where they were made.
        for part in (batch[::2], batch[1::2]):
            world.publish("orders", part)
        standardized, curated = model.standardize(batch), model.curate()
        result = world.cycle()["orders"]
        assert_tables(world, "orders", model)
        assert_counts(result, standardized, curated)
        model.assert_laws()


def test_a_column_of_a_new_type_is_stored_and_corrected(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPES, "FLOAT", FLOAT_TYPE)
    columns = [{"name": "amount", "path": "$.amount", "type": "FLOAT"}]
    keys = {"idempotency_key": "$.key"}
    world.add("orders", json.dumps({**SCHEMA, "payload_columns": columns, "keys": keys}))
    for number, amounts in enumerate(({"k1": "7.5", "k2": "x"}, {"k1": "-2.5", "k3": "1e3"})):
        texts = {key: json.dumps({"key": key, "amount": amount}) for key, amount in amounts.items()}
        late = FIRST.ingestion_ts + number
        rows = [replace(FIRST, message_id=f"{key}-{late}", json_payload=text) for key, text in texts.items()]
        world.publish("orders", rows)
        assert world.cycle()["orders"].outcome == Outcome.DONE
    assert sorted((row["idempotency_key"], row["amount"]) for row in world.curated("orders")) == [
        ("k1", -2.5),
        ("k3", 1000.0),
    ]
    view = world.platform().catalog.load(world.databases.curated_table("orders"))
    assert view is not None
    assert view.columns["amount"] == "float"


class FailsFor(InProcess):
    """A runner whose tasks fail for one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def run(self, function: Callable[[Any], Any], items: Any) -> list[Any]:
        def task(unit: Any) -> Any:
            if unit.work.batch.topic == self.topic:
                raise OSError(28, "No space left on device")
            return function(unit)

        return super().run(task, items)


def test_a_task_that_fails_stops_its_topic_alone_and_the_next_cycle_repeats_the_batch(world: World) -> None:
    for topic in ("orders", "users"):
        world.add(topic, json.dumps({**SCHEMA, "table_name": topic}))
        world.publish(topic, [FIRST])
    broken = TaskEngine(world.embedded.catalog, FailsFor("users"))
    with pytest.raises(OSError, match="No space left"):
        world.cycle(world.platform(engine=lambda: broken))
    assert [len(world.standardized(topic)) for topic in ("orders", "users")] == [1, 0]
    results = world.cycle()
    assert (results["orders"].outcome, results["users"].outcome) == (Outcome.NO_NEW_DATA, Outcome.DONE)
    assert len(world.standardized("users")) == 1


class Overtaken(Wrapped):
    """An engine whose tables are changed by another tool after their files were planned."""

    def __init__(self, world: World) -> None:
        super().__init__(world.engine())
        self.world, self.is_done = world, False

    def standardize(self, works: list[StandardizeWork]) -> Any:
        written = self.engine.standardize(works)
        if not self.is_done and not written[0].lacks_columns:
            self.is_done = True
            self.world.embedded.platform.catalog.mark(works[0].target.table, {"tool": "another"})
        return written


def test_a_table_that_moved_after_it_was_read_refuses_the_commit_and_no_file_is_left(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", [FIRST])
    engine = Overtaken(world)
    result = world.cycle(world.platform(engine=lambda: engine))["orders"]
    assert (result.outcome, type(result.failure)) == (Outcome.FAILED, CommitRefusedError)
    table = world.embedded.catalog.load_table(world.databases.standardized_table("orders"))
    assert list(Path(table.location().removeprefix("file://")).rglob("*.parquet")) == []
    assert world.cycle()["orders"].outcome == Outcome.DONE
    assert len(world.standardized("orders")) == 1


def test_the_key_of_hmacs_is_in_no_unit(world: World) -> None:
    seen: list[str] = []

    class Listening(InProcess):
        def run(self, function: Callable[[Any], Any], items: Any) -> list[Any]:
            seen.extend(repr((unit, unit.work.secret)) for unit in items)
            return super().run(function, items)

    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", [FIRST])
    engine = TaskEngine(world.embedded.catalog, Listening())
    assert world.cycle(world.platform(engine=lambda: engine))["orders"].outcome == Outcome.DONE
    assert len(seen) > 1
    assert not any(PII_KEY.decode() in text for text in seen)


def test_a_message_that_two_tasks_refuse_has_one_error_row(world: World) -> None:
    columns = [{"name": "amount", "path": "$.amount", "type": "INT"}]
    schema = {**SCHEMA, "payload_columns": columns, "keys": {"idempotency_key": "$.key"}}
    world.tasks = TaskRules(task_rows=1)
    world.add("orders", json.dumps(schema))
    # One message id, two keys: two rows of Standardized in two files, and neither has a number.
    for month, key in enumerate("ab", 1):
        payload = json.dumps({"key": key, "amount": "x"})
        published = FIRST.publish_time.replace(month=month)
        world.publish("orders", [replace(FIRST, json_payload=payload, publish_time=published)])
    assert world.cycle()["orders"].layers["curated"].counts["errors"] == 2
    (error,) = world.errors(world.databases.errors, "orders")
    assert error["message_id"] == FIRST.message_id


class FailsToFold(Wrapped):
    """An engine that folds nothing."""

    def fold(self, folds: list[Fold]) -> list[Exception | None]:
        return [RetryableError("the disk is full") for _ in folds]


@pytest.fixture
def folding(world: World) -> World:
    """A topic whose batches add one file to each table; three are many."""
    columns = [{"name": "amount", "path": "$.amount", "type": "INT"}]
    world.tasks = TaskRules(fold_files=3)
    world.add("orders", json.dumps({**SCHEMA, "payload_columns": columns, "keys": {"idempotency_key": "$.key"}}))
    return world


def tables_of(world: World) -> list[str]:
    return [world.databases.standardized_table("orders"), world.databases.curated_table("orders")]


def files_in(world: World) -> list[int]:
    """How many files each table has."""
    return [len(world.embedded.catalog.load_table(table).inspect.files()) for table in tables_of(world)]


def one_more(world: World, number: int, engine: Any = None) -> TopicResult:
    """A cycle with one event more."""
    payload = json.dumps({"key": f"k{number}", "amount": number})
    world.publish("orders", [replace(FIRST, message_id=f"m{number}", json_payload=payload)])
    return world.cycle(world.platform(engine=lambda: engine or world.engine()))["orders"]


def test_a_table_of_many_small_files_is_folded_after_its_batch(folding: World) -> None:
    world, tables = folding, tables_of(folding)
    files, warned = list[int](), list[str]()
    for number in range(5):
        result = one_more(world, number, FailsToFold(world.engine()) if number == 3 else None)
        assert result.outcome == Outcome.DONE
        files += set(files_in(world))
        warned += result.warnings
    # It is looked for where a batch is planned: the fourth finds three files, and the fifth four.
    assert files == [1, 2, 3, 4, 1]
    assert warned == [f"the small files of {table} were not folded: the disk is full" for table in tables]
    assert len(world.curated("orders")) == 5
    views = [world.platform().catalog.load(table) for table in tables]
    assert [foreign_snapshots(view) for view in views if view] == [[], []]


def test_a_table_of_which_only_the_fold_is_kept_still_knows_how_far_it_has_come(folding: World) -> None:
    for number in range(4):
        one_more(folding, number)
    assert files_in(folding) == [1, 1]
    for name in tables_of(folding):
        table = folding.embedded.catalog.load_table(name)
        head = table.metadata.current_snapshot_id
        older = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != head]
        table.maintenance.expire_snapshots().by_ids(older).commit()
        assert len(folding.embedded.catalog.load_table(name).snapshots()) == 1
    assert folding.cycle()["orders"].outcome == Outcome.NO_NEW_DATA
    result = one_more(folding, 4)
    # Not a gap: only the new event was read.
    assert (result.outcome, [layer.batch.is_gap for layer in result.layers.values()]) == (Outcome.DONE, [False, False])
    assert [layer.counts["read"] for layer in result.layers.values()] == [1, 1]
    assert len(folding.standardized("orders")) == len(folding.curated("orders")) == 5


def test_who_has_lost_the_lease_does_not_fold(folding: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        one_more(folding, number)

    def recorded_late(platform: Platform, *args: Any) -> None:
        record(platform, *args)
        unlock(folding.platform(), "topic/orders")

    monkeypatch.setattr(run, "record", recorded_late)
    result = one_more(folding, 3)
    assert (result.outcome, result.warnings, files_in(folding)) == (Outcome.DONE, [], [4, 4])
