"""Rows under two schemas at once: what a new one makes of them, beside what the active one does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.domain.failures import Rule
from leanops.domain.schema.model import PayloadColumn
from leanops.domain.table.sql import quoted, spark_type
from leanops.transforms.frames.curate import judged
from leanops.transforms.judge import Source

# No column can have a point in its name, so these columns of the active schema meet none of the new one.
_TODAY = "today."
KEY = "idempotency_key"


@dataclass(frozen=True)
class Both:
    """Columns of the new schema, and those of the active one that it does not judge alike."""

    new: Sequence[Source]
    active: Sequence[Source] = ()
    keeps_key: bool = True
    """Whether a row that has no key under the new schema has none today."""
    by_key: bool = False
    """Whether a key may be made from another message than today."""

    @property
    def today(self) -> list[Source]:
        """What only the active schema says, under names of its own."""
        known = [_judgement(source) for source in self.new]
        alone = [source for source in self.active if _judgement(source) not in known]
        return [replace(one, column=one.column.model_copy(update={"name": _TODAY + one.column.name})) for one in alone]

    @property
    def only_new(self) -> list[str]:
        """Names of the columns whose failures say nothing about today."""
        known = [_judgement(source) for source in self.active]
        alone = [source.column.name for source in self.new if _judgement(source) not in known]
        return alone if self.keeps_key else [*alone, KEY]


def _judgement(source: Source) -> tuple[PayloadColumn, str | None]:
    """All that decides what becomes of a text."""
    return source.column.model_copy(update={"description": None}), source.standardized_name


def outcomes(rows: DataFrame, both: Both, live: Mapping[str, bool] | None) -> DataFrame:
    """Per row: message_id, key, id, failures under the new schema, whether it fails today, and `values`, a fingerprint.

    `live` tells of each payload column of Curated whether its values can be compared with the new schema's.
    """
    said = judged(rows, [*both.new, *both.today], None)
    is_today = F.array(*(F.lit(name) for name in both.only_new)).cast("array<string>")
    news = F.filter("failures", lambda failure: ~failure["column"].startswith(_TODAY))
    return said.select(
        "message_id",
        KEY,
        _identity(both).alias("id"),
        F.when(F.size(news) > 0, news).alias("failures"),
        F.coalesce(
            F.exists("failures", lambda failure: ~F.array_contains(is_today, failure["column"])), F.lit(False)
        ).alias("fails_today"),
        _fingerprint([*_system(), *(_new_value(column, both, live) for column in _compared(both, live))]).alias(
            "values"
        ),
    )


def live_rows(curated: DataFrame, both: Both, live: Mapping[str, bool]) -> DataFrame:
    """Rows of Curated as `id`, `live_message` and `live`, the fingerprint to compare with `values`."""
    known = curated.select(
        _identity(both).alias("id"),
        F.xxhash64("message_id").alias("live_message"),
        _fingerprint([*_system(), *(_live_value(column, both, live) for column in _compared(both, live))]).alias(
            "live"
        ),
    )
    return known if both.keeps_key else known.dropDuplicates(["id"])


def totals(outcomes: DataFrame, live: DataFrame | None) -> DataFrame:
    """One row of counts."""
    nothing = F.lit(None).cast("bigint")
    rows = (
        outcomes.withColumns({"live": nothing, "live_message": nothing})
        if live is None
        else outcomes.join(live, "id", "left")
    )
    fails, is_live = F.col("failures").isNotNull(), F.col("live").isNotNull()
    is_same = is_live & (F.col("live_message") == F.xxhash64("message_id"))
    return rows.agg(
        F.count(F.lit(1)).alias("judged"),
        F.count_if(fails).alias("failing"),
        F.count_if("fails_today").alias("failing_today"),
        F.count_if(F.exists("failures", lambda failure: failure["rule"] == Rule.CDE_MISSING.value)).alias(
            "cde_missing"
        ),
        F.count_if(fails & is_same).alias("leaving"),
        F.count_if(~fails & F.col("fails_today")).alias("resolved"),
        F.count_if(~fails & is_live & (~is_same | (F.col("live") != F.col("values")))).alias("changed"),
    )


def failure_groups(outcomes: DataFrame) -> DataFrame:
    """Failures by rule and column with how many rows have them, and up to three of those."""
    found = outcomes.select("message_id", F.explode("failures").alias("failure"))
    example = F.struct("message_id", "failure.value")
    anywhere = F.struct(F.xxhash64("message_id").alias("hash"), "message_id", "failure.value")
    return found.groupBy("failure.rule", "failure.column").agg(
        F.min("failure.message").alias("message"),
        F.count(F.lit(1)).alias("rows"),
        F.min(example).alias("first"),
        F.max(example).alias("last"),
        F.min(anywhere).alias("other"),
    )


def presence(rows: DataFrame, paths: Mapping[str, str], wanted: Sequence[str]) -> DataFrame:
    """One row that says of each wanted path whether any row has it, in its column or in `_rescued`."""
    rescued = F.from_json("_rescued", "map<string,string>")

    def has(path: str) -> Column:
        is_rescued = F.coalesce(rescued.getItem(path).isNotNull(), F.lit(False))
        return F.col(quoted(paths[path])).isNotNull() | is_rescued if path in paths else is_rescued

    # A schema may name no path at all, and an aggregate needs a column.
    return rows.agg(*(F.max(has(path)).alias(f"has{at}") for at, path in enumerate(wanted)), F.count(F.lit(1)))


def sampled(rows: DataFrame, key: str, share: float) -> DataFrame:
    """About this share of the rows, the same ones every time."""
    parts = 1_000_000
    return rows.where(F.pmod(F.xxhash64(key), F.lit(parts)) < int(share * parts)) if share < 1 else rows


def _identity(both: Both) -> Column:
    if both.by_key:
        return F.xxhash64(KEY)
    return F.xxhash64(KEY, "message_id") if both.keeps_key else F.xxhash64("message_id")


def _system() -> list[Column]:
    """What the keys of a schema decide beside the key itself."""
    return [F.col("last_updated_ts"), F.col("period_reference")]


def _fingerprint(values: Sequence[Column]) -> Column:
    """A hash in which a NULL counts; the hash itself passes over it."""
    return F.xxhash64(F.lit(0), *(part for value in values for part in (value, value.isNull())))


def _compared(both: Both, live: Mapping[str, bool] | None) -> list[PayloadColumn]:
    """The columns of the new schema, and those of the active one that it lets go of."""
    if live is None:
        return []
    new = [source.column for source in both.new]
    gone = live.keys() - {column.name for column in new}
    return [*new, *(source.column for source in both.active if source.column.name in gone)]


def _new_value(column: PayloadColumn, both: Both, live: Mapping[str, bool] | None) -> Column:
    """What the row would hold, in a form that can be compared with what it holds."""
    active = {source.column.name: source.column for source in both.active}.get(column.name)
    if column.pii == "drop" or column.name not in {source.column.name for source in both.new}:
        return F.lit(None).cast("int")
    value = F.col(quoted(f"v_{column.name}"))
    if not (live or {}).get(column.name) or active is None or active.pii != column.pii:
        return F.when(value.isNotNull(), 2)
    if column.pii == "hmac":
        # The same text gives the same seal: no need to make it.
        names = {source.column.name for source in both.today}
        before = F.col(quoted(f"v_{_TODAY}{column.name}")) if _TODAY + column.name in names else value
        return F.when(value.isNotNull(), F.when(value.eqNullSafe(before), 1).otherwise(2))
    return value


def _live_value(column: PayloadColumn, both: Both, live: Mapping[str, bool]) -> Column:
    """What the row holds: its value where that can be compared, else whether it has one."""
    if column.name not in live:
        return F.lit(None).cast("int")
    value = F.col(quoted(column.name))
    active = {source.column.name: source.column for source in both.active}.get(column.name)
    new = {source.column.name: source.column for source in both.new}.get(column.name)
    is_presence = new is None or active is None or active.pii != new.pii or new.pii in ("hmac", "drop")
    if is_presence or not live[column.name]:
        return F.when(value.isNotNull(), 1)
    assert new is not None
    return value.cast(spark_type(new.type.iceberg))
