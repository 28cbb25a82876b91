"""Operations give the Curated that cycles would have given: of each key the newest version that passes."""

import json
from typing import Any

import pytest

from leanops.domain.table.operation import Scope
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from leanops.views.balance import whole_topic
from tests.oracle.rows import LANDED, RawRow
from tests.oracle.streams import SCHEMA
from tests.support.verify import sources_of
from tests.support.world import FIRST, World

SCHEMA_TEXT = json.dumps(
    {
        **SCHEMA,
        "payload_columns": [{"name": "amount", "path": "$.amount", "type": "INT"}],
        "keys": {"idempotency_key": "$.key", "version": "$.at"},
    }
)


def version(day: int, amount: object, key: str = "k") -> RawRow:
    text = json.dumps({"key": key, "at": f"2024-01-{day:02}T00:00:00Z", "amount": amount})
    published = FIRST.publish_time.replace(day=day)
    return RawRow(f"{key}-{day}", published, "orders", text, LANDED + day)


def amounts(world: World) -> dict[str, int]:
    return {row["idempotency_key"]: row["amount"] for row in world.curated("orders")}


def stricter(version: int, **rules: Any) -> str:
    schema = json.loads(SCHEMA_TEXT)
    schema["version"], schema["payload_columns"][0]["rules"] = version, rules
    return json.dumps(schema)


@pytest.fixture
def orders(world: World) -> World:
    """Three keys: of two the newest version fails, and of one of those an older good one was never in Curated."""
    world.add("orders", SCHEMA_TEXT)
    for batch in (
        [version(1, 1), version(2, 20), version(3, 3), version(4, "x")],
        [version(1, 5, "behind"), version(2, "y", "behind"), version(1, 7, "good")],
    ):
        world.publish("orders", batch)
        world.cycle()
    assert amounts(world) == {"k": 3, "behind": 5, "good": 7}
    return world


@pytest.mark.parametrize("scope", [Scope.BOTH, Scope.CURATED])
def test_a_rebuild_gives_what_the_cycles_gave(orders: World, scope: Scope) -> None:
    before = {row["idempotency_key"]: {**row, "_batch_seq": 0, "_batch_id": ""} for row in orders.curated("orders")}
    compared = rebuild_topic(orders.platform(), "orders", scope=scope)
    after = {row["idempotency_key"]: {**row, "_batch_seq": 0, "_batch_id": ""} for row in orders.curated("orders")}
    assert after == before
    assert compared is not None
    assert compared.checksum_after == compared.checksum_before
    assert whole_topic(sources_of(orders), "orders").complaints() == []
    orders.publish("orders", [version(5, 50), version(6, "z")])
    assert orders.cycle()["orders"].outcome == "done"
    assert amounts(orders) == {"k": 50, "behind": 5, "good": 7}


def test_a_stricter_schema_and_back_is_a_round_trip(orders: World) -> None:
    # Under the stricter schema an older version of k passes that was never in Curated.
    strict = deploy_schema(orders.platform(), "orders", stricter(2, min=4), "f", Consent(recurate=True))
    assert strict is not None
    assert amounts(orders) == {"k": 20, "behind": 5, "good": 7}
    assert whole_topic(sources_of(orders), "orders").complaints() == []
    deploy_schema(orders.platform(), "orders", stricter(3), "f", Consent(recurate=True))
    assert amounts(orders) == {"k": 3, "behind": 5, "good": 7}
    errors = {row["message_id"]: row for row in orders.errors(orders.databases.errors, "orders")}
    assert errors.keys() >= {"k-4", "behind-2"}
    assert whole_topic(sources_of(orders), "orders").complaints() == []
