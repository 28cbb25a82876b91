"""The catalog adapter: tables made once, columns with any path as their comment, appends that lose nothing."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.domain.errors import CommitRefusedError
from leanops.domain.payload.columns import register
from leanops.domain.payload.paths import path_of
from leanops.domain.table.definitions import CURATED, ERRORS, OPS, RAW, STANDARDIZED, TableDefinition
from leanops.ports.tables import Catalog
from tests.oracle import vocabulary as words
from tests.support.builders import NOW, Stalling, platform_in

HOSTILE = [
    *[path_of((key,)) for key in words.ODD_KEYS],
    path_of(("a`b", 'c"d', "e'f\nnew", "\u202edrop table", "\x00", "\\", "*/--", "${x}", "{{y}}")),
]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with platform_in(tmp_path) as platform:
        yield platform.catalog


def native(catalog: Catalog, name: str) -> Any:
    """The table as PyIceberg has it."""
    return catalog.native.load_table(name)


def test_a_table_that_does_not_exist_is_none_and_has_no_rows(catalog: Catalog) -> None:
    assert catalog.load("db.nothing") is None
    assert catalog.select("db.nothing", ["a"]) == []


DEFINITIONS = {"raw": RAW, "standardized": STANDARDIZED, "curated": CURATED, "errors": ERRORS, **OPS}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_table_is_created_with_its_columns_partitions_and_statistics(catalog: Catalog, name: str) -> None:
    definition = DEFINITIONS[name]
    view = catalog.create(f"db.{name}", definition)
    table = native(catalog, f"db.{name}")
    assert list(view.columns) == list(definition.columns)
    assert (view.head, view.last_sequence_number, view.snapshots, view.paths) == (None, 0, {}, {})
    assert table.format_version == 2
    names = {field.field_id: field.name for field in table.schema().fields}
    partitions = tuple((names[field.source_id], str(field.transform)) for field in table.spec().fields)
    assert partitions == definition.partition_by
    assert table.properties["write.metadata.metrics.default"] == "none"
    measured = {name for name in definition.columns if f"write.metadata.metrics.column.{name}" in table.properties}
    assert measured == set(definition.measured) & set(definition.columns)


def test_the_tables_written_by_merge_refuse_conflicting_writers(catalog: Catalog) -> None:
    catalog.create("db.t", STANDARDIZED)
    properties = native(catalog, "db.t").properties
    assert properties["write.merge.mode"] == "merge-on-read"
    assert properties["write.merge.isolation-level"] == "serializable"
    assert properties["write.merge.distribution-mode"] == "hash"


def test_creating_a_table_twice_leaves_the_first_as_it_is(catalog: Catalog) -> None:
    first = catalog.create("db.t", RAW)
    catalog.append("db.t", [{"message_id": "m1", "publish_time": NOW}])
    again = catalog.create("db.t", STANDARDIZED)
    assert again.uuid == first.uuid
    assert again.columns == first.columns
    assert again.head is not None


def test_many_workers_may_create_the_same_table_at_once(tmp_path: Path) -> None:
    workers = 4
    barrier = threading.Barrier(workers)

    def create(catalog: Catalog) -> str:
        barrier.wait()
        return catalog.create("db.t", RAW).uuid

    with ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
        catalogs = [stack.enter_context(platform_in(tmp_path)).catalog for _ in range(workers)]
        assert len(set(pool.map(create, catalogs))) == 1


def test_columns_are_added_in_one_commit_and_known_ones_stay(catalog: Catalog) -> None:
    catalog.create("db.t", STANDARDIZED)
    before = len(native(catalog, "db.t").metadata.schemas)
    view = catalog.alter("db.t", {"a": ("string", "$.a"), "b": ("string", "$.b")})
    assert view.paths == {"$.a": "a", "$.b": "b"}
    assert len(native(catalog, "db.t").metadata.schemas) == before + 1
    place = native(catalog, "db.t").metadata_location
    assert catalog.alter("db.t", {"a": ("string", "$.other"), "b": ("string", "$.b")}) == view
    assert catalog.alter("db.t", {}) == view
    assert native(catalog, "db.t").metadata_location == place
    assert list(catalog.alter("db.t", {"b": ("string", "$.b"), "c": ("long", "$.c")}).columns)[-3:] == [
        "a",
        "b",
        "c",
    ]


def test_a_column_of_any_type_can_be_added_and_written(catalog: Catalog) -> None:
    types = {
        "i": "int",
        "l": "long",
        "d": "double",
        "b": "boolean",
        "day": "date",
        "t": "timestamptz",
        "m": "decimal(18,2)",
    }
    catalog.create("db.t", RAW)
    view = catalog.alter("db.t", {name: (kind, f"$.{name}") for name, kind in types.items()})
    assert {name: view.columns[name].replace(" ", "") for name in types} == types
    row = {"i": 1, "l": 2**40, "d": 0.5, "b": True, "day": NOW.date(), "t": NOW, "m": Decimal("1.10")}
    catalog.append("db.t", [row])
    assert catalog.select("db.t", list(row)) == [row]


def test_any_path_is_a_comment_that_comes_back_to_the_character(catalog: Catalog) -> None:
    names = register({}, HOSTILE)
    catalog.create("db.t", STANDARDIZED)
    view = catalog.alter("db.t", {name: ("string", path) for path, name in names.items()})
    assert view.paths == names
    assert catalog.load("db.t") == view


def test_a_table_may_be_created_with_paths_and_columns_without_one_are_not_listed(catalog: Catalog) -> None:
    columns = {"a": "string", "b": "string", "c": "string"}
    view = catalog.create("db.t", TableDefinition(columns, (), comments={"a": "$.x", "b": ""}))
    assert view.paths == {"$.x": "a"}


def test_rows_come_back_as_they_were_appended(catalog: Catalog) -> None:
    catalog.create("db.errors", ERRORS)
    failure = {
        "rule": "cast_failed",
        "column": "c",
        "path": '$["a`b"]',
        "message": "is not a valid INT",
        "value": "é\n\x00",
    }
    row = dict.fromkeys(ERRORS.columns) | {
        "error_id": "e1",
        "topic_name": "orders",
        "publish_time": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "ingestion_ts": 2**53,
        "failures": [failure, dict.fromkeys(failure)],
        "detected_ts": NOW,
    }
    catalog.append("db.errors", [row])
    assert catalog.select("db.errors", list(row)) == [row]
    assert catalog.select("db.errors", ["error_id"], {"topic_name": "users"}) == []
    assert catalog.select("db.errors", ["error_id"], {"topic_name": "orders"}) == [{"error_id": "e1"}]


def test_an_append_is_one_snapshot_that_carries_its_properties_and_none_if_empty(catalog: Catalog) -> None:
    catalog.create("db.t", RAW)
    catalog.append("db.t", [])
    catalog.append("db.t", [{"message_id": "m1", "publish_time": NOW}] * 3, {"leanops.batch-id": "b1", "x": ""})
    view = catalog.load("db.t")
    assert view is not None
    (snapshot,) = view.ancestors()
    assert (snapshot.operation, snapshot.added_records, snapshot.parent_id) == ("append", 3, None)
    assert (snapshot.summary["leanops.batch-id"], snapshot.summary["x"]) == ("b1", "")
    assert (view.head, view.last_sequence_number) == (snapshot.snapshot_id, 1)


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    writers, appends = 3, 4
    barrier = threading.Barrier(writers)

    def write(number: int, catalog: Catalog) -> None:
        barrier.wait()
        for turn in range(appends):
            catalog.append("db.t", [{"message_id": f"{number}-{turn}-{row}", "publish_time": NOW} for row in range(2)])
        catalog.alter("db.t", {f"c{number}": ("string", f"$.c{number}"), "both": ("string", "$.both")})

    with ExitStack() as stack, ThreadPoolExecutor(writers) as pool:
        catalogs = [stack.enter_context(platform_in(tmp_path)).catalog for _ in range(writers)]
        catalogs[0].create("db.t", RAW)
        list(pool.map(write, range(writers), catalogs))
        rows = [row["message_id"] for row in catalogs[0].select("db.t", ["message_id"])]
        view = catalogs[0].load("db.t")
    assert sorted(rows) == sorted(
        f"{number}-{turn}-{row}" for number in range(writers) for turn in range(appends) for row in range(2)
    )
    assert view is not None
    assert [snapshot.added_records for snapshot in view.ancestors()] == [2] * writers * appends
    assert set(view.paths) == {"$.both", *(f"$.c{number}" for number in range(writers))}


KEYED = TableDefinition({"k": "string", "v": "int"}, partition_by=())


def overtaken(catalog: Catalog, meanwhile: Callable[[], object]) -> IcebergCatalog:
    """The catalog as somebody sees it who stalls once with `db.t` loaded."""
    stalling: Any = Stalling(catalog.native, meanwhile, at="db.t")
    return IcebergCatalog(stalling)


def test_rows_are_replaced_only_at_the_head_named_though_it_moves_before_the_commit(catalog: Catalog) -> None:
    catalog.create("db.t", KEYED)
    catalog.append("db.t", [{"k": "a", "v": 1}])
    seen = catalog.load("db.t")
    assert seen is not None
    late = overtaken(catalog, lambda: catalog.append("db.t", [{"k": "a", "v": 2}]))
    assert not late.replace("db.t", {"k": "a"}, [{"k": "a", "v": 3}], only_at=seen.head)
    assert sorted(row["v"] for row in catalog.select("db.t", ["v"])) == [1, 2]


@pytest.mark.parametrize("key", ["a", "b"], ids=["some match", "none match yet"])
def test_a_delete_removes_what_matches_when_it_commits(catalog: Catalog, key: str) -> None:
    catalog.create("db.t", KEYED)
    catalog.append("db.t", [{"k": "a", "v": 1}, {"k": "c", "v": 1}])
    rows = [{"k": "a", "v": 2}, {"k": "b", "v": 2}]
    overtaken(catalog, lambda: catalog.append("db.t", rows)).delete("db.t", {"k": key})
    left = {row["k"] for row in catalog.select("db.t", ["k"])}
    assert left == {"a", "b", "c"} - {key}


def test_an_append_whose_answer_is_lost_is_not_made_twice(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.create("db.t", KEYED)
    native: Any = catalog.native
    commit = native.commit_table

    def lose_the_answer(*arguments: Any) -> None:
        commit(*arguments)
        monkeypatch.setattr(native, "commit_table", commit)
        raise CommitFailedException("the first try was repeated, and the second found the first")

    monkeypatch.setattr(native, "commit_table", lose_the_answer)
    catalog.append("db.t", [{"k": "a", "v": 1}])
    assert catalog.select("db.t", ["v"]) == [{"v": 1}]


def test_a_table_takes_the_place_of_another_only_where_its_head_is_the_one_named(catalog: Catalog) -> None:
    old = TableDefinition({"k": "string", "v": "int"}, partition_by=(("k", "identity"),))
    new = TableDefinition({"k": "string", "v": "string", "w": "long"}, old.partition_by, comments={"v": "$.v"})
    for name, definition, rows in (
        ("db.live", old, [{"k": "a", "v": 1}]),
        ("db.next", new, [{"k": "b", "v": "x", "w": 2}]),
    ):
        catalog.create(name, definition)
        catalog.append(name, rows)
    live, built = catalog.load("db.live"), catalog.load("db.next")
    assert live is not None
    assert built is not None
    assert built.head is not None
    catalog.append("db.live", [{"k": "late", "v": 3}])
    with pytest.raises(CommitRefusedError, match=r"db\.live was changed by another writer"):
        catalog.take_place("db.live", "db.next", built.head, {"leanops.batch-id": "b"}, only_at=live.head, after=7)
    assert {row["k"] for row in catalog.select("db.live", ["k"])} == {"a", "late"}
    now = catalog.load("db.live")
    assert now is not None
    catalog.take_place("db.live", "db.next", built.head, {"leanops.batch-id": "b"}, only_at=now.head, after=7)
    catalog.forget("db.next")
    assert catalog.load("db.next") is None
    after = catalog.load("db.live")
    assert after is not None
    assert (after.uuid, after.last_sequence_number, after.columns["v"], after.paths) == (
        live.uuid,
        8,
        "string",
        {"$.v": "v"},
    )
    assert [found.summary["leanops.batch-id"] for found in after.ancestors()] == ["b"]
    assert catalog.select("db.live", ["k", "v", "w"]) == [{"k": "b", "v": "x", "w": 2}]
    catalog.append("db.live", [{"k": "c", "v": "y", "w": 3}])
    assert catalog.count("db.live") == 2
    assert now.head is not None
    head = catalog.load("db.live")
    assert head is not None
    catalog.take_place("db.live", "db.live", now.head, {}, only_at=head.head, after=0)
    assert sorted(row["v"] for row in catalog.select("db.live", ["v"])) == [1, 3]


def test_schemas_that_no_snapshot_names_are_removed(catalog: Catalog) -> None:
    catalog.create("a.b", RAW)
    catalog.append("a.b", [{"message_id": "m1"}])
    for number in range(5):
        catalog.alter("a.b", {f"c{number}": ("string", f"$.c{number}")})
    table = native(catalog, "a.b")
    assert len(table.metadata.schemas) == 3
    assert [field.name for field in table.schema().fields][-5:] == [f"c{number}" for number in range(5)]
    before = table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).to_arrow()
    assert (before.num_rows, "c0" in before.column_names) == (1, False)
