"""Status, balance and errors as the tables tell them; no Spark needed to know."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.table import Table

from leanops.domain.errors import UsageError
from leanops.domain.table.balance import Totals
from leanops.domain.table.definitions import CURATED, ERRORS, STANDARDIZED
from leanops.domain.table.history import Watermark
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.attempts import record_failure
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic
from leanops.views.balance import at_a_glance, running_totals, whole_topic
from leanops.views.errors import Wanted, find_error, list_errors, payload_of
from leanops.views.sources import Sources
from leanops.views.status import TopicStatus, status
from tests.support.builders import NOW, NOW_MS, event, land, schema_text, snapshot, table, watermark

STANDARD, CURATE = "iceberg_standardized_db.orders", "iceberg_curated_db.orders"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Embedded]:
    runtime = Embedded(create_home(tmp_path / "home"))
    add_topic(runtime.platform, "orders")
    deploy_schema(runtime.platform, "orders", schema_text(), "schema.json")
    yield runtime
    runtime.close()


@pytest.fixture
def sources(runtime: Embedded) -> Sources:
    return runtime.sources()


def commit(platform: Platform, layer: Any, name: str, rows: list[dict[str, Any]], mark: Watermark) -> None:
    """What a committed batch leaves: its rows, and the watermark in the same snapshot."""
    platform.catalog.create(name, layer)
    platform.catalog.append(name, rows, mark.summary())


def standardize(platform: Platform, keys: list[str], *, totals: Totals) -> None:
    raw = platform.catalog.load("iceberg_raw_db.orders_staging")
    assert raw is not None
    assert raw.head is not None
    rows = [{"record_key": f"key:{key}", "idempotency_key": key, "message_id": f"m{key}"} for key in keys]
    mark = watermark(raw.head, batch_id="2611150800000000-x", source_uuid=raw.uuid, totals=totals)
    commit(platform, STANDARDIZED, STANDARD, rows, mark)


def curate(platform: Platform, messages: dict[str, str], batch_seq: int = 1) -> None:
    rows = [{"idempotency_key": key, "message_id": message} for key, message in messages.items()]
    commit(platform, CURATED, CURATE, rows, watermark(batch_seq, batch_id="2611150801000000-y"))


def quarantine(platform: Platform, message: str, error_id: str = "ab" * 16, **changes: Any) -> None:
    failure = {"rule": "cde_missing", "column": "c", "path": "$.c", "message": "critical", "value": None}
    row = {
        "error_id": error_id,
        "topic_name": "orders",
        "layer": "curated",
        "message_id": message,
        "failures": [failure],
        "source": f"iceberg_raw_db.orders_staging/publish_time_day={NOW:%Y-%m-%d}",
        "detected_ts": NOW,
        "status": "OPEN",
        **changes,
    }
    name = "iceberg_curated_db.errors" if row["layer"] == "curated" else "iceberg_standardized_db.parse_errors"
    platform.catalog.create(name, ERRORS)
    platform.catalog.append(name, [row])


def published(platform: Platform, *messages: str) -> None:
    land(platform, "orders", [event(message, f'{{"of": "{message}"}}') for message in messages])


def only(sources: Sources) -> TopicStatus:
    (found,) = status(sources)
    return found


def test_a_topic_that_was_never_read_waits_with_all_its_rows(runtime: Embedded, sources: Sources) -> None:
    published(runtime.platform, "m1", "m2")
    found = only(sources)
    assert (found.raw_rows, found.lag_rows, found.standardized_rows, found.last_batch_at) == (2, 2, 0, None)
    assert found.balance.balanced


def test_rows_lag_errors_and_the_newest_batch_are_told(runtime: Embedded, sources: Sources) -> None:
    platform = runtime.platform
    published(platform, "ma", "mb", "mb", "broken")
    standardize(platform, ["a", "b"], totals=Totals(read=4, duplicates=1, parse_errors=1, rows=2))
    curate(platform, {"a": "ma"})
    quarantine(platform, "mb")
    quarantine(platform, "broken", "cd" * 16, layer="standardized")
    quarantine(platform, "old", "ef" * 16, status="DISCARDED")
    published(platform, "later")
    found = only(sources)
    assert (found.raw_rows, found.standardized_rows, found.curated_rows, found.lag_rows) == (5, 2, 1, 1)
    assert found.open_errors == {"parse_errors": 1, "errors": 1}
    assert found.last_batch == "2611150801000000-y"
    assert found.last_batch_at is not None
    assert f"{found.last_batch_at:%H:%M}" == "08:01"
    assert found.balance.balanced
    assert whole_topic(sources, "orders").balanced


@pytest.mark.parametrize(
    ("totals", "complaint"),
    [
        (Totals(read=2, rows=1), "found in Standardized: 2 ≠ 1"),
        (Totals(read=1, rows=1), "RAW rows: 1 ≠ 2"),
    ],
)
def test_running_totals_that_do_not_add_up_are_out_of_balance(
    runtime: Embedded, sources: Sources, totals: Totals, complaint: str
) -> None:
    published(runtime.platform, "ma", "mb")
    standardize(runtime.platform, ["a"], totals=totals)
    balance = only(sources).balance
    assert not balance.balanced
    assert complaint in " ".join(balance.complaints())
    assert only(sources).as_json()["balanced"] is False


def test_rows_retired_from_raw_still_count_as_read() -> None:
    retired = snapshot(2, 1, "delete", leanops_kind="retention", deleted_records=3, total_records=4)
    raw = table(snapshot(1, None, added_records=7, total_records=7), retired)
    mark = watermark(1, totals=Totals(read=7, rows=7))
    standardized = table(snapshot(9, None, **{}), uuid="s", head=9)
    standardized.snapshots[9].summary.update(mark.summary())  # type: ignore[attr-defined]
    assert running_totals(raw, standardized).balanced


def test_another_raw_table_is_a_problem_not_a_number(runtime: Embedded, sources: Sources) -> None:
    published(runtime.platform, "ma")
    mark = watermark(1, source_uuid="another", totals=Totals(read=1, rows=1))
    commit(runtime.platform, STANDARDIZED, STANDARD, [{"record_key": "key:a"}], mark)
    assert "reads all of it" in only(sources).balance.problems[0]


@pytest.mark.parametrize(
    ("stored", "quarantined", "broken_check"),
    [
        ({"a": "ma", "b": "mb"}, [], None),
        ({"a": "ma"}, ["mb"], None),
        ({"a": "ma", "b": "older"}, ["mb"], None),
        ({"a": "ma"}, [], "failing keys without an error row"),
        ({"a": "ma", "b": "mb", "z": "mz"}, [], "Curated rows + failing"),
    ],
)
def test_every_key_is_in_curated_or_has_an_error(
    runtime: Embedded, sources: Sources, stored: dict[str, str], quarantined: list[str], broken_check: str | None
) -> None:
    published(runtime.platform, "ma", "mb")
    standardize(runtime.platform, ["a", "b"], totals=Totals(read=2, rows=2))
    curate(runtime.platform, stored)
    for message in quarantined:
        quarantine(runtime.platform, message)
    broken = [check.name for check in whole_topic(sources, "orders").checks if not check.balanced]
    assert len(broken) == (1 if broken_check else 0)
    assert broken_check is None or broken_check in broken[0]


def test_a_doubled_row_is_noticed(runtime: Embedded, sources: Sources) -> None:
    published(runtime.platform, "ma")
    standardize(runtime.platform, ["a", "a"], totals=Totals(read=1, rows=1))
    curate(runtime.platform, {"a": "ma"})
    assert not whole_topic(sources, "orders").balanced


@pytest.mark.parametrize("doubled", [STANDARD, CURATE])
def test_the_table_that_holds_every_key_twice_is_the_one_that_is_named(
    runtime: Embedded, sources: Sources, doubled: str
) -> None:
    published(runtime.platform, "ma", "mb")
    standardize(runtime.platform, ["a", "b"] * (2 if doubled == STANDARD else 1), totals=Totals(read=2, rows=2))
    curate(runtime.platform, {"a": "ma", "b": "mb"})
    if doubled == CURATE:
        curate(runtime.platform, {"a": "ma", "b": "mb"}, batch_seq=2)
    keys = [check for check in whole_topic(sources, "orders").checks if "distinct keys" in check.name]
    layer = "Standardized" if doubled == STANDARD else "Curated"
    assert [str(check) for check in keys if not check.balanced] == [f"{layer} rows = distinct keys: 4 ≠ 2"]


def delete(found: Table) -> None:
    found.delete("idempotency_key = 'a'")


def edit(found: Table) -> None:
    rows = found.scan().to_arrow()
    at = rows.schema.get_field_index("message_id")
    edited = pyarrow.array(["edited"] * len(rows), rows.schema.field(at).type)
    found.overwrite(rows.set_column(at, rows.schema.field(at), edited))


def append_twice(found: Table) -> None:
    found.append(found.scan(row_filter="idempotency_key = 'a'").to_arrow())


@pytest.mark.parametrize("change", [delete, edit, append_twice])
@pytest.mark.parametrize("name", [STANDARD, CURATE])
def test_a_row_that_another_tool_deleted_edited_or_doubled_is_out_of_balance(
    runtime: Embedded, sources: Sources, name: str, change: Callable[[Table], None]
) -> None:
    published(runtime.platform, "ma", "mb")
    standardize(runtime.platform, ["a", "b"], totals=Totals(read=2, rows=2))
    curate(runtime.platform, {"a": "ma", "b": "mb"})
    assert status(sources)[0].balance.balanced
    change(runtime.catalog.load_table(name))

    balance = status(sources)[0].balance

    assert not balance.balanced
    view = runtime.platform.catalog.load(name)
    assert view is not None
    layer = "Standardized" if name == STANDARD else "Curated"
    said = [problem for problem in balance.problems if f"snapshot {view.head} of 20" in problem]
    assert len(said) == 1
    assert said[0].startswith(f"{layer}: ")
    assert said[0].endswith("with: leanops rebuild orders")
    rows = [check.found for check in balance.checks if check.name.endswith("rows in Standardized")]
    assert rows == [{delete: 1, edit: 2, append_twice: 3}[change] if name == STANDARD else 2]


def test_a_compaction_by_another_tool_is_named_and_out_of_balance_with_nothing(sources: Sources) -> None:
    compacted = table(snapshot(1, None, leanops_batch_id="b"), snapshot(2, 1, "replace"), history=((NOW_MS, 2),))
    found = at_a_glance(sources, "orders", None, None, compacted)
    assert (found.balanced, found.complaints()) == (True, [])
    assert found.notes == (
        f"Curated: snapshot 2 of {NOW:%Y-%m-%d %H:%M:%S} (replace) was written by another tool; "
        "it is a compaction and changed no rows",
    )


def test_a_curated_table_that_is_a_batch_late_is_told(runtime: Embedded, sources: Sources) -> None:
    published(runtime.platform, "ma")
    standardize(runtime.platform, ["a"], totals=Totals(read=1, rows=1))
    curate(runtime.platform, {"z": "mz"}, batch_seq=0)
    assert "leanops cycle" in whole_topic(sources, "orders").problems[0]


@pytest.mark.parametrize(
    ("read", "errors", "warns"),
    [(1_287, 1_278, True), (1_287, 129, True), (1_287, 128, False), (1_287, 0, False), (10, 10, True), (9, 9, False)],
)
def test_many_quarantined_rows_are_a_warning_and_balance_all_the_same(
    runtime: Embedded, sources: Sources, read: int, errors: int, warns: bool
) -> None:
    mark = watermark(1, counts={"read": read, "errors": errors})
    commit(runtime.platform, CURATED, CURATE, [{"idempotency_key": "a"}], mark)
    found = only(sources)
    assert found.balance.balanced
    assert list(found.warnings) == (
        [
            f"{errors:,} of {read:,} rows of its newest Curated batch were quarantined, more than 10%; "
            "see why with: leanops errors list --topic orders"
        ]
        if warns
        else []
    )


def test_a_parked_layer_shows_its_reason(runtime: Embedded, sources: Sources) -> None:
    record_failure(runtime.platform, "orders", "curated", "too many errors", park=True)
    assert only(sources).failures == {"curated": "parked after 1 try: too many errors"}


def test_a_broken_schema_file_does_not_hide_the_topic(runtime: Embedded, sources: Sources) -> None:
    (runtime.home / "schemas/orders/active/schema.json").write_text("{")
    assert "not JSON" in only(sources).failures["schema"]


def test_errors_are_filtered_and_come_newest_first(runtime: Embedded, sources: Sources) -> None:
    platform = runtime.platform
    quarantine(platform, "m1", "01" * 16)
    quarantine(platform, "m2", "02" * 16, detected_ts=NOW.replace(hour=9))
    quarantine(platform, "m3", "03" * 16, layer="standardized", topic_name="other")

    def ids(limit: int = 10, **wanted: Any) -> list[str]:
        return [row["error_id"][:2] for row in list_errors(sources, Wanted(**wanted), limit).rows]

    assert ids() == ["02", "01", "03"]
    assert ids(limit=1) == ["02"]
    assert ids(topic="other") == ["03"]
    assert ids(layer="curated") == ["02", "01"]
    assert ids(rule="cde_missing") == ["02", "01", "03"]
    assert ids(rule="not_json") == []


@pytest.mark.parametrize("message", ["m1", "it's\n[odd]", "naïve"])
def test_the_event_of_an_error_is_found_in_raw(runtime: Embedded, sources: Sources, message: str) -> None:
    events = [event(message, "{first", ingestion_ts=NOW_MS), event(message, "{copy", ingestion_ts=NOW_MS + 1)]
    land(runtime.platform, "orders", [event("another"), *events])
    quarantine(runtime.platform, message)
    found = payload_of(sources, find_error(sources, "ababab"))
    assert found is not None
    assert (found.text, found.copies) == ("{first", 2)


def test_an_event_that_left_raw_is_missing_not_invented(runtime: Embedded, sources: Sources) -> None:
    quarantine(runtime.platform, "gone")
    assert payload_of(sources, find_error(sources, "ab" * 16)) is None


@pytest.mark.parametrize("wanted", ["zz", "ab' or 1=1", "123456"])
def test_an_unknown_error_id_is_told(runtime: Embedded, sources: Sources, wanted: str) -> None:
    quarantine(runtime.platform, "m1")
    with pytest.raises(UsageError, match="errors list"):
        find_error(sources, wanted)


def test_the_status_tells_what_is_odd_about_the_newest_batch(runtime: Embedded) -> None:
    land(runtime.platform, "orders", [event("m1")])
    raw = runtime.platform.catalog.load("iceberg_raw_db.orders_staging")
    counts = {"read": 100, "inserted": 100, "version_missing": 2, "period_fallback": 1}
    mark = watermark(raw.head, batch_id="2611150800000000-x", source_uuid=raw.uuid, counts=counts)
    commit(runtime.platform, STANDARDIZED, STANDARD, [{"record_key": "key:a"}], mark)
    (one,) = status(runtime.sources())
    assert [warning[:32] for warning in one.warnings] == ["2 of 100 rows have no version, s"]
    (quiet,) = status(replace(runtime.sources(), warning_share=0.02))
    assert list(quiet.warnings) == []
