"""What cells hold: per path, how many values each candidate type takes, by the casts of Curated themselves."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.schema.infer import candidates
from leanops.domain.schema.types import ColumnType
from leanops.transforms.cast import cast
from leanops.transforms.judge import NOT_BLANK
from leanops.transforms.shapes import SHAPES, shapes

_COUNTED = (*candidates(), *SHAPES, "blank")


def texts(events: DataFrame, positions: Mapping[str, str]) -> DataFrame:
    """Every cell of the events as (path, text)."""
    known = [F.struct(F.lit(path).alias("path"), F.col(column).alias("text")) for path, column in positions.items()]
    others = F.transform(
        F.map_entries("extra"), lambda one: F.struct(one["key"].alias("path"), one["value"].alias("text"))
    )
    nothing = F.array().cast("array<struct<path:string,text:string>>")
    cells = F.concat(F.array(*known) if known else nothing, F.coalesce(others, nothing))
    return events.select(F.explode(cells).alias("cell")).select("cell.path", "cell.text").where("text IS NOT NULL")


def measured(texts: DataFrame) -> DataFrame:
    """One row per path: counts of its values, and of those each candidate takes."""
    flags = ", ".join(f"{name} boolean" for name in _COUNTED)
    read = texts.mapInArrow(_read, f"path string, text string, whole bigint, number double, {flags}")
    return read.groupBy("path").agg(
        F.count(F.lit(1)).alias("events"),
        F.approx_count_distinct("text", 0.02).alias("distinct"),
        F.max(F.length("text")).alias("longest"),
        F.min("whole").alias("least"),
        F.max("whole").alias("greatest"),
        (F.floor(F.log10(F.max(F.abs("number")))) + 1).cast("int").alias("digits"),
        *(F.count_if(F.col(name)).alias(name) for name in _COUNTED),
    )


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """(path, text) with what the text is as a number, whether each candidate takes it, and what it looks like."""
    for batch in batches:
        texts = batch.column("text")
        held = {name: cast(texts, *tried).is_valid() for name, tried in candidates().items()}
        numbers = {"whole": cast(texts, ColumnType("BIGINT")), "number": cast(texts, ColumnType("DOUBLE"))}
        blank = pc.invert(pc.match_substring_regex(texts, NOT_BLANK))
        columns = {"path": batch.column("path"), "text": texts, **numbers, **held, **shapes(texts), "blank": blank}
        yield pa.RecordBatch.from_pydict(columns)


def candidate_names() -> tuple[str, ...]:
    """The columns of `measured` that count what a candidate takes."""
    return tuple(name for name in _COUNTED if name not in ("blank", "leading_zeros"))
