"""Payloads that go through Spark to Python: in pieces that Arrow can hold."""

import json
from datetime import UTC, datetime

from pyspark.sql import functions as F

from leanops.adapters.iceberg.session import ROWS_PER_ARROW_BATCH
from leanops.domain.limits import Limits
from leanops.runtimes.embedded import Embedded
from leanops.transforms.flatten import FlattenPlan, Telling
from leanops.transforms.frames.flatten import cells


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
