"""Batches at their limits: the largest payloads, and more paths than a table may have columns."""

import json
from dataclasses import replace

import pytest

from leanops.domain.table.definitions import ERRORS
from leanops.usecases.leases import hold_topic
from leanops.usecases.pipeline import standardize
from tests.support.world import Abandoned, World
from tests.unit.cycle.test_bad_input import SCHEMA, event


def test_a_batch_that_is_killed_after_its_alter_does_not_get_new_columns_again(world: World) -> None:
    world.with_rules(tables={"columns": 100, "new_columns": 3})
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", [event("m1", json.dumps({f"n{number}": number for number in range(20)}), key="k1")])

    def killed(step: str) -> None:
        if step in ("after alter", "before commit"):
            raise Abandoned

    for _ in range(3):
        with pytest.raises(Abandoned):
            world.cycle(world.platform(killed))
        world.wait_for_leases()
    result = world.cycle()["orders"]
    (row,) = world.standardized("orders")
    paths = world.platform().catalog.load(world.databases.standardized_table("orders")).paths
    assert sorted(paths) == ["$.n0", "$.n1", "$.n10"]
    assert len(json.loads(row["_rescued"])) == 17
    assert result.warnings == ["17 or more paths are beyond the column limits; their values are in _rescued"]


@pytest.mark.parametrize("contract", ["evolve", "rescue", "quarantine"])
def test_however_many_paths_a_batch_has_only_some_are_told_and_every_value_has_its_place(
    world: World, contract: str
) -> None:
    world.with_rules(tables={"columns": 5, "new_columns": 2})
    world.add("orders", json.dumps({**SCHEMA, "policies": {"unknown_fields": contract}}))
    payloads = [{"amount": 1, **{f"x{number}{at}": at for at in range(20)}} for number in range(10)]
    events = [event(f"m{at}", json.dumps(payload), key=f"k{at}") for at, payload in enumerate(payloads)]
    world.publish("orders", events)
    platform = world.platform()
    with hold_topic(platform, "orders") as held:
        begun = standardize.begin_next(held, platform.schemas.active("orders"))
        assert begun is not None
        # Every durable step says its name, and the work on rows has none.
        platform = replace(platform, step=pytest.fail)
        platform.catalog.create(world.databases.parse_errors, ERRORS)
        (written,) = platform.engine().standardize([standardize.work_of(platform, begun)])
    assert len(written.kinds) <= 5 + 1
    world.wait_for_leases()
    assert world.cycle()["orders"].outcome == "done"
    if contract == "quarantine":
        errors = world.errors(world.databases.parse_errors, "orders")
        assert [len(row["failures"]) for row in errors] == [20] * 10
        return
    view = world.platform().catalog.load(world.databases.standardized_table("orders"))
    assert len(view.paths) == 1 + (2 if contract == "evolve" else 0)
    rows = {row["message_id"]: row for row in world.standardized("orders")}
    for at, payload in enumerate(payloads):
        cells = {path: rows[f"m{at}"][name] for path, name in view.paths.items()}
        there = {path: cell for path, cell in cells.items() if cell is not None}
        rescued = json.loads(rows[f"m{at}"]["_rescued"])
        assert {**there, **rescued} == {f"$.{name}": str(value) for name, value in payload.items()}
