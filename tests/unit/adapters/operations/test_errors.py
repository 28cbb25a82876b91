"""Error rows that change: which do, which do not, and what happens beside other writers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.errors import CommitRefusedError
from leanops.domain.failures import HIDDEN, ForgetKeys, Hide
from leanops.domain.table.definitions import ERRORS
from leanops.ports.engine import TableAt
from tests.unit.adapters.batches.tables import catalog_in, summary_of

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAME, SHADOW = "db.errors", "db.shadow"
EMAIL = {"rule": "pattern", "column": "email", "path": "$.email", "message": "no", "value": "a@b.c"}
AGE = {"rule": "max", "column": "age", "path": "$.age", "message": "no", "value": "200"}
NO_VALUE = {**EMAIL, "value": None}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as catalog:
        for name in (NAME, SHADOW):
            IcebergCatalog(catalog).create(name, ERRORS)
        yield catalog


def engine_on(catalog: Catalog, runner: InProcess | None = None) -> TaskEngine:
    return TaskEngine(catalog, runner or InProcess(), TaskRules(task_rows=3, task_memory=4_000))


def row(name: str, failures: Sequence[Mapping[str, Any]] = (EMAIL,), **other: Any) -> dict[str, Any]:
    known = {"error_id": name, "topic_name": "orders", "layer": "curated", "message_id": name, "record_key": "key:k"}
    rest = {"failures": list(failures), "batch_id": "b1", "schema_version": 1, "detected_ts": DAY}
    return {**known, **rest, "status": "OPEN", "status_ts": DAY, "attempts": 1, **other}


def append(catalog: Catalog, name: str, *batches: Sequence[Mapping[str, Any]]) -> TableAt:
    for rows in batches:
        IcebergCatalog(catalog).append(name, rows)
    return TableAt(name, catalog.load_table(name).metadata.current_snapshot_id)


def rows_of(catalog: Catalog, *columns: str) -> dict[tuple[str, str], tuple[Any, ...]]:
    """By topic and id, each row once."""
    found = IcebergCatalog(catalog).select(NAME, ["topic_name", "error_id", *columns])
    rows = {(one["topic_name"], one["error_id"]): tuple(one[name] for name in columns) for one in found}
    assert len(rows) == len(found)
    return rows


def test_values_of_hidden_columns_and_paths_become_stars_and_nothing_else_changes(catalog: Catalog) -> None:
    first = [row("a"), row("b", [AGE, EMAIL]), row("c", [AGE])]
    append(catalog, NAME, first, [row("d", [NO_VALUE]), row("e", []), row("f", [EMAIL], topic_name="other")])
    engine = engine_on(catalog)
    engine.change_errors(NAME, "orders", Hide(("email",), ()))
    hidden = {**EMAIL, "value": HIDDEN}
    expected = {
        ("orders", "a"): ([hidden],),
        ("orders", "b"): ([AGE, hidden],),
        ("orders", "c"): ([AGE],),
        ("orders", "d"): ([NO_VALUE],),
        ("orders", "e"): ([],),
        ("other", "f"): ([EMAIL],),
    }
    assert rows_of(catalog, "failures") == expected
    head = catalog.load_table(NAME).metadata.current_snapshot_id
    engine.change_errors(NAME, "orders", Hide(("email",), ()))
    assert catalog.load_table(NAME).metadata.current_snapshot_id == head
    engine.change_errors(NAME, "orders", Hide((), ("$.age",)))
    assert rows_of(catalog, "failures")[("orders", "b")] == ([{**AGE, "value": HIDDEN}, hidden],)


def test_keys_of_earlier_versions_are_forgotten_once(catalog: Catalog) -> None:
    rows = [row("a"), row("b", schema_version=2), row("c", record_key=None), row("d", record_key="message:m")]
    append(catalog, NAME, rows, [row("e", topic_name="other")])
    engine = engine_on(catalog)
    for _ in range(2):
        engine.change_errors(NAME, "orders", ForgetKeys(2))
    keys = {name: key for (_, name), (key,) in rows_of(catalog, "record_key").items()}
    assert keys == {"a": None, "b": "key:k", "c": None, "d": "message:m", "e": "key:k"}
    assert len(catalog.load_table(NAME).metadata.snapshots) == 3


def test_a_row_that_fails_again_keeps_what_people_said_of_it(catalog: Catalog) -> None:
    said = row("again", [AGE], status="DISCARDED", attempts=2)
    append(catalog, NAME, [said, row("same", batch_id="b2")], [row("other", topic_name="other")])
    new = [row("again", batch_id="b2", schema_version=2, record_key=None), row("same", [AGE], batch_id="b2")]
    source = append(
        catalog, SHADOW, new, [row(f"new{at}", batch_id="b2") for at in range(7)], [row("new1", batch_id="b3")]
    )
    for _ in range(2):
        engine_on(catalog).put_errors(source, NAME, "orders")
    found = rows_of(catalog, "status", "attempts", "batch_id", "schema_version", "record_key", "failures")
    assert found.pop(("orders", "again")) == ("DISCARDED", 3, "b2", 2, None, [EMAIL])
    assert found.pop(("orders", "same")) == ("OPEN", 1, "b2", 1, "key:k", [EMAIL])
    assert found.pop(("other", "other"))[1] == 1
    assert sorted(name for _, name in found) == [f"new{at}" for at in range(7)]
    assert {one[1] for one in found.values()} == {1}


def held(catalog: Catalog) -> str:
    """All that the live data files of the table hold, dead rows too."""
    files = {task.file.file_path.removeprefix("file://") for task in catalog.load_table(NAME).scan().plan_files()}
    return "".join(str(pq.read_table(path).to_pylist()) for path in sorted(files))


def summary_now(catalog: Catalog) -> Mapping[str, str]:
    table = catalog.load_table(NAME)
    head = table.metadata.current_snapshot_id
    assert head is not None
    return summary_of(table, head)


def test_no_live_file_holds_a_hidden_value_or_a_forgotten_key_any_more(catalog: Catalog) -> None:
    append(catalog, NAME, [row("a"), row("b", [AGE], record_key=None), row("c")], [row("d", [AGE], record_key=None)])
    append(catalog, NAME, [row("dead"), row("f", topic_name="other")])
    source = append(catalog, SHADOW, [row("dead", [AGE], batch_id="b2", record_key=None)])
    engine = engine_on(catalog)
    engine.put_errors(source, NAME, "orders")
    before = {task.file.file_path for task in catalog.load_table(NAME).scan().plan_files()}
    engine.change_errors(NAME, "orders", Hide(("email",), ()))
    assert held(catalog).count(EMAIL["value"]) == 1, "that of the other topic"
    table = catalog.load_table(NAME)
    kept = before & {task.file.file_path for task in table.scan().plan_files()}
    assert len(kept) == 3, "files that hold no such value stay"
    found = summary_now(catalog)
    assert found["operation"] == "overwrite"
    assert (found["added-records"], found["deleted-records"], found["total-records"]) == ("3", "4", "6")
    assert (found["total-position-deletes"], found["total-delete-files"]) == ("0", "0")
    assert found["removed-position-deletes"] == "1"
    assert len(rows_of(catalog, "failures")) == 6
    engine.change_errors(NAME, "orders", ForgetKeys(2))
    assert held(catalog).count("key:k") == 1
    assert {key for (topic, _), (key,) in rows_of(catalog, "record_key").items() if topic == "orders"} == {None}


def test_rows_of_other_topics_in_the_same_file_stay_and_so_do_deletes_of_other_files(tmp_path: Path) -> None:
    with catalog_in(tmp_path / "mixed") as catalog:
        for name in (NAME, SHADOW):
            IcebergCatalog(catalog).create(name, replace(ERRORS, partition_by=()))
        rows = [[row(f"a{at}", [EMAIL if at == 3 else AGE]), row(f"b{at}", topic_name="other")] for at in range(22)]
        append(catalog, NAME, *rows)
        source = append(catalog, SHADOW, [row(f"a{at}", [AGE], batch_id="b2") for at in range(22)])
        engine = TaskEngine(catalog, InProcess())
        engine.put_errors(source, NAME, "orders")
        assert summary_now(catalog)["added-delete-files"] == "1", "which names more files than one"
        before = rows_of(catalog, "failures", "attempts")
        engine.change_errors(NAME, "orders", Hide(("email",), ()))
        assert rows_of(catalog, "failures", "attempts") == before
        assert held(catalog).count(EMAIL["value"]) == 22, "those of the other topic"
        assert summary_now(catalog)["total-delete-files"] == "1"
        assert summary_now(catalog)["deleted-data-files"] == "1"


def test_an_empty_table_of_error_rows_brings_nothing(catalog: Catalog) -> None:
    append(catalog, NAME, [row("a")])
    before = catalog.load_table(NAME).metadata.current_snapshot_id
    IcebergCatalog(catalog).mark(SHADOW, {})
    source = append(catalog, SHADOW)
    assert source.snapshot is not None
    engine_on(catalog).put_errors(source, NAME, "orders")
    assert catalog.load_table(NAME).metadata.current_snapshot_id == before


class Meanwhile(InProcess):
    """Lets somebody write between reading and committing, so many times."""

    def __init__(self, times: int, work: Callable[[], object]) -> None:
        self.times, self.work = times, work

    def run(self, function: Any, items: Sequence[Any]) -> Any:
        done = super().run(function, items)
        if self.times:
            self.times -= 1
            self.work()
        return done


def test_rows_that_come_meanwhile_are_looked_at_too(catalog: Catalog) -> None:
    append(catalog, NAME, [row("a")])
    runner = Meanwhile(1, lambda: append(catalog, NAME, [row("late")]))
    engine_on(catalog, runner).change_errors(NAME, "orders", Hide(("email",), ()))
    shown = {failures[0]["value"] for (failures,) in rows_of(catalog, "failures").values()}
    assert shown == {HIDDEN}
    # A row of another topic is in nobody's way.
    runner = Meanwhile(1, lambda: append(catalog, NAME, [row("b", topic_name="other")]))
    before = len(catalog.load_table(NAME).metadata.snapshots)
    engine_on(catalog, runner).change_errors(NAME, "orders", ForgetKeys(2))
    assert len(catalog.load_table(NAME).metadata.snapshots) == before + 2


def test_whoever_is_always_overtaken_gives_up_and_leaves_no_file(catalog: Catalog) -> None:
    append(catalog, NAME, [row("a")])
    names = iter("bcdefghijk")
    runner = Meanwhile(99, lambda: append(catalog, NAME, [row(next(names))]))
    with pytest.raises(CommitRefusedError, match="the error rows of orders were changed by other writers"):
        engine_on(catalog, runner).change_errors(NAME, "orders", Hide(("email",), ()))
    assert_no_file_is_left(catalog)


def test_a_task_that_fails_leaves_no_file_of_the_others(catalog: Catalog) -> None:
    append(catalog, NAME, [row("a"), row("b"), row("c")], [row("d"), row("e"), row("f")])

    class Failing(InProcess):
        def run(self, function: Any, items: Sequence[Any]) -> Any:
            return [*super().run(function, items[:1]), CommitRefusedError("the second task failed")]

    with pytest.raises(CommitRefusedError, match="the second task failed"):
        engine_on(catalog, Failing()).change_errors(NAME, "orders", Hide(("email",), ()))
    assert {failures[0]["value"] for (failures,) in rows_of(catalog, "failures").values()} == {"a@b.c"}
    assert_no_file_is_left(catalog)


def assert_no_file_is_left(catalog: Catalog) -> None:
    """Every file of the table is one that it has."""
    table = catalog.load_table(NAME)
    known = {Path(task.file.file_path.removeprefix("file://")).name for task in table.scan().plan_files()}
    there = Path(table.location().removeprefix("file://"), "data").rglob("*.parquet")
    assert {path.name for path in there} == known
