"""Keys whose newest version fails the schema keep, in a new Curated, the version the live one has for them."""

from collections.abc import Mapping
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from leanops.domain.schema.model import Keys
from leanops.domain.table.history import has_batch
from leanops.transforms.frames import standardize as rows_of
from leanops.transforms.frames.flatten import cells
from leanops.transforms.frames.versions import VERSION, with_order
from leanops.usecases.operations.build_curated import append_good
from leanops.usecases.operations.shadow import Shadow
from leanops.usecases.pipeline.curate import judged_rows
from leanops.usecases.pipeline.standardize import flatten_plan
from leanops.usecases.platform import Platform

BROADCAST_KEYS = 500_000
"""Up to this many messages are sent to every task that reads RAW for them."""


def keep_older_versions(shadow: Shadow) -> None:
    """Put these versions, read again from RAW, into the shadow of Curated where they pass."""
    mark = f"{shadow.operation.operation_id}/carried"
    target = shadow.find(shadow.curated)
    live = shadow.operation.curated
    assert target is not None
    if has_batch(target, mark) or live is None or live.snapshot is None:
        return
    view, snapshot = shadow.source()
    newest = shadow.lake.at(view.name, snapshot)
    stored = shadow.lake.at(shadow.live_curated, live.snapshot).select("message_id", "publish_time")
    shadow.lake.fit(shadow.operation.standardized.rows if shadow.operation.standardized else 0)
    older = stored.join(newest.select("message_id"), "message_id", "left_anti").persist()
    held = [older]
    try:
        raw = events_of(shadow.raw_rows(), older)
        if raw is not None:
            read = as_standardized(shadow.platform, shadow.operation.topic, shadow.schema.keys, view.paths, newest, raw)
            # Each held apart: Spark would put what makes a cell into every place where the next step looks at it.
            held.append(read.persist(StorageLevel.MEMORY_AND_DISK))
            judged = judged_rows(shadow.platform, shadow.operation.topic, shadow.schema, view, read).persist(
                StorageLevel.MEMORY_AND_DISK
            )
            held.append(judged)
            there = shadow.lake.at(shadow.curated, target.head).select("idempotency_key")
            good = judged.where("failures IS NULL").join(there, "idempotency_key", "left_anti")
            append_good(shadow, mark, good, {})
    finally:
        for frame in held:
            frame.unpersist()


def events_of(raw: DataFrame, older: DataFrame) -> DataFrame | None:
    """The RAW rows of these messages; the time between them spares most payloads, which are most of RAW's bytes."""
    time = F.unix_micros("publish_time")
    found: Any = older.agg(F.count(F.lit(1)), F.min(time), F.max(time)).first()
    rows, first, last = found
    if not rows:
        return None
    between = F.col("publish_time").between(F.timestamp_micros(F.lit(first)), F.timestamp_micros(F.lit(last)))
    wanted = older.select("message_id")
    few = F.broadcast(wanted) if rows <= BROADCAST_KEYS else wanted
    return raw.where(between).join(few, "message_id", "left_semi")


def as_standardized(
    platform: Platform, topic: str, keys: Keys, paths: Mapping[str, str], newest: DataFrame, raw: DataFrame
) -> DataFrame:
    """RAW rows in the shape of Standardized: of every key it knows the newest of these versions."""
    plan = flatten_plan(platform, topic, keys, platform.rules.limits, {})
    events = cells(raw, plan).where("rule IS NULL")
    copies = Window.partitionBy("message_id").orderBy("ingestion_ts", "publish_time", "row")
    versions = Window.partitionBy("record_key").orderBy(*(F.desc(name) for name in VERSION), "row")
    current = with_order(newest).select("record_key", "first_seen_ts", F.struct(*VERSION).alias("newest"))
    chosen = (
        events.withColumn("nth", F.row_number().over(copies))
        .where("nth = 1")
        .withColumn("nth", F.row_number().over(versions))
        .where("nth = 1")
        .join(current, "record_key")
        # After a rollback Curated may be ahead of Standardized: a newer version is none to keep.
        .where(F.struct(*VERSION) < F.col("newest"))
    )
    return rows_of.table_rows(chosen, topic=topic, columns=paths, positions={}, batch_seq=0, batch_id="carried")
