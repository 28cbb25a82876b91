"""Standardized rows become Curated rows: defaults, CDE, casts, rules, masks; every failure of a row is listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.failures import Rule
from leanops.domain.schema.model import PayloadColumn, Schema, TypeName
from leanops.domain.schema.regex import quick_length
from leanops.transforms.casts import cast
from leanops.transforms.mask import HIDDEN, SEALED, masked, sealed, with_key
from leanops.transforms.sql import literal, quoted
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

    def failure(rule: Rule, message: str) -> str:
        return _failure(rule, column.name, column.path, message, shown)

    found = [(is_missing, failure(Rule.CDE_MISSING, "critical, and NULL or blank"))] if column.cde else []
    if column.type.name != TypeName.STRING:
        is_no_value = f"{text} IS NOT NULL AND {value} IS NULL AND NOT {is_missing}"
        found.append((is_no_value, failure(Rule.CAST_FAILED, f"is no {column.type}")))
    for rule, condition, message in _broken_rules(column):
        is_broken = f"coalesce({condition}, false) AND {value} IS NOT NULL AND NOT {is_missing}"
        found.append((is_broken, failure(rule, message)))
    return found


def _broken_rules(column: PayloadColumn) -> list[tuple[Rule, str, str]]:
    rules, text, value = column.rules, _text(column), _value(column)
    broken = []
    if rules.min is not None:
        broken.append((Rule.RULE_MIN, _beyond(column, "<", rules.min), f"is less than {rules.min}"))
    if rules.max is not None:
        broken.append((Rule.RULE_MAX, _beyond(column, ">", rules.max), f"is more than {rules.max}"))
    if rules.allowed is not None:
        known = ", ".join(filter(None, (_known(column, one) for one in rules.allowed)))
        is_other = f"{value} NOT IN ({known})" if known else "true"
        broken.append((Rule.RULE_ALLOWED, is_other, "is not an allowed value"))
    if rules.pattern is not None:
        pattern = literal(rf"\A(?:{rules.pattern})\z")
        is_other = f"NOT {text} RLIKE {pattern}"
        quick = quick_length(rules.pattern)
        if quick is not None:
            # One long text could take hours: it fails untried. Lint asks for a max_length, but did not always.
            is_other = f"CASE WHEN length({text}) <= {quick} THEN {is_other} ELSE true END"
        if rules.max_length is not None:
            # Lint takes some patterns only for short texts: a long one could overflow Java's stack, and end it.
            is_other = f"CASE WHEN length({text}) <= {rules.max_length} THEN {is_other} ELSE false END"
        broken.append((Rule.RULE_PATTERN, is_other, "does not match the pattern"))
    if rules.min_length is not None:
        is_short = f"length({text}) < {rules.min_length}"
        broken.append((Rule.RULE_LENGTH, is_short, f"is shorter than {rules.min_length}"))
    if rules.max_length is not None:
        is_long = f"length({text}) > {rules.max_length}"
        broken.append((Rule.RULE_LENGTH, is_long, f"is longer than {rules.max_length}"))
    return broken


def _beyond(column: PayloadColumn, operator: Literal["<", ">"], limit: str) -> str:
    """Whether a value is beyond a limit. An exact limit gets the column's own type: a wider one might not hold it."""
    if not column.is_exact:
        return f"{_value(column)} {operator} {cast(literal(limit), column.type)}"
    # A limit may be finer than the column: what is less than 0.5 is, of whole numbers, what is less than 1.
    exact = _on_grid(column, limit, ROUND_CEILING if operator == "<" else ROUND_FLOOR)
    written = _written(column, exact)
    if written is None:
        return "true" if (exact > 0) == (operator == "<") else "false"
    return f"{_value(column)} {operator} {written}"


def _known(column: PayloadColumn, text: str) -> str | None:
    """An allowed value as the column has it, or None where it can have no such value."""
    if not column.is_exact:
        return cast(literal(text), column.type)
    exact = _on_grid(column, text, ROUND_FLOOR)
    return _written(column, exact) if exact == Decimal(text) else None


def _written(column: PayloadColumn, exact: Decimal) -> str | None:
    """A number in the column's own type, or None where it has too many digits for it."""
    whole, scale = _digits(column)
    return f"CAST('{exact:f}' AS DECIMAL({whole + scale},{scale}))" if abs(exact) < Decimal(10) ** whole else None


def _digits(column: PayloadColumn) -> tuple[int, int]:
    """Digits before and after the point."""
    if column.type.name == TypeName.DECIMAL:
        return column.type.precision - column.type.scale, column.type.scale
    return (10 if column.type.name == TypeName.INT else 19), 0


def _on_grid(column: PayloadColumn, number: str, rounding: str) -> Decimal:
    with localcontext(prec=400):
        return Decimal(number).quantize(Decimal(1).scaleb(-_digits(column)[1]), rounding)


def _failure(rule: Rule, column: str, path: str | None, message: str, value: str | None) -> str:
    return (
        f"named_struct('rule', {literal(rule.value)}, 'column', {literal(column)}, 'path', {literal(path)},"
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
            return F.lit(None).cast(str(column.type).lower())
    return value


def sources_of(schema: Schema, paths: Mapping[str, str], columns: Mapping[str, str]) -> list[Source]:
    """Where each payload column is read; one without a path is the Standardized column of its name."""
    return [
        Source(column, paths.get(column.path) if column.path else (column.name if column.name in columns else None))
        for column in schema.payload_columns
    ]
