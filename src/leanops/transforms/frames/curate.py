"""Standardized rows become Curated rows: defaults, CDE, casts, rules, masks; every failure of a row is listed."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.schema.model import Schema
from leanops.domain.table.sql import quoted, spark_type
from leanops.transforms import judge
from leanops.transforms.frames.quarantine import FAILURES
from leanops.transforms.frames.versions import VERSION, completed, with_order
from leanops.transforms.judge import Source

INSERTED, UPDATED, UNCHANGED, ERROR = "inserted", "updated", "unchanged", "error"
_SYSTEM = (
    "idempotency_key",
    "message_id",
    "topic_name",
    "period_reference",
    "publish_time",
    "ingestion_ts",
    "first_seen_ts",
    "last_updated_ts",
    "_version",
)


def judged(rows: DataFrame, sources: Sequence[Source], secret: bytes | None) -> DataFrame:
    """Rows with a typed column `v_{name}` each and `failures`, NULL where the row is good.

    PII is masked; `secret` is the key of the columns that are sealed, which are in clear without it.
    """
    read = dict.fromkeys(source.standardized_name for source in sources if source.standardized_name)
    chosen = completed(rows).select(*_SYSTEM, "record_key", "_rescued", *(F.col(quoted(name)) for name in read))
    kept = [f"{field.name} {field.dataType.simpleString()}" for field in chosen.schema.fields[: len(_SYSTEM) + 1]]
    values = [f"{quoted(f'v_{one.column.name}')} {spark_type(one.column.type.iceberg)}" for one in sources]
    return chosen.mapInArrow(_Judge(sources, secret), ", ".join([*kept, *values, f"failures {FAILURES}"]))


class _Judge:
    """The function that runs in the workers."""

    def __init__(self, sources: Sequence[Source], secret: bytes | None) -> None:
        self.sources, self.secret = sources, secret

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [*_SYSTEM, "record_key", *(f"v_{source.column.name}" for source in self.sources), "failures"]
        for batch in batches:
            values, failures = judge.judged(batch, self.sources, self.secret)
            kept = batch.columns[: len(_SYSTEM) + 1]
            yield pa.RecordBatch.from_arrays([*kept, *values, failures], names=names)


def verdicts(judged_rows: DataFrame, current: DataFrame | None, lookback_months: int) -> DataFrame:
    """Judged rows with `verdict`, `old_period`, and whether they are behind or move between periods."""
    if current is None:
        verdict = F.when(F.col("failures").isNotNull(), ERROR).otherwise(INSERTED)
        nothing = F.lit(False)
        return judged_rows.select(
            "*",
            verdict.alias("verdict"),
            F.lit(None).cast("string").alias("old_period"),
            nothing.alias("is_behind"),
            nothing.alias("crosses"),
            nothing.alias("is_late"),
        )
    stored = with_order(current).select(
        F.col("idempotency_key"), F.struct("period_reference", *VERSION).alias("stored")
    )
    rows = with_order(judged_rows).join(stored, "idempotency_key", "left")
    is_stored, is_bad = F.col("stored").isNotNull(), F.col("failures").isNotNull()
    is_newer = F.struct(*VERSION) > F.struct(*(F.col(f"stored.{name}") for name in VERSION))
    is_same = F.col("message_id") == F.col("stored.message_id")
    verdict = F.when(is_bad, ERROR).when(~is_stored, INSERTED).when(is_newer & ~is_same, UPDATED).otherwise(UNCHANGED)
    crosses = (verdict == UPDATED) & (F.col("period_reference") != F.col("stored.period_reference"))
    months = F.abs(_months("period_reference") - _months("stored.period_reference"))
    return rows.select(
        *judged_rows.columns,
        verdict.alias("verdict"),
        F.when(verdict == UPDATED, F.col("stored.period_reference")).alias("old_period"),
        (is_bad & is_stored & ~F.coalesce(is_same, F.lit(False))).alias("is_behind"),
        F.coalesce(crosses, F.lit(False)).alias("crosses"),
        (F.coalesce(crosses, F.lit(False)) & (months > lookback_months)).alias("is_late"),
    )


def _months(period: str) -> Column:
    return F.substring(period, 1, 4).cast("int") * 12 + F.substring(period, 6, 2).cast("int")


def table_rows(rows: DataFrame, schema: Schema, *, batch_seq: int, batch_id: str) -> DataFrame:
    """Good rows in the table's own columns."""
    return rows.select(
        *_SYSTEM,
        F.lit(schema.version).cast("int").alias("_schema_version"),
        F.lit(batch_seq).cast("bigint").alias("_batch_seq"),
        F.lit(batch_id).alias("_batch_id"),
        *(F.col(f"v_{column.name}").alias(column.name) for column in schema.payload_columns),
    )
