"""What a cycle has to do, found out without Spark: a gate per topic, each with its outcome."""

from collections.abc import Sequence
from dataclasses import dataclass

from leanops.domain.batches import CURATED, STANDARDIZED, pipeline_id
from leanops.domain.errors import UnknownTopicError
from leanops.domain.operations import Standing
from leanops.domain.planning import Outcome
from leanops.domain.schema import Schema
from leanops.domain.snapshots import TableView, has_moved, new_range, valid_watermark
from leanops.ports.state import ATTEMPTS, BATCHES, SCHEMA_REGISTRY, Row
from leanops.usecases.batches import wait_left_ms
from leanops.usecases.operations import all_standing
from leanops.usecases.platform import Platform

PAUSED = "PAUSED"


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
    held: str | None = None
    """Why a layer that has something to do is left out, where the other one is worked on."""
    unfinished: Standing | None = None
    """An operation that has to be finished before anything else."""


def plan_cycle(platform: Platform, topics: Sequence[str] | None, *, force: bool = False) -> list[TopicPlan]:
    """The plan of every registered topic, or of those named."""
    registry = {str(stored.row["topic_name"]): stored.row for stored in platform.state.rows(SCHEMA_REGISTRY)}
    for topic in topics or ():
        if topic not in registry:
            raise UnknownTopicError(topic)
    failures = {str(stored.row["pipeline_id"]): stored.row for stored in platform.state.rows(ATTEMPTS)}
    begun = {str(stored.row["pipeline_id"]) for stored in platform.state.rows(BATCHES)}
    unfinished = all_standing(platform)
    chosen = topics or sorted(registry)
    return [
        _held_up(unfinished[topic], failures.get(pipeline_id(topic, "operation")))
        if topic in unfinished
        else _guarded(platform, registry[topic], {} if force else failures, begun)
        for topic in chosen
    ]


def _held_up(found: Standing, failure: Row | None) -> TopicPlan:
    reason = f"{found.sentence()}; its last try failed: {failure['reason']}" if failure else found.sentence()
    return TopicPlan(found.operation.topic, outcome=Outcome.PAUSED, reason=reason, unfinished=found)


def _guarded(platform: Platform, state: Row, failures: dict[str, Row], begun: set[str]) -> TopicPlan:
    try:
        return _plan(platform, state, failures, begun)
    except Exception as failure:  # noqa: BLE001 - a topic whose tables cannot be read does not stop the others
        return TopicPlan(str(state["topic_name"]), outcome=Outcome.FAILED, reason=platform.explain(failure))


def _plan(platform: Platform, state: Row, failures: dict[str, Row], begun: set[str]) -> TopicPlan:
    topic = str(state["topic_name"])
    if state["status"] == PAUSED:
        return TopicPlan(topic, outcome=Outcome.PAUSED, reason=_text(state["reason"]))
    schema = platform.schemas.active(topic)
    if schema is None and not platform.rules.explore:
        return TopicPlan(topic, outcome=Outcome.NO_SCHEMA, reason="events wait in RAW; deploy a schema to process them")
    if schema is not None and not state["processing_enabled"]:
        return TopicPlan(topic, outcome=Outcome.DISABLED, reason=_text(state["reason"]))
    return _work(platform, topic, schema, failures, begun)


def _work(
    platform: Platform, topic: str, schema: Schema | None, failures: dict[str, Row], begun: set[str]
) -> TopicPlan:
    """Which layers have something to do; a parked layer does not stop the other."""
    databases = platform.rules.databases
    raw = platform.catalog.load(databases.raw_table(topic))
    standardized = platform.catalog.load(databases.standardized_table(topic))
    rows = _new_rows(raw, standardized)
    held = {layer: _held_back(platform, failures.get(pipeline_id(topic, layer))) for layer in (STANDARDIZED, CURATED)}
    to_standardize = rows > 0 or pipeline_id(topic, STANDARDIZED) in begun
    standardize = to_standardize and held[STANDARDIZED] is None
    # What a held back Standardized does not bring is nothing to curate.
    to_curate = schema is not None and (
        standardize or pipeline_id(topic, CURATED) in begun or _is_ahead(platform, schema, standardized)
    )
    curate = to_curate and held[CURATED] is None
    reason = (held[STANDARDIZED] if to_standardize else None) or (held[CURATED] if to_curate else None)
    if standardize or curate:
        return TopicPlan(topic, schema, rows, standardize, curate, held=reason)
    if reason:
        return TopicPlan(topic, schema, outcome=Outcome.PRIOR_FAILED, reason=reason)
    return TopicPlan(topic, schema, outcome=Outcome.NO_NEW_DATA)


def _new_rows(raw: TableView | None, standardized: TableView | None) -> int:
    if raw is None:
        return 0
    found = new_range(raw, valid_watermark(standardized) if standardized else None)
    return found.rows if found else 0


def _is_ahead(platform: Platform, schema: Schema, standardized: TableView | None) -> bool:
    """Whether Standardized has a batch that Curated has not read, or is not the table it read."""
    newest = valid_watermark(standardized) if standardized else None
    if standardized is None or newest is None:
        return False
    curated = platform.catalog.load(platform.rules.databases.curated_table(schema.table_name))
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
