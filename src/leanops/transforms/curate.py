"""Standardized rows become Curated rows: defaults, CDE, casts, rules, masks; every failure of a row is listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.failures import Rule
from leanops.domain.schema import PayloadColumn, Schema, TypeName
from leanops.transforms.casts import cast
from leanops.transforms.mask import HIDDEN, masked, sealed

INSERTED, UPDATED, UNCHANGED, ERROR = "inserted", "updated", "unchanged", "error"
VERSION = ("last_updated_ts", "publish_time", "message_id")
_FAILURES = "array<struct<rule:string,column:string,path:string,message:string,value:string>>"
_LONGEST_VALUE = 256
_SYSTEM = (
    "idempotency_key",
    "message_id",
    "topic_name",
    "period_reference",
    "publish_time",
    "ingestion_ts",
    "first_seen_ts",
    "last_updated_ts",
)


@dataclass(frozen=True)
class Source:
    """Where the text of a payload column stands in Standardized."""

    column: PayloadColumn
    standardized_name: str | None

    def text(self) -> Column:
        """The column's text, from its Standardized column or else from `_rescued`; its default where both are NULL."""
        found = [F.col(f"`{self.standardized_name}`")] if self.standardized_name else []
        if self.column.path:
            rescued = F.from_json("_rescued", "map<string,string>").getItem(self.column.path)
            found.append(F.when(F.col("_rescued").isNotNull(), rescued))
        if self.column.default is not None:
            found.append(F.lit(self.column.default))
        return F.coalesce(*found)


def judged(rows: DataFrame, sources: Sequence[Source]) -> DataFrame:
    """Rows with a typed column `v_{name}` each and `failures`, NULL where the row is good."""
    texts = rows.select(*_SYSTEM, "record_key", *(s.text().alias(f"t_{s.column.name}") for s in sources))
    typed = texts.select("*", *(_typed(source.column).alias(f"v_{source.column.name}") for source in sources))
    failures = [_missing_key(), *(failure for source in sources for failure in _failures(source.column))]
    is_bad = F.lit(False)
    for condition, _ in failures:
        is_bad = is_bad | condition
    listed = F.filter(
        F.array(*(F.when(condition, described) for condition, described in failures)), lambda f: f.isNotNull()
    )
    return typed.withColumn("failures", F.when(is_bad, listed).cast(_FAILURES))


def _typed(column: PayloadColumn) -> Column:
    return cast(F.col(f"t_{column.name}"), column.type, column.format)


def _missing_key() -> tuple[Column, Column]:
    return F.col("idempotency_key").isNull(), _failure(Rule.CDE_MISSING, "idempotency_key", None, "no usable key", None)


def _failures(column: PayloadColumn) -> list[tuple[Column, Column]]:
    """(condition, failure) for everything that can be wrong with a column; conditions are never NULL."""
    text, value = F.col(f"t_{column.name}"), F.col(f"v_{column.name}")
    is_missing = text.isNull() | ~text.rlike(r"\S") if column.cde else F.lit(False)
    shown = F.lit(HIDDEN) if column.pii else F.substring(text, 1, _LONGEST_VALUE)

    def failure(rule: Rule, message: str) -> Column:
        return _failure(rule, column.name, column.path, message, shown)

    found = [(is_missing, failure(Rule.CDE_MISSING, "critical, and NULL or blank"))] if column.cde else []
    if column.type.name != TypeName.STRING:
        found.append(
            (text.isNotNull() & value.isNull() & ~is_missing, failure(Rule.CAST_FAILED, f"is no {column.type}"))
        )
    for rule, condition, message in _broken_rules(column, text, value):
        found.append((F.coalesce(condition, F.lit(False)) & value.isNotNull() & ~is_missing, failure(rule, message)))
    return found


def _broken_rules(column: PayloadColumn, text: Column, value: Column) -> list[tuple[Rule, Column, str]]:
    rules = column.rules

    def typed(literal: str) -> Column:
        # A limit may be finer than the column: 0.5 is a limit for an INT.
        return F.lit(Decimal(literal)) if column.is_exact else cast(F.lit(literal), column.type)

    broken = []
    if rules.min is not None:
        broken.append((Rule.RULE_MIN, value < typed(rules.min), f"is less than {rules.min}"))
    if rules.max is not None:
        broken.append((Rule.RULE_MAX, value > typed(rules.max), f"is more than {rules.max}"))
    if rules.allowed is not None:
        broken.append(
            (Rule.RULE_ALLOWED, ~value.isin([typed(one) for one in rules.allowed]), "is not an allowed value")
        )
    if rules.pattern is not None:
        broken.append((Rule.RULE_PATTERN, ~text.rlike(rf"\A(?:{rules.pattern})\z"), "does not match the pattern"))
    if rules.min_length is not None:
        broken.append((Rule.RULE_LENGTH, F.length(text) < rules.min_length, f"is shorter than {rules.min_length}"))
    if rules.max_length is not None:
        broken.append((Rule.RULE_LENGTH, F.length(text) > rules.max_length, f"is longer than {rules.max_length}"))
    return broken


def _failure(rule: Rule, column: str, path: str | None, message: str, value: Column | None) -> Column:
    return F.struct(
        F.lit(rule.value).alias("rule"),
        F.lit(column).alias("column"),
        F.lit(path).cast("string").alias("path"),
        F.lit(message).alias("message"),
        (F.lit(None) if value is None else value).cast("string").alias("value"),
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
    stored = current.select("idempotency_key", "period_reference", *VERSION).select(
        F.col("idempotency_key"), F.struct("period_reference", *VERSION).alias("stored")
    )
    rows = judged_rows.join(stored, "idempotency_key", "left")
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
    """Good rows in the table's own columns, PII masked."""
    return rows.select(
        *_SYSTEM,
        F.lit(schema.version).cast("int").alias("_schema_version"),
        F.lit(batch_seq).cast("bigint").alias("_batch_seq"),
        F.lit(batch_id).alias("_batch_id"),
        *(_protected(column, secret).alias(column.name) for column in schema.payload_columns),
    )


def _protected(column: PayloadColumn, secret: bytes | None) -> Column:
    value = F.col(f"v_{column.name}")
    match column.pii:
        case "hmac":
            assert secret is not None, "checked when the schema was deployed"
            return sealed(value, secret)
        case "mask":
            return masked(value)
        case "drop":
            return F.lit(None).cast(str(column.type).lower())
    return value


def sources_of(schema: Schema, paths: Mapping[str, str], columns: Mapping[str, str]) -> list[Source]:
    """Where each payload column is read; one without a path is the Standardized column of its name."""
    return [
        Source(column, paths.get(column.path) if column.path else (column.name if column.name in columns else None))
        for column in schema.payload_columns
    ]
