"""The health of every topic: what it holds, what waits, what failed, and whether it is balanced."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from leanops.domain.errors import LeanOpsError, UnknownTopicError
from leanops.domain.failures import Status
from leanops.domain.schema.model import Policies, Schema
from leanops.domain.table.batch import CURATED, STANDARDIZED, pipeline_id
from leanops.domain.table.history import TableView, Watermark, rows_in, valid_watermark
from leanops.domain.table.warnings import batch_warnings
from leanops.ports.query import quoted
from leanops.ports.state import ATTEMPTS, SCHEMA_REGISTRY, Row
from leanops.views.balance import Balance, at_a_glance, lag_of
from leanops.views.error_status import settled
from leanops.views.operations import Unfinished, unfinished
from leanops.views.sources import Sources

_ERROR_TABLES = {"parse_errors": STANDARDIZED, "errors": CURATED}


@dataclass(frozen=True)
class TopicStatus:
    """One topic at a glance."""

    topic: str
    status: str
    reason: str | None
    operation: Unfinished | None
    schema_version: int | None
    raw_rows: int
    standardized_rows: int
    curated_rows: int
    open_errors: Mapping[str, int]
    """Error table, `parse_errors` or `errors` → its open rows."""
    lag_rows: int | None
    last_batch: str | None
    last_batch_at: datetime | None
    failures: Mapping[str, str]
    """Layer → why it failed last; a parked one waits for `topics retry`."""
    warnings: tuple[str, ...]
    """What is unusual about the newest batches, balanced or not."""
    balance: Balance

    @property
    def state(self) -> str:
        """The state of its unfinished operation, else its status."""
        return self.operation.state if self.operation else self.status

    def as_json(self) -> dict[str, Any]:
        """The fields, those of the balance among them."""
        fields = {name: value for name, value in vars(self).items() if name != "balance"}
        return {**fields, **self.balance.as_json()}


def status(sources: Sources, topics: Sequence[str] | None = None) -> list[TopicStatus]:
    """Every registered topic, or those named, by name."""
    registry = {str(stored.row["topic_name"]): stored.row for stored in sources.state.rows(SCHEMA_REGISTRY)}
    for topic in topics or ():
        if topic not in registry:
            raise UnknownTopicError(topic)
    attempts = {str(stored.row["pipeline_id"]): stored.row for stored in sources.state.rows(ATTEMPTS)}
    chosen = sorted(topics or registry)
    errors = {name: open_errors(sources, layer, chosen) for name, layer in _ERROR_TABLES.items()}
    operations = unfinished(sources)
    return [_status(sources, registry[topic], attempts, errors, operations.get(topic)) for topic in chosen]


def open_errors(sources: Sources, layer: str, topics: Collection[str]) -> dict[str, int]:
    """Topic → open rows of a layer's error table that are not resolved or superseded."""
    table = sources.databases.parse_errors if layer == STANDARDIZED else sources.databases.errors
    if sources.catalog.load(table) is None:
        return {}
    stored = f"SELECT topic_name, count(*) FROM {quoted(table)} WHERE status = ? GROUP BY topic_name"
    return {
        topic: rows - sum(error.stored == Status.OPEN for error in settled(sources, layer, topic))
        for topic, rows in list(sources.query.ask(stored, [Status.OPEN.value]).rows)
        if topic in topics
    }


def _status(
    sources: Sources,
    row: Row,
    attempts: Mapping[str, Row],
    errors: Mapping[str, Mapping[str, int]],
    operation: Unfinished | None,
) -> TopicStatus:
    topic = str(row["topic_name"])
    raw = sources.catalog.load(sources.databases.raw_table(topic))
    standardized = sources.catalog.load(sources.databases.standardized_table(topic))
    schema, problem = _active(sources, topic)
    curated = sources.catalog.load(sources.databases.curated_table(schema.table_name)) if schema else None
    tables = {STANDARDIZED: standardized, CURATED: curated}
    marks = {layer: mark for layer, table in tables.items() if table and (mark := valid_watermark(table))}
    last_batch = max((mark.batch_id for mark in marks.values()), default=None)
    return TopicStatus(
        topic=topic,
        status=str(row["status"]),
        reason=None if row["reason"] is None else str(row["reason"]),
        operation=operation,
        schema_version=None if row["schema_version"] is None else int(row["schema_version"]),
        raw_rows=rows_in(raw),
        standardized_rows=marks[STANDARDIZED].totals.rows if STANDARDIZED in marks else 0,
        curated_rows=sources.catalog.count(curated.name) if curated and curated.head else 0,
        open_errors={name: rows.get(topic, 0) for name, rows in errors.items()},
        lag_rows=_lag(raw, standardized),
        last_batch=last_batch,
        last_batch_at=_began(last_batch) if last_batch else None,
        failures={**_failures(topic, attempts), **problem},
        warnings=_warnings(topic, schema, marks, sources.warning_share),
        balance=at_a_glance(sources, topic, raw, standardized, curated),
    )


def _active(sources: Sources, topic: str) -> tuple[Schema | None, dict[str, str]]:
    try:
        return sources.schemas.active(topic), {}
    except LeanOpsError as failure:
        return None, {"schema": str(failure)}


def _warnings(topic: str, schema: Schema | None, marks: Mapping[str, Watermark], share: float) -> tuple[str, ...]:
    alert = (schema.policies if schema else Policies()).cde_error_rate_alert
    return tuple(
        warning
        for layer, mark in marks.items()
        for warning in batch_warnings(topic, layer, mark.counts, alert=alert, share=share)
    )


def _lag(raw: TableView | None, standardized: TableView | None) -> int | None:
    """None if RAW was rewritten; the balance says why."""
    try:
        return lag_of(raw, standardized)
    except LeanOpsError:
        return None


def _failures(topic: str, attempts: Mapping[str, Row]) -> dict[str, str]:
    failures = {}
    for layer in (STANDARDIZED, CURATED):
        row = attempts.get(pipeline_id(topic, layer))
        if row:
            tries = "1 try" if row["tries"] == 1 else f"{row['tries']} tries"
            failures[layer] = f"{'parked' if row['parked'] else 'failed'} after {tries}: {row['reason']}"
    return failures


def _began(batch_id: str) -> datetime | None:
    try:
        return datetime.strptime(batch_id[:12], "%y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
