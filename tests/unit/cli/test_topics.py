"""Topics on the command line, and the log of who changed them."""

import re
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import LeaseLostError
from leanops.runtimes.embedded import Embedded
from leanops.usecases.leases import acquire, check
from tests.unit.conftest import Leanops

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


@pytest.fixture
def topic(leanops: Leanops, home: Path) -> str:
    leanops("topics", "add", "orders")
    return "orders"


def audit(leanops: Leanops) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = leanops(
        "sql", "--json", "select action, topic_name, details, channel from ops_db.audit_log order by at_ts"
    ).json
    return rows


def status_of(leanops: Leanops, topic: str) -> dict[str, Any]:
    (found,) = [one for one in leanops("status", "--json").json["topics"] if one["topic"] == topic]
    return dict(found)


def test_an_added_topic_is_listed_and_can_be_added_again(leanops: Leanops, topic: str) -> None:
    again = leanops("topics", "add", topic)
    assert (again.code, again.out) == (0, "orders is already registered\n")
    ready = {"topic": topic, "status": "READY", "processing_enabled": False, "schema_version": None, "reason": None}
    assert leanops("topics", "list", "--json").json == [{**ready, "operation": None}]
    assert [row["action"] for row in audit(leanops)] == ["topics add"]


def test_pause_and_resume_are_seen_and_logged(leanops: Leanops, topic: str) -> None:
    assert leanops("topics", "pause", topic, "--reason", "moving").code == 0
    paused = status_of(leanops, topic)
    assert (paused["status"], paused["reason"]) == ("PAUSED", "moving")
    cycled = leanops("cycle", "--json").json
    assert (cycled["outcome"], cycled["reason"]) == ("paused", "moving")
    leanops("topics", "resume", topic)
    assert status_of(leanops, topic)["status"] == "READY"
    assert [(row["action"], row["details"]) for row in audit(leanops)][1:] == [
        ("topics pause", '{"reason": "moving"}'),
        ("topics resume", None),
    ]


def test_maintenance_mode_pauses_every_topic(leanops: Leanops, topic: str) -> None:
    leanops("topics", "add", "invoices")
    leanops("topics", "pause", "--all")
    assert {one["status"] for one in leanops("topics", "list", "--json").json} == {"PAUSED"}


@pytest.mark.parametrize("words", [("pause",), ("resume", "orders", "--all"), ("pause", "nosuch"), ("retry", "nosuch")])
def test_an_unclear_choice_of_topics_is_refused(leanops: Leanops, topic: str, words: tuple[str, ...]) -> None:
    assert leanops("topics", *words).code == 2


def test_retry_is_logged(leanops: Leanops, topic: str) -> None:
    assert leanops("topics", "retry", topic).code == 0
    assert audit(leanops)[-1]["action"] == "topics retry"


def test_show_names_the_tables(leanops: Leanops, topic: str) -> None:
    shown = leanops("topics", "show", topic, "--json").json
    assert [(table["layer"], table["name"]) for table in shown["tables"]] == [
        ("raw", "iceberg_raw_db.orders_staging"),
        ("standardized", "iceberg_standardized_db.orders"),
    ]
    assert "iceberg_raw_db.orders_staging" in leanops("topics", "show", topic).out


def test_a_cycle_without_a_schema_waits_and_starts_no_spark(leanops: Leanops, topic: str, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("{}\n")
    leanops("publish", topic, str(tmp_path / "events.jsonl"))
    ran = leanops("cycle", "--json")
    assert ran.code == 0
    assert ran.json["outcome"] == "no_schema"
    assert "no_schema" in leanops("cycle").out


def test_a_cycle_of_an_unknown_topic_is_a_usage_error(leanops: Leanops, topic: str) -> None:
    assert leanops("cycle", "--topic", "nosuch").code == 2


def test_unlock_says_who_held_the_lease_and_is_logged(leanops: Leanops, topic: str, home: Path) -> None:
    runtime = Embedded(home, owner="laptop/4711")
    lease = acquire(runtime.platform, "topic/orders")
    acquire(runtime.platform, "dlq/drain")
    asked = leanops("topics", "unlock", topic)
    told = re.fullmatch(
        rf"error: orders: (held by laptop/4711, .* at {TIME}, expires at {TIME}); .* --yes\n", asked.err
    )
    assert asked.code == 2
    assert told
    ended = leanops("topics", "unlock", topic, "--yes")
    assert (ended.code, ended.out) == (0, f"orders is unlocked: {told[1]}\n")
    assert leanops("topics", "unlock", topic).out == "orders is not locked; nothing changed\n"
    assert leanops("topics", "unlock", "dlq/drain", "--yes").code == 0
    with pytest.raises(LeaseLostError):
        check(runtime.platform, lease)
    runtime.close()
    logged = [(row["action"], row["topic_name"], row["details"]) for row in audit(leanops)]
    assert logged[-2] == ("topics unlock", "orders", f'{{"held": "{told[1]}"}}')
    assert logged[-1][:2] == ("topics unlock", "dlq/drain")


@pytest.mark.parametrize("name", ["nosuch", "topic/orders"])
def test_a_lease_that_does_not_exist_cannot_be_unlocked(leanops: Leanops, topic: str, name: str) -> None:
    assert leanops("topics", "unlock", name, "--yes").code == 2
