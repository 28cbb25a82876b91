"""What people read: status, errors, SQL and the outcome of cycles, as text and as JSON."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.sql.queue import SqlQueue
from leanops.domain.table.balance import Totals
from leanops.domain.table.definitions import ERRORS, STANDARDIZED
from leanops.emulation.play.homes import fresh_home
from leanops.emulation.scenario import Scenario
from leanops.entrypoints.cli.output import printable, shown
from leanops.entrypoints.cli.views.status import show
from leanops.ports.clock import millis
from leanops.ports.queue import Outgoing
from leanops.runtimes.embedded import Embedded
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic
from leanops.usecases.workers import Doing, Part, Worker
from leanops.views.balance import Balance
from leanops.views.status import TopicStatus
from tests.support.builders import NOW, event, land, schema_text, watermark
from tests.unit.conftest import Leanops

PAYLOAD = '{"email": "ada@example.com", "odd": "[bold]\\u001b"}'


@pytest.fixture
def runtime(home: Path) -> Iterator[Embedded]:
    runtime = Embedded(home)
    add_topic(runtime.platform, "orders")
    land(runtime.platform, "orders", [event("m1", PAYLOAD), event("m2", "{}")])
    yield runtime
    runtime.close()


@pytest.fixture
def error_id(runtime: Embedded) -> str:
    catalog = runtime.platform.catalog
    name = "iceberg_curated_db.errors"
    failure = {"rule": "cde_missing", "column": "c", "path": "$.c", "message": "[red]critical[/red]", "value": None}
    row = {
        "error_id": "ab" * 16,
        "topic_name": "orders",
        "layer": "curated",
        "message_id": "m1",
        "failures": [failure],
        "source": f"iceberg_raw_db.orders_staging/publish_time_day={NOW:%Y-%m-%d}",
        "detected_ts": NOW,
        "status": "OPEN",
    }
    catalog.create(name, ERRORS)
    catalog.append(name, [row])
    return "ab" * 16


def standardize(runtime: Embedded, totals: Totals) -> None:
    catalog = runtime.platform.catalog
    raw = catalog.load("iceberg_raw_db.orders_staging")
    assert raw is not None
    assert raw.head is not None
    catalog.create("iceberg_standardized_db.orders", STANDARDIZED)
    mark = watermark(raw.head, source_uuid=raw.uuid, totals=totals)
    catalog.append("iceberg_standardized_db.orders", [{"record_key": "key:a"}], mark.summary())


def test_a_topic_out_of_balance_cannot_be_overlooked(leanops: Leanops, runtime: Embedded) -> None:
    standardize(runtime, Totals(read=1, rows=1))
    ran = leanops("status")
    assert ran.code == 0
    assert ran.out.count("OUT OF BALANCE") == 2
    assert "1 ≠ 2" in ran.out
    assert leanops("status", "--json").json["balanced"] is False


def test_a_topic_in_balance_says_so(leanops: Leanops, runtime: Embedded) -> None:
    standardize(runtime, Totals(read=2, rows=1, duplicates=1))
    assert "balanced" in leanops("status").out
    assert leanops("status", "--json").json["balanced"] is True


def test_a_status_without_topics_says_what_to_do(leanops: Leanops, home: Path) -> None:
    assert leanops("status").out == "no topics yet; add one with: leanops topics add TOPIC\n"
    assert leanops("cycle").out == leanops("topics", "list").out == leanops("status").out


def test_a_failed_topic_makes_the_cycle_fail(leanops: Leanops, runtime: Embedded) -> None:
    deploy_schema(runtime.platform, "orders", schema_text(), "schema.json")
    (runtime.home / "schemas/orders/active/schema.json").write_text("{")
    ran = leanops("cycle", "--json")
    assert (ran.code, ran.json["outcome"]) == (1, "failed")
    shown_to_people = leanops("cycle")
    assert shown_to_people.code == 1
    assert "not JSON" in shown_to_people.err


def test_errors_are_listed_with_the_rules_they_broke(leanops: Leanops, error_id: str) -> None:
    ran = leanops("errors", "list", "--topic", "orders", "--rule", "cde_missing", "--layer", "curated")
    assert ran.code == 0
    assert error_id[:12] in ran.out
    assert "cde_missing c: [red]critical[/red]" in ran.out
    (row,) = leanops("errors", "list", "--json").json
    assert (row["error_id"], row["failures"][0]["rule"]) == (error_id, "cde_missing")


def test_an_error_is_shown_with_its_event_and_a_warning(leanops: Leanops, error_id: str) -> None:
    ran = leanops("errors", "show", error_id[:8])
    assert ran.code == 0
    assert PAYLOAD in ran.out
    assert "personal data" in ran.err
    assert leanops("errors", "show", error_id, "--json").json["payload"] == PAYLOAD


def test_a_rule_that_does_not_exist_is_told(leanops: Leanops, home: Path) -> None:
    ran = leanops("errors", "list", "--rule", "cde")
    assert (ran.code, ran.err) == (2, "error: there is no rule 'cde'; did you mean cde_missing?\n")


def test_sql_prints_a_table_for_people(leanops: Leanops, runtime: Embedded) -> None:
    ran = leanops("sql", "select message_id, 1234567 as n from iceberg_raw_db.orders_staging order by 1")
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["message_id", "n"]
    assert lines[2:] == [["m1", "1234567"], ["m2", "1234567"], ["2", "rows"]]


def test_sql_shows_the_first_rows_and_says_so(leanops: Leanops, home: Path) -> None:
    ran = leanops("sql", "select * from range(10)", "--limit", "3")
    assert ran.out.splitlines()[-1] == "the first 3 rows; more with --limit or --json"


def test_sql_prints_json_with_exact_values(leanops: Leanops, home: Path) -> None:
    statement = (
        "select 12.50::decimal(18,2) as d, timestamptz '2026-11-01 00:00:00+01' as t, date '2026-11-01' as day, "
        "null as n, sum(i) as s, 'é\"' as text from range(3) r(i)"
    )
    ran = leanops("sql", "--json", statement)
    assert ran.out == ('[{"d":12.50,"t":"2026-10-31T23:00:00Z","day":"2026-11-01","n":null,"s":3,"text":"é\\""}]\n')


def test_sql_without_rows_is_an_empty_array(leanops: Leanops, home: Path) -> None:
    assert leanops("sql", "--json", "select 1 where false").json == []


def test_a_wrong_statement_is_one_line(leanops: Leanops, runtime: Embedded) -> None:
    ran = leanops("sql", "select * from iceberg_raw_db.order_staging")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: there is no table 'iceberg_raw_db.order_staging'; did you mean iceberg_raw_db.orders_staging?\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "true"), (1234, "1234"), (Decimal("1.50"), "1.50"), (NOW, "2026-11-15 08:00:00")],
)
def test_values_are_shown_as_people_read_them(value: Any, text: str) -> None:
    assert shown(value) == text


def test_data_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mred\x07\r\n\tb") == "a\\x1b[31mred\\x07\\x0d\n\tb"


def test_the_demo_replaces_only_an_emulation(leanops: Leanops, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    ran = leanops("demo", str(precious))
    assert (ran.code, "choose another folder" in ran.err) == (2, True)
    assert (precious / "file").read_text() == "mine"


def test_a_second_emulation_starts_afresh(tmp_path: Path) -> None:
    home = fresh_home(tmp_path / "emulation", Scenario())
    (home / "state.db").write_text("old")
    assert not (fresh_home(home, Scenario(), "# mine\n") / "state.db").exists()
    assert (home / "leanops.toml").read_text() == "# mine\n"


def worker(runtime: Embedded, name: str, seconds_ago: float, doing: str | None = None) -> None:
    """A worker as it was heard of some time ago."""

    def clock() -> datetime:
        return datetime.now(UTC) - timedelta(seconds=seconds_ago)

    said = Doing(clock)
    said(doing)
    Worker(Part("processor", lambda: 0, 1.0, doing=said), runtime.state, clock, name, threading.Event()).beat()


def test_status_says_what_a_part_does_and_since_when_and_forgets_it_after_an_hour(
    runtime: Embedded, leanops: Leanops
) -> None:
    worker(runtime, "living", 1, "waiting for orders: the stream is throttled")
    worker(runtime, "idle", 1)
    worker(runtime, "silent", 600)
    worker(runtime, "gone", 3_601)
    found = {one["worker"]: (one["state"], one["doing"]) for one in leanops("status", "--json").json["workers"]}
    assert found == {
        "living": ("working", "waiting for orders: the stream is throttled"),
        "idle": ("working", None),
        "silent": ("silent", None),
    }
    assert "waiting for orders: the stream is throttled, since " in leanops("status").out


def test_status_says_a_warning_once(capsys: pytest.CaptureFixture[str]) -> None:
    open_errors, warnings = {"parse_errors": 0, "errors": 0}, ("2 of 9 rows are odd",)
    show([TopicStatus("orders", "READY", None, None, 1, 0, 0, 0, open_errors, 0, None, None, {}, warnings, Balance())])
    assert [line for line in capsys.readouterr().out.splitlines() if "odd" in line] == [
        "orders: warning: 2 of 9 rows are odd"
    ]


@pytest.mark.parametrize(("seconds", "said"), [(40, "40 s"), (130, "2 min"), (8_000, "2 h"), (200_000, "2 d")])
def test_status_says_how_old_the_oldest_message_of_a_queue_is(
    runtime: Embedded, leanops: Leanops, seconds: int, said: str
) -> None:
    then = datetime.now(UTC) - timedelta(seconds=seconds)
    queue = SqlQueue(f"sqlite:///{runtime.home}/queue.db", lambda: millis(then))
    queue.send([Outgoing("orders", b"{}")])
    queue.close()
    assert f"orders: 1 message, the oldest sent {said} ago" in leanops("status").out
    assert leanops("status", "--json").json["queues"]["orders"]["oldest_s"] in range(seconds, seconds + 60)


def test_a_disk_that_is_nearly_full_is_said_and_nothing_is_published(
    runtime: Embedded, leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_INGEST_MIN_FREE_MB", str(10**12))
    (tmp_path / "e.jsonl").write_text("{}")
    refused = leanops("publish", "orders", str(tmp_path / "e.jsonl"))
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert refused.err.startswith("error: the queue accepts nothing: the disk has ")
    assert "intake is stopped: the disk has " in leanops("status").out
    monkeypatch.delenv("LEANOPS_INGEST_MIN_FREE_MB")
    assert leanops("publish", "orders", str(tmp_path / "e.jsonl")).code == 0
