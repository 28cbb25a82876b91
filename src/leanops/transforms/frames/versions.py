"""The order of versions: which of two versions of a key is the newer one."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.table.definitions import NUMBER
from leanops.transforms.keys import DAY_MS

VERSION = ("_version", "last_updated_ts", "order_ts", "message_id")
"""Compared one after the other; NULL is older than any value, so that the order is total."""
_LATER = {"_version": NUMBER, "_payload_hash": "bigint"}


def completed(rows: DataFrame) -> DataFrame:
    """Rows with a NULL in the columns that a table made by an earlier version does not have yet."""
    missing = {name: F.lit(None).cast(kind) for name, kind in _LATER.items() if name not in rows.columns}
    return rows.withColumns(missing) if missing else rows


def with_order(rows: DataFrame) -> DataFrame:
    """Rows with all that VERSION names."""
    return completed(rows).withColumn("order_ts", order_time())


def is_ahead() -> Column:
    """Whether a message says it was published more than a day after it landed; never NULL."""
    ahead = (F.unix_millis("publish_time") - F.col("ingestion_ts") > DAY_MS) & (F.col("ingestion_ts") >= 0)
    return F.coalesce(ahead, F.lit(False))


def order_time() -> Column:
    """When a message was published; of one whose clock is ahead, when it landed."""
    return F.when(is_ahead(), F.timestamp_millis("ingestion_ts")).otherwise(F.col("publish_time"))
