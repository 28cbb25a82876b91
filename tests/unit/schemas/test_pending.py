"""Schema files that wait, taken where there are rows: planned on them, refused by them, or applied to them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from leanops.adapters.files.folder import Folder
from leanops.domain.schema.diff import difference
from leanops.ports.schemas import Pending
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.operations.unfinished import resume_unfinished
from leanops.usecases.schemas.inbox import take_pending
from leanops.usecases.schemas.plan_gate import plan_on_rows
from leanops.usecases.schemas.validate import Outcome, Verdict
from tests.oracle.rows import LANDED, RawRow
from tests.support.builders import column, no_engine, schema, schema_text
from tests.support.world import World
from tests.unit.schemas.test_inbox import Killed, killed_at

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = {"idempotency_key": "$.id"}


def text(*columns: dict[str, Any], **policies: Any) -> str:
    return schema_text(*columns, keys=KEYS, policies=policies)


@pytest.fixture
def orders(world: World) -> World:
    """Ten rows in Curated under a schema of one column; two of them lack `b`."""
    world.add("orders", text(column("a")))
    rows = [json.dumps({"id": f"k{n}", "a": str(n), **({"b": str(n)} if n >= 2 else {})}) for n in range(10)]
    world.publish("orders", [RawRow(f"m{n}", WHEN, "orders", row, LANDED + n) for n, row in enumerate(rows)])
    world.settle()
    assert len(world.curated("orders")) == 10
    return world


def take(world: World, said: str, *, spark: bool = True) -> Verdict:
    Folder(world.folder / "schemas").put("orders/pending/new.json", said.encode())
    platform = world.platform() if spark else world.platform(engine=no_engine)
    return take_pending(platform, Pending("orders", "new.json"))


def values(world: World, name: str) -> list[Any]:
    return sorted((row[name] for row in world.curated("orders")), key=str)


def test_an_additive_file_fills_the_rows_that_are_there(orders: World) -> None:
    verdict = take(orders, text(column("a"), column("b")))
    assert (verdict.outcome, verdict.version) == (Outcome.ACTIVE, 2)
    assert values(orders, "b") == ["2", "3", "4", "5", "6", "7", "8", "9", None, None]
    assert {row["_schema_version"] for row in orders.curated("orders")} == {2}
    assert orders.platform().schemas.pending() == []


def test_a_restrictive_file_is_refused_where_too_many_rows_lack_a_value(orders: World) -> None:
    columns = (column("a"), column("b", cde=True))
    verdict = take(orders, text(*columns, cde_error_rate_fail=0.1))
    assert [(one.code.value, one.pointer) for one in verdict.problems] == [("cde_missing", "/payload_columns/1/cde")]
    assert (
        verdict.problems[0].message
        == "critical values are missing in 2 of 10 rows (b in 2), and cde_error_rate_fail is 0.1"
    )
    assert orders.platform().schemas.versions("orders") == [1]
    assert take(orders, text(*columns, cde_error_rate_fail=0.2)).outcome == Outcome.ACTIVE
    assert {row["_schema_version"] for row in orders.curated("orders")} == {1}


def test_a_column_that_is_nowhere_is_refused(orders: World) -> None:
    nowhere = {"name": "zz", "type": "STRING"}
    verdict = take(orders, text(column("a"), nowhere))
    assert [(one.code.value, one.pointer) for one in verdict.problems] == [("bad_path", "/payload_columns")]
    assert "zz" in verdict.problems[0].message


def test_a_breaking_file_that_asks_for_a_rebuild_makes_the_table_anew(orders: World) -> None:
    verdict = take(orders, text(column("a", type="INT"), on_breaking="rebuild"))
    assert (verdict.outcome, verdict.version) == (Outcome.ACTIVE, 2)
    assert values(orders, "a") == list(range(10))


def test_a_file_whose_version_no_event_has_is_refused(orders: World) -> None:
    keys = {**KEYS, "version": "$.bb"}
    verdict = take(orders, schema_text(column("a"), keys=keys, policies={"on_breaking": "rebuild"}))
    assert [(one.code.value, one.pointer) for one in verdict.problems] == [("path_unseen", "/keys/version")]
    assert verdict.problems[0].message == "$.bb is in 0 of 10 events"
    assert verdict.problems[0].hint.startswith("did you mean $.b?")


LOSING = text(column("a", type="DATE"), on_breaking="rebuild")
"""No row of the fixture passes it."""


def assert_goes_on(world: World, verdict: Verdict) -> None:
    """The file was refused because keys would go missing, and the topic takes events as before."""
    assert [(one.code.value, one.pointer) for one in verdict.problems] == [("blocked", "")]
    assert "10 keys of " in verdict.problems[0].message
    platform = world.platform()
    assert (unfinished_operation(platform, "orders"), platform.schemas.pending()) == (None, [])
    world.publish("orders", [RawRow("m10", WHEN, "orders", json.dumps({"id": "k10", "a": "10"}), LANDED + 10)])
    world.settle()
    assert [row["_schema_version"] for row in world.curated("orders")] == [1] * 11


def test_a_rebuild_that_would_lose_keys_is_refused_where_nobody_can_agree(orders: World) -> None:
    assert_goes_on(orders, take(orders, LOSING))


def test_a_rebuild_that_would_lose_keys_is_refused_after_a_crash_too(orders: World) -> None:
    Folder(orders.folder / "schemas").put("orders/pending/new.json", LOSING.encode())
    pending = Pending("orders", "new.json")
    with pytest.raises(Killed):
        take_pending(orders.platform(killed_at("after operation")), pending)
    orders.wait_for_leases()
    resume_unfinished(orders.platform())
    begun = unfinished_operation(orders.platform(), "orders")
    assert begun is not None
    assert begun.blocked is not None
    assert_goes_on(orders, take_pending(orders.platform(), pending))


@pytest.mark.parametrize(
    "said",
    [
        text(column("a", description="told")),
        text(column("a", rules={"max_length": 3})),
        text(column("a", type="INT")),
    ],
    ids=["neutral", "restrictive", "refused"],
)
def test_spark_is_not_started_where_rows_decide_nothing(orders: World, said: str) -> None:
    assert take(orders, said, spark=False).outcome in (Outcome.ACTIVE, Outcome.FAILED)


def test_a_person_who_looks_sees_the_plan_of_a_restrictive_file(orders: World) -> None:

    platform = orders.platform()
    new = schema(column("a", rules={"max_length": 3}), keys=KEYS)
    found = difference(platform.schemas.active("orders"), new)
    assert plan_on_rows(platform, "orders", new, found) is None
    shown = plan_on_rows(platform, "orders", new, found, is_shown=True)
    assert shown is not None
    assert (shown.judged, shown.failing) == (10, 0)
