"""Two of everything at once: zero lost, zero doubled."""

import json
import random
import threading
from dataclasses import replace

import pytest

from leanops.domain.errors import InvalidSchemaError
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.definitions import CURATED_SYSTEM_COLUMNS
from leanops.usecases.leases import acquire
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from tests.oracle.streams import SCHEMA, make_stream
from tests.support.verify import assert_settled, assert_tables, replayed
from tests.support.world import FIRST, PII_KEY, World


def test_two_cycles_at_once_share_the_topics_and_double_nothing(world: World) -> None:
    chance = random.Random(5)
    topics = [f"orders-{number}" for number in range(3)]
    for topic in topics:
        world.add(topic, json.dumps({**SCHEMA, "table_name": topic.replace("-", "_")}))
        world.publish(topic, [FIRST, *make_stream(chance, 20)])
    outcomes: list[dict[str, str]] = []

    def run() -> None:
        outcomes.append({topic: result.outcome.value for topic, result in world.cycle(world.platform()).items()})

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {found for outcome in outcomes for found in outcome.values()} <= {"done", "locked", "no_new_data", "failed"}
    world.cycle()
    for topic in topics:
        schema = {**SCHEMA, "table_name": topic.replace("-", "_")}
        model = replayed(world, topic, schema, pii_key=PII_KEY)
        assert model.totals["read"] == 21
        assert_tables(world, topic, model)
        assert_settled(world, topic)


def test_a_topic_someone_else_works_on_is_locked_and_left_alone(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", [FIRST])
    acquire(world.platform(), "topic/orders")
    assert world.cycle()["orders"].outcome == "locked"
    assert world.standardized("orders") == []
    world.wait_for_leases()
    assert world.cycle()["orders"].layers.keys() == {STANDARDIZED, CURATED}


def test_events_that_arrive_during_a_cycle_wait_for_the_next_one(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    rows = make_stream(random.Random(8), 30)
    world.publish("orders", [FIRST, *rows[:10]])
    late = iter([rows[10:]])

    def arrive(step: str) -> None:
        if step == "before commit":
            for batch in late:
                world.publish("orders", batch)

    first = world.cycle(world.platform(step=arrive))["orders"]
    assert first.layers[STANDARDIZED].counts["read"] == 11
    assert world.cycle()["orders"].layers[STANDARDIZED].counts["read"] == 20
    assert_tables(world, "orders", replayed(world, "orders", SCHEMA, pii_key=PII_KEY))


def test_a_column_the_schema_lets_go_of_leaves_only_with_a_rebuild(world: World) -> None:
    both = [{"name": "id", "path": "$.id", "type": "STRING"}, {"name": "x", "path": "$.x", "type": "INT"}]
    without = json.dumps({**SCHEMA, "payload_columns": both[:1]})
    world.add("orders", json.dumps({**SCHEMA, "payload_columns": both}))
    for number in range(2):
        payload = json.dumps({"id": "a", "x": 1, "_metadata": {"idempotencyKeyResource": f"k{number}"}})
        world.publish("orders", [replace(FIRST, message_id=f"m{number}", json_payload=payload)])
        assert world.cycle()["orders"].outcome == "done"
        with pytest.raises(InvalidSchemaError, match="breaking: x removed"):
            world.add("orders", without)
    assert {row["x"] for row in world.curated("orders")} == {1}
    deploy_schema(world.platform(), "orders", without, "schema.json", Consent(rebuild=True))
    assert [sorted(row) for row in world.curated("orders")] == [sorted([*CURATED_SYSTEM_COLUMNS, "id"])] * 2
