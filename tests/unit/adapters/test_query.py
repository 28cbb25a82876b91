"""SQL over the tables: read-only, and only what a statement names is read."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table

from leanops.adapters.iceberg import query as module
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.query import DuckQuery, Scan
from leanops.domain.errors import UsageError
from leanops.domain.table.definitions import ERRORS, LONG, RAW, TIMESTAMP, TableDefinition
from tests.support.builders import NOW, event, raw_row

ORDERS, ERROR_TABLE = "iceberg_raw_db.orders_staging", "iceberg_curated_db.errors"
Read = list[tuple[str, tuple[str, ...], BooleanExpression]]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    found = SqlCatalog("leanops", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    tables = IcebergCatalog(found)
    tables.create(ORDERS, RAW)
    for day in (1, 2, 3):
        publish_time = NOW.replace(day=day)
        rows = [event(f"m{day}{n}", f'{{"n":{n}}}', publish_time=publish_time, ingestion_ts=n) for n in range(4)]
        tables.append(ORDERS, [raw_row(row) for row in rows])
    tables.create(ERROR_TABLE, replace(ERRORS, columns={**ERRORS.columns, "amount": "decimal(18,2)"}))
    failure = {"rule": "rule_min", "column": "amount", "path": "$.amount", "message": "too small", "value": "-1"}
    tables.append(ERROR_TABLE, [{"error_id": "e1", "message_id": "m10", "failures": [failure], "detected_ts": NOW}])
    yield found
    found.engine.dispose()


@pytest.fixture
def query(catalog: SqlCatalog, tmp_path: Path) -> DuckQuery:
    return DuckQuery(catalog, tmp_path)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """What is read of which table, as statements are asked."""
    seen: Read = []

    def watched(table: Table, columns: Sequence[str], row_filter: BooleanExpression, bytes_at_once: int) -> Scan:
        found = Scan(table, columns, row_filter, bytes_at_once)
        seen.append((".".join(table.name()), found.columns, row_filter))
        return found

    monkeypatch.setattr(module, "Scan", watched)
    return seen


def ask(query: DuckQuery, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return list(query.ask(statement, parameters).rows)


def test_rows_come_with_their_types(query: DuckQuery) -> None:
    statement = f"select message_id, publish_time, ingestion_ts from {ORDERS} where ingestion_ts = 3 order by 1 limit 1"
    answer = query.ask(statement)
    assert answer.columns == ("message_id", "publish_time", "ingestion_ts")
    assert list(answer.rows) == [("m13", datetime(2026, 11, 1, 8, tzinfo=UTC), 3)]


def test_only_the_named_columns_are_read(query: DuckQuery, read: Read) -> None:
    ask(query, f"select max(message_id) from {ORDERS} where ingestion_ts > 0 or topic_name = 'x'")
    assert [(table, sorted(columns)) for table, columns, _ in read] == [
        (ORDERS, ["ingestion_ts", "message_id", "topic_name"])
    ]


def test_a_count_reads_one_small_column(query: DuckQuery, read: Read) -> None:
    assert ask(query, f"select count(*) from {ORDERS}") == [(12,)]
    assert [columns for _, columns, _ in read] == [("publish_time",)]


def test_a_column_the_plan_can_do_without_may_still_be_named(query: DuckQuery) -> None:
    assert ask(query, f"select count(*) from (select * from {ORDERS} where json_payload is null or true)") == [(12,)]


def test_a_table_named_twice_is_read_whole_both_times(query: DuckQuery) -> None:
    statement = f"select count(*) from {ORDERS} a join {ORDERS} b using (message_id) where a.ingestion_ts = 1"
    assert ask(query, statement) == [(3,)]


@pytest.mark.parametrize(
    ("where", "is_pushed"),
    [
        ("message_id = 'm11'", True),
        ("o.ingestion_ts >= 2 and length(json_payload) > 3", True),
        ("publish_time < '2026-11-02'", True),
        ("ingestion_ts in (1, 2)", True),
        ("message_id = 'm11' or ingestion_ts = 1", False),
        ("ingestion_ts + 0 = 1", False),
        ("ingestion_ts < 99999999999999999999", False),
        ("publish_time < '2026-11-02 00:00:00.0000001'", False),
        ("not message_id = 'm11'", False),
    ],
)
def test_a_pushed_filter_changes_nothing_but_what_is_read(
    query: DuckQuery, read: Read, where: str, is_pushed: bool
) -> None:
    pushed = ask(query, f"select message_id from {ORDERS} o where {where} order by 1")
    assert (read[0][2] != AlwaysTrue()) is is_pushed
    apart = ask(query, f"select message_id from (select * from {ORDERS} limit 100) o where {where} order by 1")
    assert pushed == apart
    assert len(pushed) > 0


def test_a_parameter_is_a_value_and_is_pushed_too(query: DuckQuery, read: Read) -> None:
    assert ask(query, f"select ingestion_ts from {ORDERS} where message_id = ?", "m21") == [(1,)]
    assert ask(query, f"select 1 from {ORDERS} where message_id = ?", "x' or 1=1 --") == []
    assert read[0][2] != AlwaysTrue()


def test_a_filter_on_one_mention_of_a_table_does_not_touch_another(query: DuckQuery) -> None:
    statement = f"select (select count(*) from {ORDERS} where message_id = 'm11'), (select count(*) from {ORDERS})"
    assert ask(query, statement) == [(1, 12)]


def test_nested_values_can_be_asked(query: DuckQuery) -> None:
    assert ask(query, f"select failures[1].rule from {ERROR_TABLE}") == [("rule_min",)]


def test_common_table_expressions_are_no_tables(query: DuckQuery) -> None:
    assert ask(query, f"with o as (select * from {ORDERS}), p as (from o) select count(*) from p") == [(12,)]


def test_a_word_of_sql_can_be_a_table(query: DuckQuery, catalog: SqlCatalog) -> None:
    IcebergCatalog(catalog).create("iceberg_raw_db.order", RAW)
    assert ask(query, 'select count(*) from iceberg_raw_db."order"') == [(0,)]


def test_files_are_read_a_few_at_a_time(catalog: SqlCatalog, tmp_path: Path) -> None:
    assert ask(DuckQuery(catalog, tmp_path, bytes_at_once=1), f"select count(distinct message_id) from {ORDERS}") == [
        (12,)
    ]


def test_rows_can_be_left_unread(query: DuckQuery) -> None:
    answer = query.ask("select * from range(10000000)")
    assert next(answer.rows) == (0,)


def test_columns_of_one_name_get_numbers(query: DuckQuery) -> None:
    assert list(query.ask("select 1 as a, 2 as a, 3 as a_1").as_dicts()) == [{"a": 1, "a_1": 2, "a_1_1": 3}]


def test_the_tables_can_be_listed(query: DuckQuery) -> None:
    assert ask(query, "show tables") == [(ERROR_TABLE,), (ORDERS,)]


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("select * from iceberg_raw_db.order_staging", "did you mean iceberg_raw_db.orders_staging?"),
        ("select * from orders_staging", "did you mean iceberg_raw_db.orders_staging?"),
        ("select * from x.y.z.errors", "there is no table"),
        ("select * from elsewhere", 'leanops sql "show tables"'),
        (f"select mesage_id from {ORDERS}", 'Candidate bindings: "message_id"'),
        ("selec 1", "cannot be read"),
        ("", "only one SELECT"),
        ("select 1; select 2", "only one SELECT"),
        (f"drop table {ORDERS}", "read-only"),
        (f"insert into {ORDERS} values (1)", "read-only"),
        ("attach 'x.db'", "read-only"),
        ("set enable_external_access = true", "read-only"),
        ("copy (select 1) to 'x.csv'", "read-only"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration"),
        ("select * from '/etc/passwd'", "there is no table"),
        ("select 'a'::int", "Could not convert"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_line(query: DuckQuery, statement: str, complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        ask(query, statement)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_time_that_no_python_calendar_has_is_named_by_its_column(query: DuckQuery, catalog: SqlCatalog) -> None:
    IcebergCatalog(catalog).create("db.odd", TableDefinition({"n": LONG, "at": TIMESTAMP}, ()))
    beyond = pa.array([1_764_547_200_000 * 1_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    catalog.load_table("db.odd").append(pa.table({"n": [1], "at": beyond}))
    said = r"^column 'at' holds a time outside the years 0001 to 9999.*: epoch_us\(\"at\"\)$"
    with pytest.raises(UsageError, match=said):
        list(query.ask("select * from db.odd").rows)
    assert list(query.ask('select n, epoch_us("at") from db.odd').rows) == [(1, 1_764_547_200_000_000_000)]
