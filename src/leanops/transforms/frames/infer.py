"""What cells hold: per path, how many values each candidate type takes, by the casts of Curated themselves."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.schema.infer import candidates
from leanops.domain.schema.types import ColumnType
from leanops.transforms.cast import cast
from leanops.transforms.keys import PERIOD

_SHAPES = {
    "email": r"^[^@\s]+@[^@\s]+\.[A-Za-z]{2,}\z",
    "phone": r"^\+[1-9][0-9]{0,3}[ 0-9()./-]{5,20}[0-9]\z",
    "iban": r"^[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}\z",
    "card": r"^[0-9](?:[ -]?[0-9]){12,18}\z",
}


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
    flags = ", ".join(f"{name} boolean" for name in candidates())
    read = texts.mapInArrow(_read, f"path string, text string, whole bigint, number double, {flags}")
    return read.groupBy("path").agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(~F.col("text").rlike(r"\S")).alias("blank"),
        F.approx_count_distinct("text", 0.02).alias("distinct"),
        F.max(F.length("text")).alias("longest"),
        F.count_if(F.col("text").rlike(r"^0[0-9]+\z")).alias("leading_zeros"),
        F.min("whole").alias("least"),
        F.max("whole").alias("greatest"),
        (F.floor(F.log10(F.max(F.abs("number")))) + 1).cast("int").alias("digits"),
        *(F.count_if(condition).alias(name) for name, condition in _candidates().items()),
    )


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """(path, text) with what the text is as a number, and whether each candidate takes it."""
    for batch in batches:
        texts = batch.column("text")
        held = {name: cast(texts, *tried).is_valid() for name, tried in candidates().items()}
        numbers = {"whole": cast(texts, ColumnType("BIGINT")), "number": cast(texts, ColumnType("DOUBLE"))}
        yield pa.RecordBatch.from_pydict({"path": batch.column("path"), "text": texts, **numbers, **held})


def candidate_names() -> tuple[str, ...]:
    """The columns of `measured` that count what a candidate takes."""
    return tuple(_candidates())


def _candidates() -> dict[str, Column]:
    held = {name: F.col(name) for name in candidates()}
    shapes = {f"is_{name}": F.col("text").rlike(grammar) for name, grammar in _SHAPES.items()}
    shapes["is_card"] = shapes["is_card"] & F.expr(_passes_luhn("text"))
    return {**held, **shapes, "period": F.col("text").rlike(PERIOD)}


def _passes_luhn(text: str) -> str:
    """The check digit of card numbers."""
    digits = f"reverse(split(regexp_replace({text}, '[^0-9]', ''), ''))"
    # Splitting by nothing may leave an empty piece, which is no digit.
    numbers = f"transform(filter({digits}, d -> d != ''), d -> CAST(d AS INT))"
    doubled = "CASE WHEN at % 2 = 0 THEN d WHEN d > 4 THEN 2 * d - 9 ELSE 2 * d END"
    total = f"aggregate(transform({numbers}, (d, at) -> {doubled}), 0, (sum, d) -> sum + d)"
    return f"{total} % 10 = 0"
