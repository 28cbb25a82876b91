"""Batches in the state store: written down before they start, closed after their run record is written."""

from collections.abc import Sequence

import msgspec

from leanops.domain.errors import CommitRefusedError, PermanentError, StateConflictError
from leanops.domain.schema.model import Schema
from leanops.domain.table.batch import STANDARDIZED, Batch, pipeline_id
from leanops.domain.table.history import Watermark, has_batch
from leanops.ports.state import ABANDONED_BATCHES, BATCHES, CHECKPOINTS, Row, StateTable
from leanops.usecases.leases import HeldTopic
from leanops.usecases.platform import Platform


def open_batch(platform: Platform, topic: str, layer: str) -> Batch | None:
    """The batch that was started and is not closed, if any."""
    stored = platform.state.get(BATCHES, (pipeline_id(topic, layer),))
    return msgspec.json.decode(str(stored.row["intent"]), type=Batch) if stored else None


def begin(held: HeldTopic, batch: Batch) -> None:
    """Record a batch before any work on it."""
    row: Row = {
        "pipeline_id": pipeline_id(batch.topic, batch.layer),
        "batch_id": batch.batch_id,
        "intent": msgspec.json.encode(batch).decode(),
        "generation": held.lease.generation,
        "updated_at": held.platform.now_ms(),
    }
    with held.platform.durable("intent"):
        _write(held, BATCHES, row)


def close(platform: Platform, batch: Batch) -> None:
    """Forget a batch whose result is committed and recorded."""
    key = (pipeline_id(batch.topic, batch.layer),)
    stored = platform.state.get(BATCHES, key)
    if stored and stored.row["batch_id"] == batch.batch_id:
        with platform.durable("close"):
            platform.state.delete(BATCHES, key, expected=stored.revision)


def set_checkpoint(held: HeldTopic, layer: str, mark: Watermark) -> None:
    """Copy a table's watermark to the state store; the table itself is authoritative."""
    before = checkpoint(held.platform, held.topic, layer)
    if before and before["snapshot_id"] == mark.snapshot_id:
        return
    row: Row = {
        "pipeline_id": pipeline_id(held.topic, layer),
        "checkpoint_type": "watermark",
        "snapshot_id": mark.snapshot_id,
        "batch_seq": mark.batch_seq,
        "records_processed": mark.totals.read,
        "timeline": mark.timeline.text(),
        "key_check": mark.key_check,
        "generation": held.lease.generation,
        "updated_at": held.platform.now_ms(),
    }
    with held.platform.durable("checkpoint"):
        _write(held, CHECKPOINTS, row)


def checkpoint(platform: Platform, topic: str, layer: str) -> Row | None:
    """The newest watermark of a layer that the state store knows of."""
    stored = platform.state.get(CHECKPOINTS, (pipeline_id(topic, layer), "watermark"))
    return stored.row if stored else None


def repair_checkpoint(held: HeldTopic, layer: str, mark: Watermark) -> None:
    """Update the copy if the table is ahead of it; a table that is behind was rolled back, and must be noticed."""
    before = checkpoint(held.platform, held.topic, layer)
    if before is None or int(before["batch_seq"] or 0) < mark.batch_seq:
        set_checkpoint(held, layer, mark)


def _write(held: HeldTopic, table: StateTable, row: Row) -> None:
    """Put a row unless a later generation of the lease wrote it."""
    key = table.key_of(row)
    stored = held.platform.state.get(table, key)
    if held.is_overtaken(stored):
        raise StateConflictError(table.name, key)
    held.platform.state.put(table, row, expected=stored.revision if stored else None)


def abandon(held: HeldTopic, layer: str, table: str | None) -> bool:
    """Abandon an open batch: its error rows are deleted, and the next cycle begins another.

    Returns False if the batch is in its table: then it has to be completed.
    """
    platform, topic = held.platform, held.topic
    batch = open_batch(platform, topic, layer)
    if batch is None:
        return True
    target = platform.catalog.load(table) if table else None
    if target and has_batch(target, batch.batch_id):
        return False
    # Its worker may only be stalled: if it commits after all, this row identifies the batch.
    held.check()
    given_up: Row = {"pipeline_id": pipeline_id(topic, layer), "batch_id": batch.batch_id}
    platform.state.put_many(ABANDONED_BATCHES, [{**given_up, "abandoned_at": platform.now_ms()}])
    databases = platform.rules.databases
    errors = databases.parse_errors if layer == STANDARDIZED else databases.errors
    platform.catalog.delete(errors, {"batch_id": batch.batch_id}, guard=held.check)
    close(platform, batch)
    return True


def begin_another(held: HeldTopic, layer: str, table: str) -> None:
    """Abandon an open batch so that another can begin; raises if it has been committed meanwhile."""
    if not abandon(held, layer, table):
        raise CommitRefusedError(
            f"{held.topic}: its last batch was committed to {table} meanwhile; the next cycle continues from there"
        )


def recorded_batches(platform: Platform, batch_ids: Sequence[str]) -> set[str]:
    """The batches that have a run record."""
    if not batch_ids:
        return set()
    history = platform.rules.databases.ops_table("job_run_history")
    rows = platform.catalog.select(history, ["batch_id"], {"batch_id": list(batch_ids)})
    return {str(row["batch_id"]) for row in rows}


def schema_of_version(platform: Platform, topic: str, version: int) -> Schema:
    """The schema of a version that a batch or an operation started with."""
    schema = platform.schemas.version(topic, version)
    if schema is None:
        raise PermanentError(
            f"{topic}: schema version {version} is missing, and a batch was started with it; restore its file, or "
            f"start over with: leanops topics retry {topic}"
        )
    return schema
