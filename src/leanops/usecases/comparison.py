"""The new Curated against the live one, before it takes its place."""

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.operations import Accept, Scope
from leanops.usecases.shadow import Shadow

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
    examples: tuple[str, ...] = ()
    """Message ids of keys that leave."""

    def refused(self, accept: Accept) -> int:
        """How many keys would go missing that nobody agreed to."""
        return {Accept.NONE: self.failing + self.lost, Accept.FAILING: self.lost, Accept.ALL: 0}[accept]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(shadow: Shadow, *, same_keys: bool) -> Comparison:
    """Counts and a checksum of both tables, and the live keys the new one lacks, unless keys themselves change."""
    new = _built(shadow, shadow.curated)
    after, checksum_after, keys = _measured(new)
    if after != keys:
        raise UnbalancedBatchError(
            f"{shadow.operation.topic}: {after} rows of {keys} keys were built, so two processes built at once; "
            "what they built is thrown away, and the next try starts anew"
        )
    live_at = shadow.operation.curated.snapshot if shadow.operation.curated else None
    if live_at is None:
        return Comparison(0, after, "0", checksum_after, 0, 0)
    live = shadow.lake.at(shadow.live_curated, live_at)
    before, checksum_before, _ = _measured(live)
    if not same_keys:
        return Comparison(before, after, checksum_before, checksum_after, 0, 0)
    leaving = live.join(new.select("idempotency_key"), "idempotency_key", "left_anti").persist()
    try:
        failing, lost, examples = _explained(shadow, leaving)
    finally:
        leaving.unpersist()
    return Comparison(before, after, checksum_before, checksum_after, failing, lost, examples)


def _explained(shadow: Shadow, leaving: DataFrame) -> tuple[int, int, tuple[str, ...]]:
    """Of the keys that leave: those with an error row, those without, and some of them."""
    explained = (
        _built(shadow, shadow.errors).select(F.expr("substring(record_key, 5)").alias("idempotency_key")).distinct()
    )
    if shadow.operation.scope == Scope.BOTH:
        unread = _built(shadow, shadow.parse_errors).select("message_id")
        no_events = leaving.join(unread, "message_id", "left_semi").select("idempotency_key")
        explained = explained.union(no_events).distinct()
    failing = leaving.join(explained, "idempotency_key", "left_semi").count()
    total = leaving.count()
    examples = [row.message_id for row in leaving.select("message_id").limit(EXAMPLES).collect()]
    return failing, total - failing, tuple(sorted(examples))


def _measured(table: DataFrame) -> tuple[int, str, int]:
    version = F.xxhash64("idempotency_key", "message_id", "last_updated_ts")
    found: Any = table.agg(
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.bit_xor(version), F.lit(0)).alias("checksum"),
        F.count_distinct("idempotency_key").alias("keys"),
    ).first()
    return found["rows"], f"{found['checksum'] & (2**64 - 1):016x}", found["keys"]


def _built(shadow: Shadow, name: str) -> DataFrame:
    view = shadow.platform.catalog.load(name)
    return shadow.lake.at(name, view.head if view else None)
