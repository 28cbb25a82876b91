"""Standardized rows become Curated rows: defaults, CDE, casts, rules, masks; every failure of a row is listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.failures import Rule
from leanops.domain.schema.model import PayloadColumn, Schema
from leanops.domain.schema.rules import RULES, Cell
from leanops.domain.schema.types import TEXT, cast
from leanops.domain.table.sql import literal, quoted, spark_type
from leanops.transforms.mask import HIDDEN, SEALED, masked, sealed, with_key
from leanops.transforms.versions import VERSION, completed, with_order

INSERTED, UPDATED, UNCHANGED, ERROR = "inserted", "updated", "unchanged", "error"
_LONGEST_VALUE = 256
_NOT_BLANK = r"\S"
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


@dataclass(frozen=True)
class Source:
    """Where the text of a payload column stands in Standardized."""

    column: PayloadColumn
    standardized_name: str | None

    def text(self) -> str:
        """The column's text, from its Standardized column or else from `_rescued`; its default where both are NULL."""
        found = [quoted(self.standardized_name)] if self.standardized_name else []
        if self.column.path:
            rescued = f"from_json(_rescued, 'map<string,string>')[{literal(self.column.path)}]"
            found.append(f"CASE WHEN _rescued IS NOT NULL THEN {rescued} END")
        if self.column.default is not None:
            found.append(literal(self.column.default))
        return f"coalesce({', '.join(found)})"


def judged(rows: DataFrame, sources: Sequence[Source]) -> DataFrame:
    """Rows with a typed column `v_{name}` each and `failures`, NULL where the row is good."""
    columns = [source.column for source in sources]
    texts = [f"{source.text()} AS {_text(source.column)}" for source in sources]
    values = [f"{cast(_text(column), column.type, column.format)} AS {_value(column)}" for column in columns]
    failures = [_missing_key(), *(failure for column in columns for failure in _failures(column))]
    is_bad = " OR ".join(f"({condition})" for condition, _ in failures)
    listed = ", ".join(f"CASE WHEN {condition} THEN {described} END" for condition, described in failures)
    listed_failures = f"CASE WHEN {is_bad} THEN filter(array({listed}), f -> f IS NOT NULL) END AS failures"
    # Texts go once they are judged: who keeps these rows would keep every cell twice.
    return (
        completed(rows)
        .selectExpr(*_SYSTEM, "record_key", *texts)
        .selectExpr("*", *values)
        .selectExpr(*_SYSTEM, "record_key", *map(_value, columns), listed_failures)
    )


def _text(column: PayloadColumn) -> str:
    return quoted(f"t_{column.name}")


def _value(column: PayloadColumn) -> str:
    return quoted(f"v_{column.name}")


def _missing_key() -> tuple[str, str]:
    return "idempotency_key IS NULL", _failure(Rule.CDE_MISSING, "idempotency_key", None, "no usable key", None)


def _failures(column: PayloadColumn) -> list[tuple[str, str]]:
    """(condition, failure) for everything that can be wrong with a column; conditions are never NULL."""
    text, value = _text(column), _value(column)
    is_missing = f"({text} IS NULL OR NOT {text} RLIKE {literal(_NOT_BLANK)})" if column.cde else "false"
    shown = literal(HIDDEN) if column.pii else f"substring({text}, 1, {_LONGEST_VALUE})"

    def failure(rule: str, message: str) -> str:
        return _failure(rule, column.name, column.path, message, shown)

    found = [(is_missing, failure(Rule.CDE_MISSING, "critical, and NULL or blank"))] if column.cde else []
    if column.type != TEXT:
        is_no_value = f"{text} IS NOT NULL AND {value} IS NULL AND NOT {is_missing}"
        found.append((is_no_value, failure(Rule.CAST_FAILED, f"is no {column.type}")))
    limits = column.rules.written
    for name, limit in limits.items():
        rule = RULES[name]
        condition = rule.is_broken(Cell(text, value, column.type, limits), limit)
        is_broken = f"coalesce({condition}, false) AND {value} IS NOT NULL AND NOT {is_missing}"
        found.append((is_broken, failure(rule.reports, rule.says.format(limit))))
    return found


def _failure(rule: str, column: str, path: str | None, message: str, value: str | None) -> str:
    return (
        f"named_struct('rule', {literal(rule)}, 'column', {literal(column)}, 'path', {literal(path)},"
        f" 'message', {literal(message)}, 'value', {value or literal(None)})"
    )


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


def table_rows(rows: DataFrame, schema: Schema, *, batch_seq: int, batch_id: str, secret: bytes | None) -> DataFrame:
    """Good rows in the table's own columns, PII masked; `secret` is the key of the columns that are sealed."""
    return (with_key(rows, secret) if secret else rows).select(
        *_SYSTEM,
        F.lit(schema.version).cast("int").alias("_schema_version"),
        F.lit(batch_seq).cast("bigint").alias("_batch_seq"),
        F.lit(batch_id).alias("_batch_id"),
        *(_protected(column, schema).alias(column.name) for column in schema.payload_columns),
    )


def _protected(column: PayloadColumn, schema: Schema) -> Column:
    value = F.col(f"v_{column.name}")
    match column.pii:
        case "hmac" if schema.reads_sealed_key(column):
            # Standardized holds the HMAC there, but for rows from before it sealed that column: they hold the text.
            return F.when(value.rlike(SEALED), value).otherwise(sealed(value))
        case "hmac":
            return sealed(value)
        case "mask":
            return masked(value)
        case "drop":
            return F.lit(None).cast(spark_type(column.type.iceberg))
    return value


def sources_of(schema: Schema, paths: Mapping[str, str], columns: Mapping[str, str]) -> list[Source]:
    """Where each payload column is read; one without a path is the Standardized column of its name."""
    return [
        Source(column, paths.get(column.path) if column.path else (column.name if column.name in columns else None))
        for column in schema.payload_columns
    ]
