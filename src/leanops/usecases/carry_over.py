"""Keys whose newest version fails the schema keep, in a new Curated, the version the live one has for them."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from leanops.domain.snapshots import TableView, has_batch
from leanops.transforms import standardize as rows
from leanops.transforms.flatten import cells
from leanops.usecases.curate import judged_rows
from leanops.usecases.shadow import Shadow
from leanops.usecases.standardize import flatten_plan


def carry_over(shadow: Shadow) -> int:
    """Put these versions, read again from RAW, into the shadow of Curated where they pass; how many there were."""
    mark = f"{shadow.operation.operation_id}/carried"
    target = shadow.platform.catalog.load(shadow.curated)
    assert target is not None
    assert target.head is not None
    done = has_batch(target, mark)
    if done:
        return done.added_records
    live = shadow.operation.curated
    if live is None or live.snapshot is None:
        return 0
    view, snapshot = shadow.source()
    newest = shadow.lake.at(view.name, snapshot)
    stored = shadow.lake.at(shadow.live_curated, live.snapshot).select("message_id")
    older = stored.join(newest.select("message_id"), "message_id", "left_anti").persist()
    try:
        if not older.count():
            return 0
        raw = shadow.raw_rows().join(F.broadcast(older), "message_id", "left_semi")
        judged = judged_rows(shadow.schema, view, _as_standardized(shadow, view, newest, raw))
        there = shadow.lake.at(shadow.curated, target.head).select("idempotency_key")
        good = judged.where("failures IS NULL").join(there, "idempotency_key", "left_anti")
        shadow.append_good(mark, good, {})
    finally:
        older.unpersist()
    after = shadow.platform.catalog.load(shadow.curated)
    done = has_batch(after, mark) if after else None
    return done.added_records if done else 0


def _as_standardized(shadow: Shadow, view: TableView, newest: DataFrame, raw: DataFrame) -> DataFrame:
    """RAW rows in the shape of Standardized: of every key it knows the newest of these versions."""
    platform, operation = shadow.platform, shadow.operation
    plan = flatten_plan(platform, operation.topic, shadow.schema.keys, platform.rules.limits, {})
    events = rows.keyed(cells(raw, plan)).where("rule IS NULL")
    copies = Window.partitionBy("message_id").orderBy("ingestion_ts", "publish_time", "row")
    versions = Window.partitionBy("record_key").orderBy(*(F.desc(name) for name in rows.VERSION), "row")
    chosen = (
        events.withColumn("nth", F.row_number().over(copies))
        .where("nth = 1")
        .withColumn("nth", F.row_number().over(versions))
        .where("nth = 1")
        .join(newest.select("record_key", "first_seen_ts"), "record_key")
    )
    return rows.table_rows(
        chosen, topic=operation.topic, columns=view.paths, positions={}, batch_seq=0, batch_id=operation.operation_id
    )
