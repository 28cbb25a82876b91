"""A topic in detail: its tables and their snapshots."""

from dataclasses import dataclass
from datetime import datetime

from leanops.domain.errors import LeanOpsError
from leanops.domain.table.definitions import CURATED_SYSTEM_COLUMNS, RAW, STANDARDIZED_SYSTEM_COLUMNS
from leanops.domain.table.history import KIND, Snapshot, TableView, is_ancestor, watermark_from
from leanops.views.sources import Sources, time_of


@dataclass(frozen=True)
class TopicTable:
    """One table of a topic."""

    layer: str
    name: str
    exists: bool
    payload_columns: int
    snapshots: int


@dataclass(frozen=True)
class TableState:
    """A snapshot of Standardized, which a rollback can restore."""

    snapshot: str
    """Its id as a string: JSON readers round such numbers."""
    at: datetime | None
    kind: str
    """`batch`, `rebuild`, or `other`: compaction and the like."""
    batch: str | None
    rows: int | None
    """Rows of the table at that time; None if it is not a batch."""
    place: str
    """`now`, `earlier`, `undone` by a rollback, or `before a rebuild`."""


def states_of(sources: Sources, topic: str, most: int) -> list[TableState]:
    """The newest snapshots of a topic's Standardized table, newest first."""
    view = sources.catalog.load(sources.databases.standardized_table(topic))
    if view is None:
        return []
    newest = sorted(view.snapshots.values(), key=lambda snapshot: snapshot.sequence_number, reverse=True)
    return [_state(view, snapshot) for snapshot in newest[:most]]


def _state(view: TableView, snapshot: Snapshot) -> TableState:
    mark = watermark_from(snapshot)
    # A rebuilt table starts a new history; so does a first batch.
    is_rebuild = mark is not None and snapshot.parent_id is None and snapshot.sequence_number > 1
    became = {head: when for when, head in reversed(view.history)}
    when = became.get(snapshot.snapshot_id)
    return TableState(
        snapshot=str(snapshot.snapshot_id),
        at=time_of(when) if when else None,
        kind="rebuild" if is_rebuild else "batch" if mark else snapshot.summary.get(KIND, "other"),
        batch=mark.batch_id if mark else None,
        rows=mark.totals.rows if mark else None,
        place=_place(view, snapshot),
    )


def _place(view: TableView, snapshot: Snapshot) -> str:
    if snapshot.snapshot_id == view.head:
        return "now"
    if is_ancestor(view, snapshot.snapshot_id):
        return "earlier"
    first = view.ancestors()[-1:]
    return "before a rebuild" if first and snapshot.sequence_number < first[0].sequence_number else "undone"


def tables_of(sources: Sources, topic: str) -> list[TopicTable]:
    """The tables a topic has or will have, in the order data moves."""
    databases = sources.databases
    system = {"raw": tuple(RAW.columns), "standardized": STANDARDIZED_SYSTEM_COLUMNS, "curated": CURATED_SYSTEM_COLUMNS}
    names = {"raw": databases.raw_table(topic), "standardized": databases.standardized_table(topic)}
    table_name = curated_name(sources, topic)
    if table_name:
        names["curated"] = databases.curated_table(table_name)
    tables = []
    for layer, name in names.items():
        table = sources.catalog.load(name)
        columns = len(set(table.columns) - set(system[layer])) if table else 0
        tables.append(TopicTable(layer, name, table is not None, columns, len(table.snapshots) if table else 0))
    return tables


def curated_name(sources: Sources, topic: str) -> str | None:
    """The table name of the active schema; None without a valid one."""
    try:
        schema = sources.schemas.active(topic)
    except LeanOpsError:
        return None
    return schema.table_name if schema else None
