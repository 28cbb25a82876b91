"""Where a topic's tables stand when an operation begins."""

from collections.abc import Sequence

from leanops.domain.errors import UnbalancedBatchError, UsageError
from leanops.domain.schema.model import Schema
from leanops.domain.table.batch import CURATED, STANDARDIZED, new_batch_id
from leanops.domain.table.history import TableView, is_same_data, valid_watermark
from leanops.domain.table.operation import Accept, Accepted, Operation, Place, Scope, Stage, Standing, Work
from leanops.usecases.journal import abandon
from leanops.usecases.leases import Lease
from leanops.usecases.pipeline.late_batches import without_late_batches
from leanops.usecases.pipeline.run_history import complete_begun
from leanops.usecases.platform import Platform, key_check
from leanops.usecases.topics.registry import find_topic


def settle(platform: Platform, topic: str, active: Schema | None, lease: Lease, *, accept_counts: bool = False) -> None:
    """Finish batches that are committed and give up those that are not: the operation starts from whole tables.

    A commit whose rows are not those that were counted stops it, unless its counts are accepted.
    """
    databases = platform.rules.databases
    complete_begun(platform, "operation", topic, active, lease, accept_counts=accept_counts)
    abandon(platform, topic, STANDARDIZED, databases.standardized_table(topic), lease)
    abandon(platform, topic, CURATED, databases.curated_table(active.table_name) if active else None, lease)


def new_operation(
    platform: Platform,
    topic: str,
    work: Work,
    *,
    actor: str,
    schema: Schema,
    active: Schema | None,
    scope: Scope = Scope.NONE,
    accept: Accepted = Accept.NONE,
    classification: str = "",
    new_key: bool = False,
    lease: Lease,
) -> Operation:
    """An operation on the tables as they are now; raises where they are sealed with another key than ours."""
    databases = platform.rules.databases
    raw = platform.catalog.load(databases.raw_table(topic))
    standardized = _clean(platform, topic, STANDARDIZED, databases.standardized_table(topic), scope, lease)
    curated = _clean(platform, topic, CURATED, databases.curated_table(schema.table_name), scope, lease)
    return Operation(
        operation_id=new_batch_id(platform.clock()),
        topic=topic,
        work=work,
        actor=actor,
        begun_ms=platform.now_ms(),
        version=schema.version,
        previous=active.version if active else None,
        classification=classification,
        scope=scope,
        accept=accept,
        raw=Place(raw.uuid, raw.head, rows=_rows(raw)) if raw else None,
        standardized=_standardized(standardized, scope),
        standardized_head=standardized.head if standardized else None,
        portion_rows=platform.rules.rebuild_rows,
        limits=platform.rules.limits,
        column_limits=platform.rules.column_limits,
        curated=Place(curated.uuid, curated.head, curated.last_sequence_number + 1) if curated else Place("", None, 1),
        key_check=_key_check(platform, topic, schema, [] if new_key else [standardized, curated]),
        new_key=new_key,
    )


def _clean(platform: Platform, topic: str, layer: str, name: str, scope: Scope, lease: Lease) -> TableView | None:
    """A table without late batches; one that is replaced by rows from RAW may keep what cannot be taken out."""
    table = platform.catalog.load(name)
    try:
        return without_late_batches(platform, topic, layer, table, lease) if table else None
    except UnbalancedBatchError:
        if scope != Scope.BOTH:
            raise
        return table


def _key_check(platform: Platform, topic: str, schema: Schema, tables: Sequence[TableView | None]) -> str:
    """The check value of our key where the schema seals; raises where a table is sealed with another one."""
    if not schema.seals:
        return ""
    marks = [mark for table in tables if table and (mark := valid_watermark(table))]
    found = [key_check(platform, topic, seals=True, before=mark.key_check) for mark in marks]
    return found[0] if found else key_check(platform, topic, seals=True, before="")


def is_stale(platform: Platform, found: Standing) -> bool:
    """Whether nothing of an operation was done and its tables have moved: who wrote it down had lost the topic."""
    operation = found.operation
    if found.stage == Stage.GOING and operation.scope != Scope.NONE:
        return False
    if operation.scope == Scope.NONE and operation.work == Work.DEPLOY:
        active = platform.schemas.active(operation.topic)
        return (active.version if active else None) not in (operation.previous, operation.version)
    standardized = platform.catalog.load(platform.rules.databases.standardized_table(operation.topic))
    if operation.attempts or standardized is None or standardized.head == operation.back_to:
        return False
    if operation.work == Work.ROLLBACK and find_topic(platform, operation.topic).reason == operation.pause_reason:
        return False
    return not is_same_data(standardized, operation.standardized_head)


def has_head(platform: Platform, table: str) -> bool:
    """Whether anything was ever committed to a table."""
    view = platform.catalog.load(table)
    return view is not None and view.head is not None


def has_rows(platform: Platform, table: str) -> bool:
    """Whether a table was ever written by a batch; raises where it was, and the watermark that says so is lost."""
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
    """Made anew it has the next number; else it is read as far as its newest batch."""
    if view is None:
        return None
    mark = valid_watermark(view)
    rows = mark.totals.rows if mark else 0
    if scope == Scope.BOTH:
        return Place(view.uuid, view.head, view.last_sequence_number + 1, rows)
    return Place(view.uuid, view.head, mark.batch_seq if mark else 0, rows)


def _rows(view: TableView) -> int:
    head = view.snapshots.get(view.head) if view.head else None
    return int(head.summary.get("total-records", 0)) if head else 0
