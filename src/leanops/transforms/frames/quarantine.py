"""Rows of the error tables: why, where the event is, and never its payload."""

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.table.batch import Batch

FAILURES = "array<struct<rule:string,column:string,path:string,message:string,value:string>>"


def error_rows(bad: DataFrame, batch: Batch, raw_table: str) -> DataFrame:
    """One row per message in the shape of the error tables; `bad` has `failures` and the message's columns."""
    first = bad.groupBy("message_id").agg(
        F.min_by(
            F.struct("record_key", "publish_time", "ingestion_ts", "failures"), F.struct("ingestion_ts", "publish_time")
        ).alias("first")
    )
    source = F.concat(F.lit(f"{raw_table}/publish_time_day="), F.date_format("first.publish_time", "yyyy-MM-dd"))
    when = F.lit(datetime.fromtimestamp(batch.batch_time_ms / 1000, UTC))
    return first.select(
        _error_id(batch.layer, batch.topic).alias("error_id"),
        F.lit(batch.topic).alias("topic_name"),
        F.lit(batch.layer).alias("layer"),
        "message_id",
        F.col("first.record_key").alias("record_key"),
        F.col("first.publish_time").alias("publish_time"),
        F.col("first.ingestion_ts").alias("ingestion_ts"),
        F.col("first.failures").cast(FAILURES).alias("failures"),
        source.alias("source"),
        F.lit(batch.batch_id).alias("batch_id"),
        F.lit(batch.schema_version).cast("int").alias("schema_version"),
        when.alias("detected_ts"),
        F.lit("OPEN").alias("status"),
        when.alias("status_ts"),
        F.lit(1).cast("int").alias("attempts"),
    )


def _error_id(layer: str, topic: str) -> Column:
    """The same text as domain.failures.error_id."""
    return F.substring(F.sha2(F.concat(F.lit(f"{layer}\n{topic}\n"), F.col("message_id")), 256), 1, 32)


def parse_failures(cells: DataFrame) -> DataFrame:
    """Rows that are no events, with their one failure."""
    return cells.where(F.col("rule").isNotNull()).select(
        "message_id",
        F.lit(None).cast("string").alias("record_key"),
        "publish_time",
        "ingestion_ts",
        F.array(
            F.struct(
                F.col("rule"),
                F.lit(None).cast("string").alias("column"),
                F.lit(None).cast("string").alias("path"),
                F.col("problem").alias("message"),
                F.lit(None).cast("string").alias("value"),
            )
        ).alias("failures"),
    )


def unknown_fields(events: DataFrame) -> DataFrame:
    """Events refused by contract, one failure per path that has no column; `refused` holds the paths."""
    failure = F.transform(
        "refused",
        lambda path: F.struct(
            F.lit("unknown_field").alias("rule"),
            F.lit(None).cast("string").alias("column"),
            path.alias("path"),
            F.lit("no column, and the contract is quarantine").alias("message"),
            F.lit(None).cast("string").alias("value"),
        ),
    )
    return events.select("message_id", "record_key", "publish_time", "ingestion_ts", failure.alias("failures"))
