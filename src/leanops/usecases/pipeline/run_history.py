"""Records what was done: run history and drift, once for each batch, completed after a crash."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.payload.evolution import ADDED
from leanops.domain.schema.model import Schema
from leanops.domain.table.balance import added_rows, replaced_rows
from leanops.domain.table.batch import CURATED, STANDARDIZED, Batch
from leanops.domain.table.definitions import OPS
from leanops.domain.table.history import Snapshot, has_batch, watermark_from
from leanops.usecases.journal import close, open_batch, recorded_batches, set_checkpoint
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.commit import check_added, check_replaced
from leanops.usecases.pipeline.drift import drift_rows, has_logged, mark_logged
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.platform import Platform

_DRIFT_IDENTITY = ("topic_name", "column_name", "action", "details")


@dataclass(frozen=True)
class LayerResult:
    """One committed batch."""

    batch: Batch
    counts: Mapping[str, int]
    snapshot: Snapshot
    seconds: float | None

    def as_json(self) -> dict[str, Any]:
        """Its counts in one flat object; ids of snapshots are texts, for JSON readers round such numbers."""
        return {
            **self.counts,
            "batch_id": self.batch.batch_id,
            "source_snapshot": str(self.batch.source_snapshot),
            "target_snapshot": str(self.snapshot.snapshot_id),
            "seconds": None if self.seconds is None else round(self.seconds, 3),
        }


Done = tuple[HeldTopic, Mapping[str, LayerResult]]
"""What was done for a topic, by layer."""


def record(platform: Platform, cycle_id: str, topics: Sequence[Done], *, is_repeated: bool = False) -> None:
    """Drift and run records of many topics in one append each; then their batches are closed.

    Nothing is written for a topic whose lease was lost meanwhile: its new holder does that.
    """
    done = [(held, result) for held, layers in topics for result in layers.values()]
    if not done:
        return
    _record_drift(platform, {held.topic: held for held, layers in topics if STANDARDIZED in layers}, is_repeated)
    history = platform.rules.databases.ops_table("job_run_history")
    _create_history(platform, history)

    def rows() -> list[dict[str, Any]]:
        ours = [result for held, result in done if held.is_ours()]
        known = recorded_batches(platform, [result.batch.batch_id for result in ours]) if is_repeated else set()
        return [_row(cycle_id, result) for result in ours if result.batch.batch_id not in known]

    with platform.durable("run record"):
        platform.catalog.append_planned(history, rows)
    for held, result in done:
        if held.is_ours():
            close(platform, result.batch)


def _create_history(platform: Platform, name: str) -> None:
    """Create the run history, or add the counts that an earlier version lacks."""
    wanted = OPS["job_run_history"]
    there = platform.catalog.create(name, wanted).columns
    missing = {column: (kind, "") for column, kind in wanted.columns.items() if column not in there}
    if missing:
        platform.catalog.alter(name, missing)


def _record_drift(platform: Platform, topics: Mapping[str, HeldTopic], is_repeated: bool) -> None:
    drift: list[dict[str, Any]] = []
    columns: dict[str, Mapping[str, str]] = {}
    for topic in topics:
        table = platform.catalog.load(platform.rules.databases.standardized_table(topic))
        columns[topic] = table.paths if table else {}
        drift += drift_rows(platform, topic, columns[topic], platform.clock())
    if not drift:
        return
    log = platform.rules.databases.ops_table("drift_log")
    platform.catalog.create(log, OPS["drift_log"])

    def rows() -> list[dict[str, Any]]:
        ours = [topic for topic, held in topics.items() if held.is_ours()]
        unsure = [topic for topic in ours if is_repeated or not has_logged(platform, topic)]
        logged = _logged_drift(platform, log, unsure) if unsure else set()
        return [row for row in drift if row["topic_name"] in ours and _identity(row) not in logged]

    with platform.durable("drift"):
        platform.catalog.append_planned(log, rows)
    for topic in {row["topic_name"] for row in drift}:
        if topics[topic].is_ours():
            mark_logged(platform, topic, list(columns[topic]))


def _logged_drift(platform: Platform, log: str, topics: list[str]) -> set[tuple[str, ...]]:
    """What drift_log has, if the note of it is missing: after a kill between the two, or when the memory was lost."""
    where = {"source_layer": STANDARDIZED, "topic_name": topics}
    return {_identity(row) for row in platform.catalog.select(log, _DRIFT_IDENTITY, where)}


def _identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes two rows the same: a column is added once, all other drift may recur in a later batch."""
    values = {name: row[name] for name in _DRIFT_IDENTITY}
    return tuple((values | {"details": ""} if row["action"] == ADDED else values).values())


def complete_begun(held: HeldTopic, cycle_id: str, schema: Schema | None, *, accept_counts: bool = False) -> None:
    """Complete what a crash left undone after a commit: the checkpoint, the run record, and the open batch.

    A commit with other rows than were counted stays open, unless its counts are accepted.
    """
    platform, databases = held.platform, held.platform.rules.databases
    tables = {STANDARDIZED: databases.standardized_table(held.topic)}
    if schema:
        tables[CURATED] = databases.curated_table(schema.table_name)
    for layer, name in tables.items():
        batch = open_batch(platform, held.topic, layer)
        table = platform.catalog.load(name) if batch else None
        if batch is None or table is None or not has_batch(table, batch.batch_id):
            continue
        try:
            table = without_late_batches(held, layer, table)
        except UnbalancedBatchError:
            if not accept_counts:
                raise
            # It stays open until the table is replaced.
            continue
        snapshot = has_batch(table, batch.batch_id)
        if snapshot is None:
            continue
        mark = watermark_from(snapshot)
        assert mark is not None
        if not accept_counts:
            check_added(platform, batch, name, snapshot, added_rows(mark.counts))
            check_replaced(platform, batch, name, snapshot, replaced_rows(mark.counts))
        set_checkpoint(held, layer, mark)
        if recorded_batches(platform, [batch.batch_id]):
            close(platform, batch)
        else:
            done = {layer: LayerResult(batch, mark.counts, snapshot, None)}
            record(platform, cycle_id, [(held, done)], is_repeated=True)


def _row(cycle_id: str, result: LayerResult) -> dict[str, Any]:
    batch, summary = result.batch, result.snapshot.summary
    counts = {"rows_read" if name == "read" else name: value for name, value in result.counts.items()}
    return {
        **counts,
        "run_id": f"{batch.batch_id}/{batch.layer}",
        "cycle_id": cycle_id,
        "topic_name": batch.topic,
        "layer": batch.layer,
        "outcome": "gap" if batch.is_gap else "done",
        "batch_id": batch.batch_id,
        "source_from": batch.source_from,
        "source_to": batch.source_to,
        "source_snapshot_id": batch.source_snapshot,
        "target_snapshot_id": result.snapshot.snapshot_id,
        "bytes": int(summary.get("added-files-size", 0)),
        "files": int(summary.get("added-data-files", 0)),
        "started_ts": datetime.fromtimestamp(batch.batch_time_ms / 1000, UTC),
        "seconds": result.seconds,
        "error": None,
    }
