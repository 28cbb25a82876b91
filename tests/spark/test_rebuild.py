"""Tables made anew: equal to the model's, with the live ones whole until they are replaced."""

import json
import random
from typing import Any

import pytest

from leanops.domain.operations import Accept, Scope
from leanops.usecases.rebuild import rebuild_topic
from tests.oracle.model import Model
from tests.oracle.streams import SCHEMA, make_stream
from tests.verify import assert_tables
from tests.world import FIRST, PII_KEY, World, few_batches


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
    model = processed(world, 3)
    rebuild_topic(world.platform(), "orders", "tester", scope=scope)
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
