"""Tables made anew: equal to the model's, with the live ones whole until they are replaced."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.domain.errors import OperationBlockedError, TopicPausedError
from leanops.domain.table.operation import Accept, Scope
from leanops.ports.engine import TableAt
from leanops.usecases.cycle.plan import plan_cycle
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.operations.execute import cancel, resume
from leanops.usecases.operations.plan_rollback import plan_rollback, roll_back_topic
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from leanops.usecases.topics.registry import pause_topic, resume_topic
from leanops.views.balance import whole_topic
from tests.oracle.model import Model
from tests.oracle.rows import LANDED, RawRow
from tests.oracle.streams import SCHEMA, make_stream
from tests.support.builders import column, schema_text
from tests.support.verify import assert_tables, sources_of
from tests.support.world import FIRST, PII_KEY, Abandoned, World, few_batches


def processed(world: World, seed: int, schema: dict[str, Any] = SCHEMA) -> Model:
    """A topic with some batches in its tables, and the model of them."""
    chance = random.Random(seed)
    world.add("orders", json.dumps(schema))
    model = Model("orders", schema, pii_key=PII_KEY)
    for batch in [[FIRST], *few_batches(chance, make_stream(chance, 120))]:
        world.publish("orders", batch)
        world.cycle()
        model.standardize(batch)
        model.curate()
    assert_tables(world, "orders", model)
    return model


@pytest.mark.parametrize("scope", [Scope.BOTH, Scope.CURATED])
def test_a_rebuild_gives_the_tables_of_the_model(world: World, scope: Scope) -> None:
    rebuilt_like_the_model(world, scope)


def rebuilt_like_the_model(world: World, scope: Scope) -> None:
    """A topic that is rebuilt and goes on, beside the model."""
    model = processed(world, 3)
    rebuild_topic(world.platform(), "orders", scope=scope)
    if scope == Scope.BOTH:
        model.rebuild([row for _, rows in world.published["orders"] for row in rows])
    else:
        model.recurate()
    assert_tables(world, "orders", model)
    assert world.cycle()["orders"].outcome == "no_new_data"
    more = make_stream(random.Random(77), 40)
    world.publish("orders", more)
    assert world.cycle()["orders"].outcome == "done"
    model.standardize(more)
    model.curate()
    assert_tables(world, "orders", model)


def test_curated_is_built_anew_where_there_is_no_raw_any_more(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 3))
    world.cycle()
    world.embedded.platform.catalog.forget(world.databases.raw_table("orders"))
    rebuild_topic(world.platform(), "orders", scope=Scope.CURATED)
    assert sorted(row["a"] for row in world.curated("orders")) == [0, 1, 2]


def plain(*columns: dict[str, Any], **members: Any) -> str:
    """A schema of a topic with one value per event."""
    return schema_text(*(columns or [column("a", type="BIGINT")]), **members)


def events(first: int, last: int) -> list[RawRow]:
    """Events of keys of their own, all valid, over some days."""
    return [
        RawRow(
            f"m{number}",
            datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=number % 96),
            "orders",
            f'{{"_metadata":{{"idempotencyKeyResource":"k{number}"}},"a":{number},"b":{2 * number}}}',
            LANDED + number,
        )
        for number in range(first, last)
    ]


def test_rows_whose_events_left_raw_are_carried_over(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 8))
    world.cycle()
    raw = world.embedded.catalog.load_table(world.databases.raw_table("orders"))
    raw.delete("message_id in ('m1', 'm5')", snapshot_properties={"leanops.kind": "retention"})
    world.publish("orders", events(8, 10))
    world.cycle()
    rebuild_topic(world.platform(), "orders")
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(10))
    balance = whole_topic(sources_of(world), "orders")
    assert balance.balanced, balance.complaints()
    with pytest.raises(OperationBlockedError, match=r"2 rows .* cannot be given new keys"):
        deploy_schema(world.platform(), "orders", plain(keys={"idempotency_key": "$.a"}), "f", Consent(rebuild=True))
    cancel(world.platform(), "orders")
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(10))


def test_keys_that_would_go_missing_stop_a_rebuild_until_somebody_agrees(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 4))
    world.cycle()
    strict = plain(column("a", type="BIGINT", rules={"min": 2}))
    assert deploy_schema(world.platform(), "orders", strict, "f").scope == Scope.NONE
    with pytest.raises(OperationBlockedError, match=r"2 keys .* would be missing \(for example message_id m0, m1\)"):
        rebuild_topic(world.platform(), "orders", scope=Scope.CURATED)
    world.publish("orders", events(4, 5))
    held = world.cycle()["orders"]
    assert (held.outcome, "--accept-missing" in str(held.reason)) == ("paused", True)
    assert len(world.curated("orders")) == 4
    with pytest.raises(OperationBlockedError, match=r"--resume --accept-missing 2; to cancel"):
        resume(world.platform(), "orders", accept=1)
    found = resume(world.platform(), "orders", accept=2)
    assert found is not None
    assert (found.rows_before, found.rows_after, found.failing, found.lost) == (4, 2, 2, 0)
    assert world.cycle()["orders"].outcome == "done"
    assert sorted(row["a"] for row in world.curated("orders")) == [2, 3, 4]
    assert {row["message_id"] for row in world.errors(world.databases.errors, "orders")} == {"m0", "m1"}


def test_a_deployment_lets_no_more_keys_go_than_somebody_named(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 4))
    world.cycle()
    strict = plain(column("a", type="BIGINT", rules={"min": 2}))
    for consent in (Consent(recurate=True), Consent(recurate=True, missing=1)):
        with pytest.raises(OperationBlockedError, match=r"2 keys .* would be missing"):
            deploy_schema(world.platform(), "orders", strict, "f", consent)
        cancel(world.platform(), "orders")
        assert len(world.curated("orders")) == 4
    done = deploy_schema(world.platform(), "orders", strict, "f", Consent(recurate=True, missing=2))
    assert (done.scope, sorted(row["a"] for row in world.curated("orders"))) == (Scope.CURATED, [2, 3])


def test_the_active_schema_is_applied_to_old_rows_when_it_is_deployed_again(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 4))
    world.cycle()
    strict = plain(column("a", type="BIGINT", rules={"min": 2}))
    assert deploy_schema(world.platform(), "orders", strict, "f").scope == Scope.NONE
    pause_topic(world.platform(), "orders", None)
    again = Consent(recurate=True, missing=2)
    with pytest.raises(TopicPausedError):
        deploy_schema(world.platform(), "orders", strict, "f", again)
    resume_topic(world.platform(), "orders")
    done = deploy_schema(world.platform(), "orders", strict, "f", again)
    assert (done.is_new, done.scope, done.schema.version) == (False, Scope.CURATED, 2)
    assert sorted(row["a"] for row in world.curated("orders")) == [2, 3]


def test_a_wider_type_is_widened_in_place_and_old_snapshots_stay_readable(world: World) -> None:
    world.add("orders", plain(column("a", type="INT"), column("d", path="$.b", type="DECIMAL(9,0)")))
    world.publish("orders", events(0, 3))
    world.cycle()
    table = world.databases.curated_table("orders")
    head = world.embedded.platform.catalog.load(table).head
    wider = plain(column("a", type="BIGINT"), column("d", path="$.b", type="DECIMAL(18,0)"), column("n", path="$.b"))
    deploy_schema(world.platform(), "orders", wider, "f")
    world.publish("orders", events(3, 4))
    world.cycle()
    view = world.embedded.platform.catalog.load(table)
    assert [view.columns[name] for name in ("a", "d", "n")] == ["long", "decimal(18, 0)", "string"]
    assert [s.snapshot_id for s in view.ancestors()][-1] == head
    rows = sorted((row["a"], int(row["d"]), row["n"]) for row in world.curated("orders"))
    assert rows == [(0, 0, None), (1, 2, None), (2, 4, None), (3, 6, "6")]


def test_a_rollback_goes_back_over_a_rebuild_by_a_commit_of_its_own(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 4))
    world.cycle()
    name = world.databases.standardized_table("orders")
    before = world.embedded.platform.catalog.load(name).head
    world.publish("orders", events(4, 6))
    world.cycle()
    rebuild_topic(world.platform(), "orders")
    plan = plan_rollback(world.platform(), "orders", snapshot=before)
    assert (plan.by_replace, plan.curated_snapshot, plan.rows_now, plan.rows_then) == (True, None, 6, 4)
    with pytest.raises(OperationBlockedError, match=r"2 keys .* would be missing"):
        roll_back_topic(world.platform(), plan)
    cancel(world.platform(), "orders")
    assert len(world.curated("orders")) == 6
    roll_back_topic(world.platform(), plan, accept=2)
    assert sorted(row["a"] for row in world.curated("orders")) == [0, 1, 2, 3]
    assert len(world.standardized("orders")) == 4
    assert world.cycle()["orders"].outcome == "paused"
    resume_topic(world.platform(), "orders")
    assert world.cycle()["orders"].layers["standardized"].counts["inserted"] == 2
    assert sorted(row["a"] for row in world.curated("orders")) == [0, 1, 2, 3, 4, 5]
    balance = whole_topic(sources_of(world), "orders")
    assert balance.balanced, balance.complaints()


def test_a_standardized_that_others_rolled_back_makes_curated_anew(world: World) -> None:
    world.add("orders", plain())
    name = world.databases.standardized_table("orders")
    heads = []
    for first in (0, 4):
        world.publish("orders", events(first, first + 4))
        world.cycle()
        heads.append(world.embedded.platform.catalog.load(name).head)
    world.embedded.platform.catalog.roll_back(name, heads[0], only_at=heads[1])
    world.publish("orders", events(8, 9))
    results = world.cycle()["orders"]
    assert (results.outcome, results.layers["standardized"].counts["inserted"]) == ("gap", 5)
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(9))
    assert world.cycle()["orders"].outcome == "no_new_data"
    runs = world.rows(world.databases.ops_table("job_run_history"))
    assert len({row["batch_id"] for row in runs}) == len(runs)


def test_a_key_path_that_no_event_has_empties_no_table(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 4))
    world.cycle()
    wrong = plain(keys={"idempotency_key": "$.typo"})
    with pytest.raises(OperationBlockedError, match=r"4 keys of .* would be missing"):
        deploy_schema(world.platform(), "orders", wrong, "f", Consent(rebuild=True))
    cancel(world.platform(), "orders")
    assert world.cycle()["orders"].outcome == "no_new_data"
    assert len(world.curated("orders")) == 4


def test_a_rollback_leaves_nothing_in_curated_that_it_undoes(world: World) -> None:
    world.add("orders", plain(column("a", type="BIGINT", rules={"min": 1})))
    bad, good = events(0, 1)[0], events(5, 6)[0]
    fixed = replace(good, message_id="m5", json_payload=good.json_payload.replace("k5", "k0"))
    heads = []
    for batch in ([bad], [fixed]):
        world.publish("orders", batch)
        world.cycle()
        heads.append(world.embedded.platform.catalog.load(world.databases.standardized_table("orders")).head)
    rebuild_topic(world.platform(), "orders", scope=Scope.CURATED)
    assert [row["a"] for row in world.curated("orders")] == [5]
    roll_back_topic(world.platform(), plan_rollback(world.platform(), "orders", snapshot=heads[0]), accept=Accept.ALL)
    assert world.curated("orders") == []


def test_a_cycle_planned_before_a_rollback_does_not_redo_it(world: World) -> None:
    world.add("orders", plain())
    for first in (0, 2):
        world.publish("orders", events(first, first + 2))
        world.cycle()
    name = world.databases.standardized_table("orders")
    before = world.embedded.platform.catalog.load(name).ancestors()[-1].snapshot_id
    world.publish("orders", events(4, 5))
    platform = world.platform()
    late = plan_cycle(platform, None)[0]
    roll_back_topic(platform, plan_rollback(platform, "orders", snapshot=before), accept=2)
    (result,) = run_cycle(platform, plans=[late])
    assert (result.outcome, len(world.curated("orders"))) == ("paused", 2)


def test_what_people_said_of_an_error_stays_and_its_tries_are_counted(world: World) -> None:
    world.add("orders", plain(column("a", type="BIGINT", rules={"min": 2})))
    world.publish("orders", events(0, 4))
    world.cycle()
    catalog, table = world.embedded.platform.catalog, world.databases.errors
    ours = [row for row in world.errors(table, "orders") if row["message_id"] == "m0"]
    catalog.replace(table, {"error_id": ours[0]["error_id"]}, [{**ours[0], "status": "DISCARDED"}])
    for _ in range(2):
        rebuild_topic(world.platform(), "orders")
    found = {row["message_id"]: row for row in world.errors(table, "orders")}
    assert {name: (row["status"], row["attempts"]) for name, row in found.items()} == {
        "m0": ("DISCARDED", 3),
        "m1": ("OPEN", 3),
    }
    assert found["m0"]["detected_ts"] == ours[0]["detected_ts"]


def test_a_rebuild_that_is_undone_late_leaves_no_error_rows(world: World) -> None:
    world.add("orders", plain(column("a", type="BIGINT", rules={"min": 1})))
    world.publish("orders", [*events(0, 4), replace(events(9, 10)[0], json_payload="{")])
    world.cycle()
    tables = (world.databases.errors, world.databases.parse_errors)
    before = [world.errors(table, "orders") for table in tables]
    assert [len(rows) for rows in before] == [1, 1]

    def stop(name: str) -> None:
        if name == "before replace standardized":
            raise Abandoned(name)

    strict = plain(column("a", type="INT", rules={"min": 3}), keys={"version": "$.b"})
    with pytest.raises(Abandoned):
        deploy_schema(world.platform(step=stop), "orders", strict, "f", Consent(rebuild=True, missing=2))
    world.wait_for_leases()
    during = [{(row["message_id"], row["attempts"]) for row in world.errors(table, "orders")} for table in tables]
    assert during[1] == {("m9", 2)}
    cancel(world.platform(), "orders")
    assert [world.errors(table, "orders") for table in tables] == before
    assert world.cycle()["orders"].outcome == "no_new_data"


def test_a_topic_whose_raw_was_rewritten_goes_on_after_a_rebuild(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 6))
    world.cycle()
    raw = world.embedded.catalog.load_table(world.databases.raw_table("orders"))
    raw.delete("message_id in ('m1', 'm5')")
    world.publish("orders", events(6, 8))
    stopped = world.cycle()["orders"]
    assert stopped.outcome == "failed"
    assert "leanops rebuild TOPIC" in str(stopped.reason)
    rebuild_topic(world.platform(), "orders")
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(8))
    assert world.cycle()["orders"].outcome == "no_new_data"
    world.publish("orders", events(8, 9))
    assert world.cycle()["orders"].outcome == "done"
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(9))
    balance = whole_topic(sources_of(world), "orders")
    assert balance.balanced, balance.complaints()


def test_an_operation_of_which_a_snapshot_expired_waits_for_a_person_and_can_be_cancelled(world: World) -> None:
    world.add("orders", plain())
    for first in (0, 4):
        world.publish("orders", events(first, first + 4))
        world.cycle()
    standardized = world.databases.standardized_table("orders")

    def stop(name: str) -> None:
        if name == "after attempt":
            raise Abandoned(name)

    with pytest.raises(Abandoned):
        rebuild_topic(world.platform(step=stop), "orders")
    world.wait_for_leases()
    # Another tool moves the head and expires what was there.
    world.embedded.platform.catalog.mark(standardized, {"of": "another tool"})
    table = world.embedded.catalog.load_table(standardized)
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot != table.current_snapshot()]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    with pytest.raises(OperationBlockedError, match=f"{standardized} no longer keeps snapshot .* --cancel"):
        resume(world.platform(), "orders")
    assert world.cycle()["orders"].outcome == "paused"
    cancel(world.platform(), "orders")
    rebuild_topic(world.platform(), "orders")
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(8))


def test_rows_that_left_raw_are_looked_for_only_where_its_numbers_do_not_add_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = list[str](), TaskEngine.retired

    def noted(engine: TaskEngine, stored: TableAt, raw: TableAt) -> Any:
        looked.append(stored.table)
        return look(engine, stored, raw)

    monkeypatch.setattr(TaskEngine, "retired", noted)
    processed(world, 5)
    rebuild_topic(world.platform(), "orders")
    world.publish("orders", make_stream(random.Random(6), 30))
    rebuild_topic(world.platform(), "orders")
    assert looked == [], "all that was read is there, and what was not read yet as well"
    catalog, standardized = world.embedded.catalog, world.databases.standardized_table("orders")
    world.settle()
    before = len(world.standardized("orders"))
    foreign = catalog.load_table(standardized).scan().to_arrow().slice(0, 1)
    at = foreign.column_names.index("record_key"), foreign.column_names.index("message_id")
    for place, text in zip(at, ("key:foreign", "foreign"), strict=True):
        foreign = foreign.set_column(place, foreign.field(place), pa.array([text], foreign.schema.types[place]))
    catalog.load_table(standardized).append(foreign)
    rebuild_topic(world.platform(), "orders")
    assert (looked, len(world.standardized("orders"))) == ([standardized], before + 1)
    rebuild_topic(world.platform(), "orders")
    assert looked == [standardized] * 2, "a table with a base is looked at again"


def test_a_row_that_another_tool_put_in_the_place_of_one_is_kept(world: World) -> None:
    processed(world, 5)
    standardized = world.databases.standardized_table("orders")
    table = world.embedded.catalog.load_table(standardized)
    rows = table.scan().to_arrow().slice(0, 1)
    replaced, foreign = rows.column("message_id")[0].as_py(), rows
    for name, text in (("record_key", "key:foreign"), ("message_id", "foreign")):
        at = foreign.column_names.index(name)
        foreign = foreign.set_column(at, foreign.field(at), pa.array([text], foreign.schema.types[at]))
    table.delete(f"message_id = '{replaced}'")
    world.embedded.catalog.load_table(standardized).append(foreign)
    rebuild_topic(world.platform(), "orders")
    assert {"foreign", replaced} <= {row["message_id"] for row in world.standardized("orders")}
