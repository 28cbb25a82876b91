"""Compares the new Curated with the live one before it replaces it."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.operation import Accept, Accepted, Scope, agrees
from leanops.domain.words import counted
from leanops.usecases.journal import schema_of_version
from leanops.usecases.operations.shadow import Shadow

EXAMPLES = 5


@dataclass(frozen=True)
class Comparison:
    """What changes for readers."""

    rows_before: int
    rows_after: int
    checksum_before: str
    checksum_after: str
    """Over keys and versions: equal where both tables hold the same version of the same keys."""
    failing: int
    """Live keys that leave because their newest version fails the schema; each has an error row."""
    lost: int
    """Live keys that leave, and nothing says why."""
    gone: int = 0
    """Live keys that leave because Standardized no longer has them."""
    examples: tuple[str, ...] = ()
    """Message ids of keys that leave."""

    @property
    def missing(self) -> int:
        """Live keys that leave."""
        return self.failing + self.lost + self.gone

    def refused(self, accept: Accepted) -> int:
        """How many keys would go missing that nobody agreed to."""
        if accept == Accept.FAILING:
            return self.lost + self.gone
        if accept == Accept.GONE:
            return self.failing + self.lost
        return 0 if agrees(accept, self.missing) else self.missing


def compare(shadow: Shadow) -> Comparison:
    """Counts and a checksum of both tables, and the live rows the new one lacks."""
    shadow.lake.fit(shadow.operation.standardized.rows if shadow.operation.standardized else 0)
    new = shadow.built(shadow.curated)
    after, checksum_after, keys = _measured(new)
    if after != keys:
        raise UnbalancedBatchError(
            f"{shadow.operation.topic}: built {counted(after, 'row')} for {counted(keys, 'key')}; all are discarded, "
            "and the next attempt starts over"
        )
    live_at = shadow.operation.curated.snapshot if shadow.operation.curated else None
    if live_at is None:
        return Comparison(0, after, "0", checksum_after, 0, 0)
    live = shadow.lake.at(shadow.live_curated, live_at)
    before, checksum_before, _ = _measured(live)
    leaving = _leaving(shadow, live, new).persist()
    try:
        failing, lost, gone, examples = _explained(shadow, leaving)
    finally:
        leaving.unpersist()
    return Comparison(before, after, checksum_before, checksum_after, failing, lost, gone, examples)


def _leaving(shadow: Shadow, live: DataFrame, new: DataFrame) -> DataFrame:
    """Live rows whose key is gone; under other keys, those whose message is refused, or no longer in RAW."""
    rows = live.select("idempotency_key", "message_id")
    if _names_keys_alike(shadow):
        return rows.join(new, "idempotency_key", "left_anti")
    unread = shadow.built(shadow.parse_errors).select("message_id")
    refused = shadow.built(shadow.errors).select("message_id").union(unread)
    retired = rows.join(shadow.raw_rows().select("message_id"), "message_id", "left_anti")
    return rows.join(refused, "message_id", "left_semi").unionByName(retired).distinct()


def _explained(shadow: Shadow, leaving: DataFrame) -> tuple[int, int, int, tuple[str, ...]]:
    """Of the rows that leave: those with an error row, those without, those that Standardized lacks; and examples."""
    key = F.expr("substring(record_key, 5)").alias("idempotency_key")
    failing = shadow.built(shadow.errors).select(key).distinct()
    unread = shadow.built(shadow.parse_errors).select("message_id") if shadow.operation.scope == Scope.BOTH else None
    is_failing = leaving.join(failing, "idempotency_key", "left_semi")
    if not _names_keys_alike(shadow):
        is_failing = leaving
    elif unread is not None:
        is_failing = is_failing.union(leaving.join(unread, "message_id", "left_semi")).distinct()
    # A key that was behind, and whose version RAW no longer has, could not be judged again.
    unknown = is_failing.join(shadow.raw_rows().select("message_id"), "message_id", "left_anti")
    unknown = unknown.join(_current(shadow).select("message_id"), "message_id", "left_anti")
    known = is_failing.join(unknown.select("message_id"), "message_id", "left_anti")
    unexplained = leaving.join(known.select("message_id"), "message_id", "left_anti")
    gone = unexplained.join(_current(shadow), "idempotency_key", "left_anti")
    explained, left, without = known.count(), unexplained.count(), gone.count()
    some = (unexplained if left else known).select("message_id").limit(EXAMPLES).collect()
    return explained, left - without, without, tuple(sorted(row.message_id for row in some))


def _names_keys_alike(shadow: Shadow) -> bool:
    """Whether an event has the key it had before, though it may have another version or period."""
    if shadow.operation.previous is None or shadow.is_resealed:
        return False
    before = schema_of_version(shadow.platform, shadow.operation.topic, shadow.operation.previous).keys
    return (before.idempotency_key, before.pii) == (shadow.schema.keys.idempotency_key, shadow.schema.keys.pii)


def _current(shadow: Shadow) -> DataFrame:
    view, snapshot = shadow.source()
    return shadow.lake.at(view.name, snapshot).select("message_id", "idempotency_key")


def _measured(table: DataFrame) -> tuple[int, str, int]:
    version = F.xxhash64("idempotency_key", "message_id", "last_updated_ts")
    found: Any = table.agg(
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.bit_xor(version), F.lit(0)).alias("checksum"),
        F.count_distinct("idempotency_key").alias("keys"),
    ).first()
    return found["rows"], f"{found['checksum'] & (2**64 - 1):016x}", found["keys"]
