"""RAW cells become Standardized rows: both dedups in one shuffle, columns by path."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.transforms.frames.versions import with_order
from leanops.transforms.verdicts import INSERTED, UPDATED
from leanops.transforms.verdicts import verdicts as judge

_COMPARED = ("message_id", "_version", "last_updated_ts", "publish_time", "order_ts", "_payload_hash")
_VERDICT = "row bigint, record_key string, verdict string, first_seen_ts bigint, old_period string, is_conflict boolean"


def verdicts(events: DataFrame, current: DataFrame | None) -> DataFrame:
    """What becomes of each valid event: (row, record_key, verdict, first_seen_ts, old_period, is_conflict).

    `current` holds the stored rows of these keys; every event is judged against them and its own batch.
    """
    rows = events.select("row", "record_key", *_COMPARED, *_as_arrival())
    if current is not None:
        rows = rows.unionByName(with_order(current).select("record_key", *_COMPARED, *_as_stored()))
    # A verdict needs all rows of a key in one partition, and nothing but this line brings them together.
    return rows.repartition("record_key").mapInArrow(_judge, _VERDICT)


def _judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that runs in the workers: a partition has all rows of its keys."""
    rows = list(batches)
    if rows:
        yield from judge(pa.Table.from_batches(rows)).drop_columns(["stored_row"]).to_batches()


def _as_arrival() -> list[Column]:
    return [
        F.lit(False).alias("is_stored"),
        F.col("ingestion_ts").alias("seen_ts"),
        F.lit(None).cast("string").alias("stored_period"),
    ]


def _as_stored() -> list[Column]:
    return [
        F.lit(-1).cast("bigint").alias("row"),
        F.lit(True).alias("is_stored"),
        F.col("first_seen_ts").alias("seen_ts"),
        F.col("period_reference").alias("stored_period"),
    ]


def with_refused(events: DataFrame, columns: Mapping[str, str], positions: Mapping[str, str]) -> DataFrame:
    """Events with the paths that have no column in `refused`, NULL where an event has none of them."""
    expected = [F.when(F.col(at).isNotNull(), F.lit(path)) for path, at in positions.items() if path not in columns]
    known = F.array(*(F.lit(path) for path in columns)).cast("array<string>")
    others = F.coalesce(F.array_except(F.map_keys("extra"), known), F.array().cast("array<string>"))
    found = F.concat(F.filter(F.array(*expected).cast("array<string>"), lambda path: path.isNotNull()), others)
    return events.withColumn("refused", F.when(F.size(found) > 0, F.array_sort(found)))


def winners(events: DataFrame, verdicts: DataFrame) -> DataFrame:
    """The events that change the table, each with its key's first_seen_ts."""
    chosen = verdicts.where(F.col("verdict").isin(INSERTED, UPDATED)).select("row", "first_seen_ts")
    return events.join(F.broadcast(chosen), "row", "inner")


def table_rows(
    events: DataFrame,
    *,
    topic: str,
    columns: Mapping[str, str],
    positions: Mapping[str, str],
    batch_seq: int,
    batch_id: str,
) -> DataFrame:
    """Rows in the table's own columns: `columns` names each path, `positions` says which cell column holds it."""
    system: list[Column | str] = [
        "record_key",
        "idempotency_key",
        "message_id",
        F.lit(topic).alias("topic_name"),
        "period_reference",
        "publish_time",
        "ingestion_ts",
        "last_updated_ts",
        "first_seen_ts",
        _rescued([path for path in positions if path not in columns], columns, positions).alias("_rescued"),
        "_version",
        "_payload_hash",
        F.lit(batch_seq).cast("bigint").alias("_batch_seq"),
        F.lit(batch_id).alias("_batch_id"),
    ]
    payload = [_cell(path, positions).alias(name) for path, name in columns.items()]
    return events.select(*system, *payload)


def _cell(path: str, positions: Mapping[str, str]) -> Column:
    if path in positions:
        return F.col(positions[path])
    return F.col("extra").getItem(path)


def _rescued(without_column: Sequence[str], columns: Mapping[str, str], positions: Mapping[str, str]) -> Column:
    """Cells that got no column, as JSON of path → text; NULL when there are none."""
    known = F.array(*(F.lit(path) for path in columns)) if columns else F.array().cast("array<string>")
    unnamed = F.map_filter("extra", lambda path, _: ~F.array_contains(known, path))
    pairs = [F.struct(F.lit(path).alias("key"), F.col(positions[path]).alias("value")) for path in without_column]
    if pairs:
        present = F.filter(F.array(*pairs), lambda pair: pair["value"].isNotNull())
        extra = F.coalesce(unnamed, F.create_map().cast("map<string,string>"))
        unnamed = F.map_concat(extra, F.map_from_entries(present))
    return F.when(F.size(unnamed) > 0, F.to_json(unnamed))
