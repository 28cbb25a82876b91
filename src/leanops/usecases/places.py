"""Where a topic's tables stand when an operation begins."""

from leanops.domain.batches import CURATED, STANDARDIZED, new_batch_id
from leanops.domain.operations import Accept, Accepted, Operation, Place, Scope, Work
from leanops.domain.schema import Schema
from leanops.domain.snapshots import TableView, valid_watermark
from leanops.usecases.batches import abandon
from leanops.usecases.leases import Lease
from leanops.usecases.platform import Platform
from leanops.usecases.record_runs import complete_begun


def settle(platform: Platform, topic: str, active: Schema | None, lease: Lease) -> None:
    """Finish batches that are committed and give up those that are not: the operation starts from whole tables."""
    databases = platform.rules.databases
    complete_begun(platform, "operation", topic, active, lease)
    abandon(platform, topic, STANDARDIZED, databases.standardized_table(topic))
    abandon(platform, topic, CURATED, databases.curated_table(active.table_name) if active else None)


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
) -> Operation:
    """An operation on the tables as they are now."""
    databases = platform.rules.databases
    raw = platform.catalog.load(databases.raw_table(topic))
    standardized = platform.catalog.load(databases.standardized_table(topic))
    curated = platform.catalog.load(databases.curated_table(schema.table_name))
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
    )


def has_rows(platform: Platform, table: str) -> bool:
    """Whether a table was ever written by a batch."""
    view = platform.catalog.load(table)
    return view is not None and valid_watermark(view) is not None


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
