"""What other tools, full disks and other topics may do to a batch: it is refused or read again, and never wrong."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks import raw
from leanops.adapters.iceberg.tasks.places import pieces
from leanops.domain.errors import LeaseLostError, PermanentError, RetryableError, UnbalancedBatchError
from leanops.domain.table.outcome import Outcome
from leanops.ports.state import ATTEMPTS
from leanops.transforms import curate
from leanops.transforms.flatten import flattened
from leanops.usecases.cycle.plan import plan_cycle
from leanops.usecases.leases import unlock
from tests.oracle.rows import RawRow
from tests.oracle.streams import SCHEMA
from tests.support.builders import Stalling
from tests.support.world import FIRST, Abandoned, World, Wrapped

COLUMNS = [{"name": "amount", "path": "$.amount", "type": "INT"}]
ORDERS: dict[str, Any] = {**SCHEMA, "payload_columns": COLUMNS, "keys": {"idempotency_key": "$.key"}}


@pytest.fixture
def world(world: World) -> World:
    world.add("orders", json.dumps(ORDERS))
    return world


def event(number: int, amount: object = 1, key: str | None = None) -> RawRow:
    text = json.dumps({"key": key or f"k{number}", "amount": amount})
    return replace(FIRST, message_id=f"m{number}", json_payload=text, ingestion_ts=FIRST.ingestion_ts + number)


def standardize(world: World) -> None:
    """A cycle that leaves Curated alone."""
    platform = world.platform()
    world.cycle(platform, plans=[replace(plan, curate=False) for plan in plan_cycle(platform, None)])


def folder_of(world: World, table: str) -> Path:
    return Path(world.embedded.catalog.load_table(table).location().removeprefix("file://"))


def test_a_batch_begun_over_snapshots_that_expire_in_between_is_read_again_as_a_gap(world: World) -> None:
    world.publish("orders", [event(1)])
    world.cycle()
    world.publish("orders", [event(2)])
    world.publish("orders", [event(3)])

    def killed(name: str) -> None:
        if name == "before commit":
            raise Abandoned

    with pytest.raises(Abandoned):
        world.cycle(world.platform(killed))
    world.wait_for_leases()
    raw = world.embedded.catalog.load_table(world.databases.raw_table("orders"))
    _, between, _ = [snapshot.snapshot_id for snapshot in raw.snapshots()]
    raw.maintenance.expire_snapshots().by_ids([between]).commit()
    assert world.cycle()["orders"].outcome == Outcome.GAP
    assert sorted(row["message_id"] for row in world.curated("orders")) == ["m1", "m2", "m3"]
    assert len(world.standardized("orders")) == 3


@pytest.mark.parametrize("layer", ["standardized", "curated"])
def test_error_rows_that_cannot_be_written_leave_no_other_file(world: World, layer: str) -> None:
    world.publish("orders", [event(1)])
    world.cycle()
    databases = world.databases
    places = {
        "standardized": (databases.standardized_table("orders"), databases.parse_errors),
        "curated": (databases.curated_table("orders"), databases.errors),
    }
    table, errors = places[layer]
    # A file where the folder of error rows has to be: as good as a full disk.
    (folder_of(world, errors) / "data").write_text("in the way")
    files = set(folder_of(world, table).rglob("*.parquet"))
    bad = event(2, "x") if layer == "curated" else replace(event(2), json_payload="no event")
    world.publish("orders", [bad, event(3)])
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        world.cycle()
    assert set(folder_of(world, table).rglob("*.parquet")) == files
    (folder_of(world, errors) / "data").unlink()
    assert world.cycle()["orders"].outcome in (Outcome.DONE, Outcome.NO_NEW_DATA)
    assert len(world.curated("orders")) == 2


def test_error_rows_that_cannot_be_added_stop_their_own_topic_alone(world: World) -> None:
    class AddsNone(Wrapped):
        def add_errors(self, table: str, written: Any) -> Any:
            raise RetryableError(f"{table} is locked")

    world.add("users", json.dumps({**ORDERS, "table_name": "users"}))
    for topic, amount in (("orders", 1), ("users", "x")):
        world.publish(topic, [replace(event(1, amount), topic_name=topic)])
    results = world.cycle(world.platform(engine=lambda: AddsNone(world.engine())))
    assert [results[topic].outcome for topic in ("orders", "users")] == [Outcome.DONE, Outcome.FAILED]


@pytest.mark.parametrize(
    ("rules", "reason"),
    [(TaskRules(), "several rows of one key"), (TaskRules(task_rows=1), "another tool added rows in snapshot")],
    ids=["one task", "a task each"],
)
def test_a_row_that_another_tool_doubled_in_standardized_does_not_reach_curated(
    world: World, rules: TaskRules, reason: str
) -> None:
    world.tasks = rules
    world.publish("orders", [event(1)])
    standardize(world)
    name = world.databases.standardized_table("orders")
    world.embedded.platform.catalog.append(name, world.rows(name))
    world.publish("orders", [event(2)])
    standardize(world)
    result = world.cycle()["orders"]
    assert isinstance(result.failure, UnbalancedBatchError)
    assert reason in str(result.reason)
    assert str(result.reason).endswith("leanops rebuild orders")
    assert world.curated("orders") == []


def test_a_batch_whose_commit_is_never_tried_leaves_no_file(world: World) -> None:
    class Locked(Wrapped):
        def add_errors(self, table: str, written: Any) -> Any:
            def locked() -> None:
                raise RetryableError(f"{table} is locked")

            catalog: Any = Stalling(world.embedded.catalog, locked, at=table)
            return TaskEngine(catalog, InProcess()).add_errors(table, written)

    world.publish("orders", [event(1)])
    world.cycle()
    databases = world.databases
    names = (databases.standardized_table("orders"), databases.curated_table("orders"), databases.errors)

    def files() -> set[Path]:
        return {path for name in names for path in folder_of(world, name).rglob("*.parquet")}

    # Standardized takes the events, and Curated cannot write that one of them fails.
    world.publish("orders", [event(2, "x"), event(3)])
    result = world.cycle(world.platform(engine=lambda: Locked(world.engine())))["orders"]
    assert (result.outcome, list(result.layers)) == (Outcome.FAILED, ["standardized"])
    before = files()
    again = world.cycle(world.platform(engine=lambda: Locked(world.engine())), force=True)["orders"]
    assert again.outcome == Outcome.FAILED
    assert files() == before
    world.settle()
    assert len(world.curated("orders")) == 2


def test_who_loses_the_lease_of_a_topic_leaves_no_file_and_no_failure_to_the_next_holder(world: World) -> None:
    world.publish("orders", [event(1)])
    world.cycle()
    world.publish("orders", [event(2)])
    name = world.databases.standardized_table("orders")
    before = set(folder_of(world, name).rglob("*.parquet"))

    class Unlocked(Wrapped):
        def standardize(self, works: Any) -> Any:
            written = self.engine.standardize(works)
            unlock(world.platform(), "topic/orders")
            return written

    result = world.cycle(world.platform(engine=lambda: Unlocked(world.engine())))["orders"]
    assert isinstance(result.failure, LeaseLostError)
    assert list(world.platform().state.rows(ATTEMPTS)) == []
    assert set(folder_of(world, name).rglob("*.parquet")) == before
    assert world.cycle()["orders"].outcome == Outcome.DONE


def test_a_batch_of_large_payloads_is_worked_through_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that held them all would be more than Arrow can address, in a batch of gigabytes."""
    sizes: dict[str, list[int]] = defaultdict(list)

    def weighed(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which is given a table first; the size of each is noted."""

        def noted(rows: Any, *rest: Any) -> Any:
            sizes[what].append(rows.nbytes)
            return function(rows, *rest)

        return noted

    def read(*where: Any) -> Iterator[Any]:
        for piece in pieces(*where):
            sizes["read"].append(piece.nbytes)
            yield piece

    monkeypatch.setattr(raw, "pieces", read)
    monkeypatch.setattr(raw, "ROWS_OF_PAYLOADS", 2)
    monkeypatch.setattr(raw, "flattened", weighed("flattened", flattened))
    monkeypatch.setattr(curate, "curated", weighed("curated", curate.curated))
    world.tasks = TaskRules(task_memory=8 << 20)
    columns = [*COLUMNS, {"name": "x", "path": "$.x", "type": "STRING"}]
    world.add("large", json.dumps({**ORDERS, "table_name": "large", "payload_columns": columns}))
    text = "y" * 900_000
    payloads = [json.dumps({"key": f"k{number}", "amount": 1, "x": text}) for number in range(40)]
    world.publish("large", [replace(event(at), json_payload=payload) for at, payload in enumerate(payloads)])
    assert world.cycle()["large"].outcome == Outcome.DONE
    for rows in (world.standardized("large"), world.curated("large")):
        assert [len(row["x"]) for row in rows] == [900_000] * 40
    most = world.tasks.task_memory // raw.PARTS_OF_MEMORY
    assert {what for what, found in sizes.items() if max(found) <= most and sum(found) > 40 * len(text)} == {
        *("read", "flattened", "curated")
    }


def test_a_correction_of_a_doubled_row_is_refused(world: World) -> None:
    world.publish("orders", [event(1)])
    standardize(world)
    name = world.databases.standardized_table("orders")
    world.embedded.platform.catalog.append(name, world.rows(name))
    world.publish("orders", [event(2, key="k1")])
    result = world.cycle()["orders"]
    assert isinstance(result.failure, UnbalancedBatchError)
    assert str(result.reason).startswith("Standardized has several rows of one key")
    assert str(result.reason).endswith("rebuild it with: leanops rebuild orders")
    assert (list(result.layers), len(world.rows(name))) == ([], 2)


def test_a_correction_of_a_row_that_another_tool_doubled_in_curated_is_refused(world: World) -> None:
    world.publish("orders", [event(1)])
    world.cycle()
    name = world.databases.curated_table("orders")
    world.embedded.platform.catalog.append(name, world.rows(name))
    world.publish("orders", [event(2, key="k1")])
    result = world.cycle()["orders"]
    assert isinstance(result.failure, UnbalancedBatchError)
    assert str(result.reason).startswith("Curated has several rows of one key")
    assert str(result.reason).endswith("rebuild it with: leanops rebuild orders --curated")
    assert (list(result.layers), len(world.rows(name))) == (["standardized"], 2)


@pytest.mark.parametrize("layer", ["standardized", "curated"])
def test_a_key_column_that_another_tool_renamed_doubles_no_key(world: World, layer: str) -> None:
    world.publish("orders", [event(1)])
    world.cycle()
    databases = world.databases
    name, key = {
        "standardized": (databases.standardized_table("orders"), "record_key"),
        "curated": (databases.curated_table("orders"), "idempotency_key"),
    }[layer]
    with world.embedded.catalog.load_table(name).update_schema(allow_incompatible_changes=True) as change:
        change.rename_column(key, "their_key")
    world.publish("orders", [event(2, key="k1")])
    result = world.cycle()["orders"]
    assert isinstance(result.failure, PermanentError)
    assert f"has no column {key}" in str(result.reason)
    assert len(world.rows(name)) == 1


def test_a_table_that_others_write_to_all_the_time_is_tried_again_and_never_parked(world: World) -> None:
    class Overtaken(Wrapped):
        def standardize(self, works: Any) -> Any:
            written = self.engine.standardize(works)
            world.embedded.platform.catalog.mark(works[0].target.table, {"tool": "another"})
            return written

    world.publish("orders", [event(1)])
    for _ in range(6):
        result = world.cycle(world.platform(engine=lambda: Overtaken(world.engine())))["orders"]
        assert result.outcome == Outcome.FAILED
        assert list(world.platform().state.rows(ATTEMPTS)) == []
    assert world.cycle()["orders"].outcome == Outcome.DONE
