"""Starts operations: open batches are settled first, then the tables are recorded as they are."""

from collections.abc import Sequence
from dataclasses import asdict

from leanops.domain.errors import UnbalancedBatchError, UsageError
from leanops.domain.schema.model import Schema
from leanops.domain.table.batch import CURATED, STANDARDIZED, new_batch_id
from leanops.domain.table.comparison import Comparison
from leanops.domain.table.history import TableView, rows_in, valid_watermark
from leanops.domain.table.operation import Accept, Accepted, Operation, Place, Scope, Stage, Work
from leanops.usecases.audit import record_action
from leanops.usecases.journal import abandon
from leanops.usecases.leases import HeldTopic, hold_topic
from leanops.usecases.operation_log import begin, check_free
from leanops.usecases.operations.execute import execute
from leanops.usecases.operations.shadow import Progress, quiet
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.run_history import complete_begun
from leanops.usecases.platform import Platform, key_check
from leanops.usecases.topics.registry import check_running, find_topic


def rebuild_topic(
    platform: Platform,
    topic: str,
    *,
    scope: Scope = Scope.BOTH,
    accept: Accepted = Accept.NONE,
    new_key: bool = False,
    progress: Progress = quiet,
) -> Comparison | None:
    """Standardized from RAW and Curated from it, or Curated alone, under the active schema.

    With `new_key`, values may be sealed with another key than before.
    """
    if new_key and scope != Scope.BOTH:
        raise UsageError("both tables are sealed with one key; rebuild both: leave --curated out")
    find_topic(platform, topic)
    schema = platform.schemas.active(topic)
    table = platform.rules.databases.standardized_table(topic)
    # A table can be rebuilt from RAW without its watermark, but not from Standardized.
    is_there = has_head(platform, table) if scope == Scope.BOTH else has_rows(platform, table)
    if schema is None or not is_there:
        raise UsageError(f"topic {topic!r} has no tables to rebuild yet; run: leanops cycle --topic {topic}")
    with hold_topic(platform, topic, wait_s=platform.rules.operations.wait_s) as held:
        check_free(platform, topic)
        check_running(platform, topic)
        # Both tables are rebuilt from RAW, so a wrong batch in them disappears.
        settle(held, schema, accept_counts=scope == Scope.BOTH)
        comparison = rebuild_held(held, schema, scope=scope, accept=accept, new_key=new_key, progress=progress)
    record_action(platform, "rebuild", [topic], asdict(comparison) if comparison else None)
    return comparison


def rebuild_held(
    held: HeldTopic,
    schema: Schema,
    *,
    scope: Scope,
    accept: Accepted,
    new_key: bool = False,
    progress: Progress = quiet,
) -> Comparison | None:
    """Rebuild under a lease that is held, after `settle`."""
    work = Work.REBUILD if scope == Scope.BOTH else Work.RECURATE
    operation = new_operation(held, work, schema=schema, active=schema, scope=scope, accept=accept, new_key=new_key)
    return execute(held, begin(held, operation, Stage.BUILDING), progress)


def settle(held: HeldTopic, active: Schema | None, *, accept_counts: bool = False) -> None:
    """Complete committed batches and abandon the others, so that an operation starts from whole tables.

    Raises if a commit has other rows than were counted, unless its counts are accepted.
    """
    databases = held.platform.rules.databases
    complete_begun(held, "operation", active, accept_counts=accept_counts)
    abandon(held, STANDARDIZED, databases.standardized_table(held.topic))
    abandon(held, CURATED, databases.curated_table(active.table_name) if active else None)


def new_operation(
    held: HeldTopic,
    work: Work,
    *,
    schema: Schema,
    active: Schema | None,
    scope: Scope = Scope.NONE,
    accept: Accepted = Accept.NONE,
    classification: str = "",
    new_key: bool = False,
) -> Operation:
    """An operation on the tables as they are now; raises if they are sealed with another key."""
    platform, topic, databases = held.platform, held.topic, held.platform.rules.databases
    raw = platform.catalog.load(databases.raw_table(topic))
    standardized = _clean(held, STANDARDIZED, databases.standardized_table(topic), scope)
    curated = _clean(held, CURATED, databases.curated_table(schema.table_name), scope)
    return Operation(
        operation_id=new_batch_id(platform.clock()),
        topic=topic,
        work=work,
        actor=platform.actor.name,
        begun_ms=platform.now_ms(),
        version=schema.version,
        previous=active.version if active else None,
        classification=classification,
        scope=scope,
        accept=accept,
        raw=Place(raw.uuid, raw.head, rows=rows_in(raw)) if raw else None,
        standardized=_standardized(standardized, scope),
        standardized_head=standardized.head if standardized else None,
        portion_rows=platform.rules.operations.rebuild_rows,
        limits=platform.rules.limits,
        column_limits=platform.rules.tables,
        curated=Place(curated.uuid, curated.head, curated.last_sequence_number + 1) if curated else Place("", None, 1),
        key_check=_key_check(platform, topic, schema, [] if new_key else [standardized, curated]),
        new_key=new_key,
    )


def _clean(held: HeldTopic, layer: str, name: str, scope: Scope) -> TableView | None:
    """A table without late batches; one that is rebuilt from RAW may keep those that cannot be removed."""
    table = held.platform.catalog.load(name)
    try:
        return without_late_batches(held, layer, table) if table else None
    except UnbalancedBatchError:
        if scope != Scope.BOTH:
            raise
        return table


def _key_check(platform: Platform, topic: str, schema: Schema, tables: Sequence[TableView | None]) -> str:
    """The check value of the key if the schema seals; raises if a table is sealed with another key."""
    if not schema.seals:
        return ""
    marks = [mark for table in tables if table and (mark := valid_watermark(table))]
    checks = [key_check(platform, topic, seals=True, before=mark.key_check) for mark in marks]
    return checks[0] if checks else key_check(platform, topic, seals=True, before="")


def has_head(platform: Platform, table: str) -> bool:
    """Whether anything was ever committed to a table."""
    view = platform.catalog.load(table)
    return view is not None and view.head is not None


def has_rows(platform: Platform, table: str) -> bool:
    """Whether a batch ever wrote to a table; raises if it did and the watermark is lost."""
    view = platform.catalog.load(table)
    if view is None or view.head is None:
        return False
    if valid_watermark(view) is None:
        raise UsageError(
            f"{table} has lost its watermark: something outside expired the snapshot that held it; run leanops cycle, "
            "which reads everything again, and then repeat this"
        )
    return True


def _standardized(view: TableView | None, scope: Scope) -> Place | None:
    """Standardized with its next number if it is rebuilt, else with that of its newest batch."""
    if view is None:
        return None
    mark = valid_watermark(view)
    rows = mark.totals.rows if mark else 0
    if scope == Scope.BOTH:
        return Place(view.uuid, view.head, view.last_sequence_number + 1, rows)
    return Place(view.uuid, view.head, mark.batch_seq if mark else 0, rows)
