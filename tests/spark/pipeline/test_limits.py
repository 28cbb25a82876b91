"""Batches at their limits: the largest payloads, and more paths than a table may have columns."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from leanops.adapters.iceberg.session import ROWS_PER_ARROW_BATCH
from leanops.domain.limits import Limits
from leanops.domain.table.definitions import ERRORS
from leanops.runtimes.embedded import Embedded
from leanops.transforms.flatten import FlattenPlan, Telling
from leanops.transforms.frames.flatten import cells
from leanops.usecases.leases import hold_topic
from leanops.usecases.pipeline import standardize
from tests.spark.pipeline.test_bad_input import SCHEMA, event
from tests.support.world import Abandoned, World


def test_a_batch_of_the_largest_payloads_goes_to_python_in_pieces_that_arrow_can_hold(embedded: Embedded) -> None:
    spark, rows = embedded.spark(), ROWS_PER_ARROW_BATCH + 100
    payload = F.concat(F.lit('{"a":"'), F.repeat(F.lit("x"), 900_000), F.lit('"}'))
    raw = spark.range(0, rows, 1, 1).select(
        F.col("id").cast("string").alias("message_id"),
        F.current_timestamp().alias("publish_time"),
        F.lit(1).cast("long").alias("ingestion_ts"),
        F.lit(None).cast("string").alias("idempotency_key"),
        payload.alias("json_payload"),
    )
    plan = FlattenPlan({}, Limits(), "$.id", (), None)
    found = cells(raw, plan).agg(F.count("observed").alias("pieces"), F.count(F.lit(1)).alias("rows")).first()
    assert found.rows == rows
    # Spark 4.1 cuts by bytes as well, so it makes more of them.
    assert found.pieces == 2 if spark.version.startswith("3.5") else found.pieces > 2


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


def test_a_worker_tells_the_driver_of_no_more_paths_than_could_get_a_column(embedded: Embedded) -> None:
    payloads = [json.dumps({"known": 1, **{f"x{number}{at}": at for at in range(20)}}) for number in range(10)]
    raw = embedded.spark().createDataFrame(
        [(payload, datetime(2026, 1, 1, tzinfo=UTC), 1, None, payload) for payload in payloads],
        "message_id string, publish_time timestamp, ingestion_ts long, idempotency_key string, json_payload string",
    )
    plan = FlattenPlan({}, Limits(), "$.id", (), None, telling=Telling(frozenset({"$.known"}), 5))
    told = [json.loads(row.observed) for row in cells(raw, plan).where("observed IS NOT NULL").collect()]
    assert {len(paths) for paths in told} == {1 + 5}
    assert all("$.known" in paths for paths in told)


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
