"""What a cycle has to do, found out without Spark: a gate per topic, each with its outcome."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from leanops.domain.errors import UnknownTopicError
from leanops.domain.schema.model import Schema
from leanops.domain.table.batch import CURATED, STANDARDIZED, pipeline_id
from leanops.domain.table.history import TableView, has_moved, new_range, rows_in, valid_watermark
from leanops.domain.table.operation import UnfinishedOperation
from leanops.domain.table.outcome import Outcome
from leanops.ports.state import ABANDONED_BATCHES, ATTEMPTS, BATCHES, SCHEMA_REGISTRY, Row
from leanops.usecases.attempts import wait_left_ms
from leanops.usecases.operation_log import unfinished_operations
from leanops.usecases.pipeline.late_batches import has_late_batches
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import PAUSED


@dataclass(frozen=True)
class TopicPlan:
    """One topic: what is to be done, or the outcome that says why nothing is."""

    topic: str
    schema: Schema | None = None
    rows: int = 0
    standardize: bool = False
    curate: bool = False
    outcome: Outcome | None = None
    reason: str | None = None
    held_back: str | None = None
    """Why a layer that has something to do is left out, where the other one is worked on."""
    unfinished: UnfinishedOperation | None = None
    """An operation that has to be finished before anything else."""


@dataclass(frozen=True)
class _Known:
    """What the state store, the schemas and the catalog say of all topics, asked once a cycle."""

    failures: Mapping[str, Row]
    begun: Collection[str]
    abandoned: Collection[str]
    """Pipelines with a batch that was given up."""
    schemas: Mapping[str, Schema | Exception | None]
    """The active one of each topic, or why it cannot be read."""
    table: Callable[[str], TableView | None]

    @classmethod
    def of(cls, platform: Platform, topics: Sequence[str]) -> "_Known":
        databases = platform.rules.databases
        schemas = {topic: _active(platform, topic) for topic in topics}
        tables = [name(topic) for topic in topics for name in (databases.raw_table, databases.standardized_table)]
        tables += [
            databases.curated_table(schema.table_name) for schema in schemas.values() if isinstance(schema, Schema)
        ]
        failures = {str(stored.row["pipeline_id"]): stored.row for stored in platform.state.rows(ATTEMPTS)}
        begun = {str(stored.row["pipeline_id"]) for stored in platform.state.rows(BATCHES)}
        abandoned = {str(stored.row["pipeline_id"]) for stored in platform.state.rows(ABANDONED_BATCHES)}
        return cls(failures, begun, abandoned, schemas, _look(platform, tables))

    def has_to_finish(self, platform: Platform, topic: str, layer: str, table: TableView | None) -> bool:
        """Whether a batch has to be finished, or one that was given up has come in late and has to go."""
        pipeline = pipeline_id(topic, layer)
        if pipeline in self.begun or table is None or pipeline not in self.abandoned:
            return pipeline in self.begun
        return has_late_batches(platform, topic, layer, table)


def plan_cycle(platform: Platform, topics: Sequence[str] | None, *, force: bool = False) -> list[TopicPlan]:
    """The plan of every registered topic, or of those named."""
    registry = {str(stored.row["topic_name"]): stored.row for stored in platform.state.rows(SCHEMA_REGISTRY)}
    for topic in topics or ():
        if topic not in registry:
            raise UnknownTopicError(topic)
    chosen = topics or sorted(registry)
    known = _Known.of(platform, chosen)
    to_heed = replace(known, failures={}) if force else known
    unfinished = unfinished_operations(platform)
    return [
        _held_up(unfinished[topic], known.failures.get(pipeline_id(topic, "operation")))
        if topic in unfinished
        else _guarded(platform, registry[topic], to_heed)
        for topic in chosen
    ]


def _held_up(unfinished: UnfinishedOperation, failure: Row | None) -> TopicPlan:
    reason = f"{unfinished.sentence()}; its last try failed: {failure['reason']}" if failure else unfinished.sentence()
    return TopicPlan(unfinished.operation.topic, outcome=Outcome.PAUSED, reason=reason, unfinished=unfinished)


def _guarded(platform: Platform, state: Row, known: _Known) -> TopicPlan:
    try:
        return _plan(platform, state, known)
    except Exception as failure:  # noqa: BLE001 - a topic whose tables cannot be read does not stop the others
        return TopicPlan(str(state["topic_name"]), outcome=Outcome.FAILED, reason=platform.explain(failure))


def _plan(platform: Platform, state: Row, known: _Known) -> TopicPlan:
    topic = str(state["topic_name"])
    if state["status"] == PAUSED:
        return TopicPlan(topic, outcome=Outcome.PAUSED, reason=_text(state["reason"]))
    schema = known.schemas[topic]
    if isinstance(schema, Exception):
        raise schema
    if schema is None and not platform.rules.pipeline.explore:
        return TopicPlan(topic, outcome=Outcome.NO_SCHEMA, reason=_without_schema(platform, topic, known))
    if schema is not None and not state["processing_enabled"]:
        return TopicPlan(topic, outcome=Outcome.DISABLED, reason=_text(state["reason"]))
    return _work(platform, topic, schema, known)


def _active(platform: Platform, topic: str) -> Schema | Exception | None:
    try:
        return platform.schemas.active(topic)
    except Exception as failure:  # noqa: BLE001 - raised again where it stops that topic alone
        return failure


def _look(platform: Platform, tables: Sequence[str]) -> Callable[[str], TableView | None]:
    try:
        return platform.catalog.look(tables)
    except Exception:  # noqa: BLE001 - raised again by each topic that has to look
        return platform.catalog.load


def _without_schema(platform: Platform, topic: str, known: _Known) -> str:
    if rows_in(known.table(platform.rules.databases.raw_table(topic))):
        return "events wait in RAW; deploy a schema to process them"
    return "no events yet; publish some, then deploy a schema to process them"


def _work(platform: Platform, topic: str, schema: Schema | None, known: _Known) -> TopicPlan:
    """Which layers have something to do; a parked layer does not stop the other."""
    databases = platform.rules.databases
    raw, standardized = known.table(databases.raw_table(topic)), known.table(databases.standardized_table(topic))
    curated = known.table(databases.curated_table(schema.table_name)) if schema else None
    rows = _new_rows(raw, standardized)
    failures = {layer: known.failures.get(pipeline_id(topic, layer)) for layer in (STANDARDIZED, CURATED)}
    held = {layer: _held_back(platform, failure) for layer, failure in failures.items()}
    to_standardize = rows > 0 or known.has_to_finish(platform, topic, STANDARDIZED, standardized)
    standardize = to_standardize and held[STANDARDIZED] is None
    # What a held back Standardized does not bring is nothing to curate.
    to_curate = schema is not None and (
        standardize or known.has_to_finish(platform, topic, CURATED, curated) or _is_ahead(standardized, curated)
    )
    curate = to_curate and held[CURATED] is None
    reason = (held[STANDARDIZED] if to_standardize else None) or (held[CURATED] if to_curate else None)
    if standardize or curate:
        return TopicPlan(topic, schema, rows, standardize, curate, held_back=reason)
    if reason:
        return TopicPlan(topic, schema, outcome=Outcome.PRIOR_FAILED, reason=reason)
    return TopicPlan(topic, schema, outcome=Outcome.NO_NEW_DATA)


def _new_rows(raw: TableView | None, standardized: TableView | None) -> int:
    if raw is None:
        return 0
    new = new_range(raw, valid_watermark(standardized) if standardized else None)
    return new.rows if new else 0


def _is_ahead(standardized: TableView | None, curated: TableView | None) -> bool:
    """Whether Standardized has a batch that Curated has not read, or is not the table it read."""
    newest = valid_watermark(standardized) if standardized else None
    if standardized is None or newest is None:
        return False
    mark = valid_watermark(curated) if curated else None
    return mark is None or mark.source_to < newest.batch_seq or has_moved(standardized, mark)


def _held_back(platform: Platform, failure: Row | None) -> str | None:
    """Why a layer that failed before is not tried now."""
    if failure is None:
        return None
    if failure["parked"]:
        return f"parked after {failure['tries']} tries: {failure['reason']}"
    waits = wait_left_ms(platform, failure)
    tries = "once" if failure["tries"] == 1 else f"{failure['tries']} times"
    return f"tried {tries}, next try in {waits // 1000} s: {failure['reason']}" if waits else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)
