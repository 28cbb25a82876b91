"""Plans: one gate after the other, each with its outcome, and no Spark."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from leanops.domain.errors import EngineUnavailableError, UnknownTopicError
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.definitions import CURATED as CURATED_TABLE
from leanops.domain.table.definitions import RAW as RAW_TABLE
from leanops.domain.table.definitions import STANDARDIZED as STANDARDIZED_TABLE
from leanops.domain.table.operation import Operation, Stage, Work
from leanops.domain.table.outcome import Outcome
from leanops.ports.state import SCHEMA_REGISTRY
from leanops.usecases import operation_log
from leanops.usecases.attempts import record_failure
from leanops.usecases.cycle.plan import TopicPlan, plan_cycle
from leanops.usecases.cycle.retry import retry_topic
from leanops.usecases.journal import begin
from leanops.usecases.leases import Lease, acquire
from leanops.usecases.operations.execute import OPERATION
from leanops.usecases.operations.unfinished import is_due
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic, pause_topic
from tests.support.builders import (
    NOW_MS,
    Clock,
    batch,
    changed,
    event,
    held_by,
    land,
    native,
    platform_in,
    schema,
    schema_text,
    watermark,
)

RAW, STANDARD, CURATE = "iceberg_raw_db.orders_staging", "iceberg_standardized_db.orders", "iceberg_curated_db.orders"
LEASE = Lease("topic/orders", "one", 1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def platform(tmp_path: Path, clock: Clock) -> Iterator[Platform]:
    with platform_in(tmp_path, clock=clock, pipeline={"tries": 2, "backoff_s": 60}) as platform:
        add_topic(platform, "orders")
        yield platform


def onboard(platform: Platform, *, events: int = 0) -> None:
    deploy_schema(platform, "orders", schema_text(), "schema.json")
    land(platform, "orders", [event(f"m{number}") for number in range(events)])


def plan(platform: Platform, **options: Any) -> TopicPlan:
    (only,) = plan_cycle(platform, None, **options)
    return only


def standardize(platform: Platform, batch_seq: int = 1) -> None:
    """What a committed Standardized batch leaves: a snapshot with a watermark at RAW's head."""
    raw = platform.catalog.load(RAW)
    assert raw is not None
    assert raw.head is not None
    platform.catalog.create(STANDARD, STANDARDIZED_TABLE)
    mark = watermark(raw.head, batch_seq, source_uuid=raw.uuid)
    platform.catalog.append(STANDARD, [{"record_key": "key:k"}], mark.summary())


def curate(platform: Platform, source_to: int = 1) -> None:
    """What a committed Curated batch leaves."""
    platform.catalog.create(CURATE, CURATED_TABLE)
    read = platform.catalog.load(STANDARD)
    assert read is not None
    assert read.head is not None
    mark = watermark(source_to, source_to, source_uuid=read.uuid, source_snapshot=read.head)
    platform.catalog.append(CURATE, [{"idempotency_key": "k"}], mark.summary())


def test_new_events_of_a_topic_with_a_schema_are_standardized_and_curated(platform: Platform) -> None:
    onboard(platform, events=3)
    assert plan(platform) == TopicPlan("orders", schema(), 3, standardize=True, curate=True)


def newest_head(platform: Platform) -> int | None:
    view = platform.catalog.load(STANDARD)
    return view.head if view else None


def test_a_curated_whose_standardized_has_moved_is_made_anew(platform: Platform) -> None:
    onboard(platform, events=1)
    standardize(platform)
    first = platform.catalog.load(STANDARD)
    assert first is not None
    assert first.head is not None
    standardize(platform, batch_seq=2)
    curate(platform, source_to=2)
    assert plan(platform).outcome == Outcome.NO_NEW_DATA
    platform.catalog.roll_back(STANDARD, first.head, only_at=newest_head(platform))
    assert plan(platform).curate


def test_a_topic_with_an_unfinished_operation_waits_for_it(platform: Platform) -> None:
    onboard(platform, events=1)
    operation = Operation("op", "orders", Work.REBUILD, "someone", NOW_MS, 1)
    operation_log.begin(held_by(platform, acquire(platform, "topic/orders")), operation, Stage.BUILDING)
    found = plan(platform)
    assert found.outcome == Outcome.PAUSED
    assert "rebuild started at 2026-11-15 08:00:00 UTC by someone is unfinished" in str(found.reason)


def test_a_paused_topic_says_why(platform: Platform) -> None:
    onboard(platform, events=1)
    pause_topic(platform, "orders", "rebuild")
    assert plan(platform) == TopicPlan("orders", outcome=Outcome.PAUSED, reason="rebuild")
    assert plan(platform, force=True).outcome == Outcome.PAUSED


def test_a_topic_without_a_schema_waits(platform: Platform) -> None:
    land(platform, "orders", [event()])
    found = plan(platform)
    assert (found.outcome, found.standardize, found.curate) == (Outcome.NO_SCHEMA, False, False)
    assert found.reason == "events wait in RAW; deploy a schema to process them"


def test_a_topic_without_a_schema_or_events_does_not_claim_that_events_wait(platform: Platform) -> None:
    said = "no events yet; publish some, then deploy a schema to process them"
    assert plan(platform) == TopicPlan("orders", outcome=Outcome.NO_SCHEMA, reason=said)
    platform.catalog.create(RAW, RAW_TABLE)
    assert plan(platform).reason == said
    land(platform, "orders", [event()])
    platform.catalog.delete(RAW, {"message_id": "m1"})
    assert plan(platform).reason == said


def test_where_exploring_is_allowed_a_topic_without_a_schema_is_standardized(platform: Platform) -> None:
    exploring = replace(platform, rules=changed(platform.rules, pipeline={"explore": True}))
    assert plan(exploring).outcome == Outcome.NO_NEW_DATA
    land(platform, "orders", [event()])
    assert plan(exploring) == TopicPlan("orders", None, 1, standardize=True, curate=False)
    standardize(platform)
    assert plan(exploring).outcome == Outcome.NO_NEW_DATA


def test_a_topic_that_is_switched_off_is_disabled(platform: Platform) -> None:
    onboard(platform, events=1)
    stored = platform.state.get(SCHEMA_REGISTRY, ("orders",))
    assert stored is not None
    platform.state.put(SCHEMA_REGISTRY, {**stored.row, "processing_enabled": False}, expected=stored.revision)
    assert plan(platform).outcome == Outcome.DISABLED


def test_an_active_schema_that_cannot_be_read_fails_its_topic_alone(platform: Platform, tmp_path: Path) -> None:
    onboard(platform, events=1)
    add_topic(platform, "users")
    (tmp_path / "schemas/orders/active/schema.json").write_text("{")
    orders, users = plan_cycle(platform, None)
    assert (orders.outcome, users.outcome) == (Outcome.FAILED, Outcome.NO_SCHEMA)
    assert "schemas/orders/active/schema.json: not JSON" in (orders.reason or "")


def test_a_topic_without_events_has_no_new_data(platform: Platform) -> None:
    onboard(platform)
    assert plan(platform) == TopicPlan("orders", schema(), outcome=Outcome.NO_NEW_DATA)


def test_a_topic_that_is_through_has_no_new_data(platform: Platform) -> None:
    onboard(platform, events=2)
    standardize(platform)
    curate(platform)
    assert plan(platform).outcome == Outcome.NO_NEW_DATA
    land(platform, "orders", [event("m9")])
    assert plan(platform) == TopicPlan("orders", schema(), 1, standardize=True, curate=True)


def test_a_curated_table_that_lags_is_curated_without_new_events(platform: Platform) -> None:
    onboard(platform, events=2)
    standardize(platform, batch_seq=3)
    assert plan(platform) == TopicPlan("orders", schema(), 0, standardize=False, curate=True)
    curate(platform, source_to=2)
    assert plan(platform).curate
    curate(platform, source_to=3)
    assert plan(platform).outcome == Outcome.NO_NEW_DATA


@pytest.mark.parametrize(("layer", "both"), [(STANDARDIZED, True), (CURATED, False)])
def test_a_batch_that_was_begun_is_taken_up_again(platform: Platform, layer: str, both: bool) -> None:
    onboard(platform)
    begin(held_by(platform, LEASE), batch(layer=layer))
    assert plan(platform) == TopicPlan("orders", schema(), 0, standardize=both, curate=True)


def test_a_rewritten_source_fails_its_topic_and_says_what_to_do(platform: Platform) -> None:
    onboard(platform, events=1)
    table = native(platform).load_table(RAW)
    table.overwrite(table.scan().to_arrow())
    found = plan(platform)
    assert found.outcome == Outcome.FAILED
    assert "RAW is append-only" in (found.reason or "")


# Earlier failures


def fail(platform: Platform, layer: str, times: int) -> None:
    for _ in range(times):
        record_failure(platform, "orders", layer, "no room")


def test_a_layer_that_failed_waits_and_is_then_tried_again(platform: Platform, clock: Clock) -> None:
    onboard(platform, events=1)
    fail(platform, STANDARDIZED, 1)
    found = plan(platform)
    assert (found.outcome, found.standardize, found.curate) == (Outcome.PRIOR_FAILED, False, False)
    assert found.reason == "tried once, next try in 60 s: no room"
    clock.advance(60)
    assert plan(platform) == TopicPlan("orders", schema(), 1, standardize=True, curate=True)


def test_a_parked_layer_waits_for_a_person(platform: Platform, clock: Clock) -> None:
    onboard(platform, events=1)
    fail(platform, STANDARDIZED, 2)
    clock.advance(10**6)
    found = plan(platform)
    assert (found.outcome, found.reason) == (Outcome.PRIOR_FAILED, "parked after 2 tries: no room")
    retry_topic(platform, "orders")
    assert plan(platform).standardize


def test_force_passes_over_earlier_failures(platform: Platform) -> None:
    onboard(platform, events=1)
    fail(platform, STANDARDIZED, 2)
    fail(platform, CURATED, 2)
    assert plan(platform, force=True) == TopicPlan("orders", schema(), 1, standardize=True, curate=True)


def test_a_parked_curated_does_not_stop_standardized(platform: Platform) -> None:
    onboard(platform, events=1)
    fail(platform, CURATED, 2)
    held = "parked after 2 tries: no room"
    assert plan(platform) == TopicPlan("orders", schema(), 1, standardize=True, curate=False, held_back=held)
    standardize(platform)
    found = plan(platform)
    assert (found.outcome, found.reason) == (Outcome.PRIOR_FAILED, "parked after 2 tries: no room")


def test_a_parked_standardized_does_not_stop_a_curated_that_lags(platform: Platform) -> None:
    onboard(platform, events=1)
    standardize(platform)
    land(platform, "orders", [event("m9")])
    fail(platform, STANDARDIZED, 2)
    assert plan(platform) == TopicPlan(
        "orders", schema(), 1, standardize=False, curate=True, held_back="parked after 2 tries: no room"
    )
    curate(platform)
    assert plan(platform).outcome == Outcome.PRIOR_FAILED


def test_a_parked_layer_with_nothing_to_do_is_no_failure(platform: Platform) -> None:
    onboard(platform)
    fail(platform, STANDARDIZED, 2)
    fail(platform, CURATED, 2)
    assert plan(platform).outcome == Outcome.NO_NEW_DATA


# Topics


def test_topics_are_planned_by_name_or_as_they_are_asked_for(platform: Platform) -> None:
    for topic in ("users", "carts"):
        add_topic(platform, topic)
    assert [found.topic for found in plan_cycle(platform, None)] == ["carts", "orders", "users"]
    assert [found.topic for found in plan_cycle(platform, ["users", "carts"])] == ["users", "carts"]
    with pytest.raises(UnknownTopicError, match="nobody"):
        plan_cycle(platform, ["users", "nobody"])


def test_without_topics_there_is_nothing_to_plan(tmp_path: Path) -> None:
    with platform_in(tmp_path / "empty") as empty:
        assert plan_cycle(empty, None) == []


def test_a_failure_noted_while_the_clock_was_ahead_is_tried_again_now(platform: Platform, clock: Clock) -> None:
    onboard(platform, events=1)
    clock.advance(86_400)
    record_failure(platform, "orders", STANDARDIZED, "broken")
    assert plan(platform).outcome is Outcome.PRIOR_FAILED
    clock.advance(-86_400)
    assert plan(platform).outcome is None
    clock.advance(86_400 - 5)
    assert plan(platform).outcome is Outcome.PRIOR_FAILED, "a clock that differs by seconds changes nothing"


def test_an_operation_that_failed_while_the_clock_was_ahead_is_due_now(platform: Platform, clock: Clock) -> None:
    operation = Operation("op", "orders", Work.REBUILD, "someone", NOW_MS, 1)
    found = operation_log.begin(held_by(platform, acquire(platform, LEASE.resource)), operation, Stage.BUILDING)
    clock.advance(86_400)
    record_failure(platform, "orders", OPERATION, "broken")
    assert not is_due(platform, found)
    clock.advance(-86_400)
    assert is_due(platform, found)


def test_a_plan_asks_as_often_for_many_topics_as_for_one(platform: Platform) -> None:
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    state: Any = platform.state
    engines = native(platform).engine, state._database._engine
    counts = []
    for topics in (["orders"], [f"orders-{number}" for number in range(7)]):
        for topic in topics:
            if topic != "orders":
                add_topic(platform, topic)
            deploy_schema(platform, topic, schema_text(table_name=topic.replace("-", "_")), "schema.json")
        plan_cycle(platform, None)
        for engine in engines:
            sa.event.listen(engine, "before_cursor_execute", note)
        plans = plan_cycle(platform, None)
        for engine in engines:
            sa.event.remove(engine, "before_cursor_execute", note)
        counts.append((len(plans), len(asked)))
        asked.clear()
    assert counts == [(1, 6), (8, 6)]


def test_a_catalog_that_does_not_answer_fails_each_topic_that_asks_it(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    onboard(platform)
    add_topic(platform, "payments")
    pause_topic(platform, "payments", "holidays")

    def silent(*_: Any) -> Any:
        raise EngineUnavailableError("the catalog does not answer")

    for name in ("look", "load"):
        monkeypatch.setattr(platform.catalog, name, silent)
    found = [(plan.topic, plan.outcome, plan.reason) for plan in plan_cycle(platform, None)]
    assert found == [
        ("orders", Outcome.FAILED, "the catalog does not answer"),
        ("payments", Outcome.PAUSED, "holidays"),
    ]
