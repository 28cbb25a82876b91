"""Standardized rows become Curated rows: defaults, CDE, casts, rules, masks; every failure of a row is listed."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.schema.model import Schema
from leanops.domain.table.sql import quoted, spark_type
from leanops.transforms import judge
from leanops.transforms.curate import SYSTEM
from leanops.transforms.frames.versions import completed
from leanops.transforms.judge import Source

FAILURES = "array<struct<rule:string,column:string,path:string,message:string,value:string>>"


def judged(rows: DataFrame, sources: Sequence[Source], secret: bytes | None) -> DataFrame:
    """Rows with a typed column `v_{name}` each and `failures`, NULL where the row is good.

    PII is masked; `secret` is the key of the columns that are sealed, which are in clear without it.
    """
    read = dict.fromkeys(source.standardized_name for source in sources if source.standardized_name)
    chosen = completed(rows).select(*SYSTEM, "record_key", "_rescued", *(F.col(quoted(name)) for name in read))
    kept = [f"{field.name} {field.dataType.simpleString()}" for field in chosen.schema.fields[: len(SYSTEM) + 1]]
    values = [f"{quoted(f'v_{one.column.name}')} {spark_type(one.column.type.iceberg)}" for one in sources]
    return chosen.mapInArrow(_Judge(sources, secret), ", ".join([*kept, *values, f"failures {FAILURES}"]))


class _Judge:
    """The function that runs in the workers."""

    def __init__(self, sources: Sequence[Source], secret: bytes | None) -> None:
        self.sources, self.secret = sources, secret

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [*SYSTEM, "record_key", *(f"v_{source.column.name}" for source in self.sources), "failures"]
        for batch in batches:
            values, failures = judge.judged(batch, self.sources, self.secret)
            kept = batch.columns[: len(SYSTEM) + 1]
            yield pa.RecordBatch.from_arrays([*kept, *values, failures], names=names)


def table_rows(rows: DataFrame, schema: Schema, *, batch_seq: int, batch_id: str) -> DataFrame:
    """Good rows in the table's own columns."""
    return rows.select(
        *SYSTEM,
        F.lit(schema.version).cast("int").alias("_schema_version"),
        F.lit(batch_seq).cast("bigint").alias("_batch_seq"),
        F.lit(batch_id).alias("_batch_id"),
        *(F.col(f"v_{column.name}").alias(column.name) for column in schema.payload_columns),
    )
