"""What a schema makes of rows of Standardized, in the workers."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.table.definitions import NUMBER
from leanops.domain.table.sql import quoted, spark_type
from leanops.transforms import judge
from leanops.transforms.curate import SYSTEM
from leanops.transforms.judge import Source

FAILURES = "array<struct<rule:string,column:string,path:string,message:string,value:string>>"
_LATER = {"_version": NUMBER, "_payload_hash": "bigint"}


def completed(rows: DataFrame) -> DataFrame:
    """Rows with a NULL in the columns that a table made by an earlier version does not have yet."""
    missing = {name: F.lit(None).cast(kind) for name, kind in _LATER.items() if name not in rows.columns}
    return rows.withColumns(missing) if missing else rows


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
