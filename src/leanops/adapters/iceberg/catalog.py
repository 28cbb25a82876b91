"""Tables through PyIceberg: metadata, definitions and small appends, without Spark."""

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import reduce
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSchemasUpdate,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import DayTransform
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from leanops.adapters.iceberg import bounds, shared_metadata
from leanops.adapters.iceberg.definitions import iceberg_schema, iceberg_type, partition_spec, table_properties
from leanops.adapters.iceberg.transactions import Append, Once
from leanops.domain.errors import CommitRefusedError, PermanentError
from leanops.domain.table.definitions import TableDefinition
from leanops.domain.table.history import Snapshot, TableView
from leanops.ports.tables import NO_FILTER, Between, StartsWith, Where

Result = TypeVar("Result")
# Rows to be removed are often not there, and nobody needs a warning.
warnings.filterwarnings("ignore", "Delete operation did not match any records")


_filters: Any = expressions
"""As Any: the constructors accept more than their types declare."""


@runtime_checkable
class _Locates(Protocol):
    """A catalog that can be asked for several tables at once."""

    def locations(self, identifiers: Sequence[str]) -> list[str | None]:
        """Where the metadata of each of these tables is now; None where there is no such table."""

    def table_at(self, identifier: str, location: str) -> Table:
        """A table by the metadata at a location."""


class IcebergCatalog:
    """The Catalog port on any PyIceberg catalog."""

    def __init__(self, catalog: Catalog) -> None:
        bounds.install()
        shared_metadata.install()
        self.native = catalog
        """PyIceberg's own, for what the port does not offer."""

    def load(self, name: str) -> TableView | None:
        try:
            return _view(name, self.native.load_table(name))
        except NoSuchTableError:
            return None

    def look(self, names: Sequence[str]) -> Callable[[str], TableView | None]:
        native = self.native
        if not isinstance(native, _Locates):
            return self.load
        locations = dict(zip(names, native.locations(names), strict=True))

        def view(name: str) -> TableView | None:
            location = locations[name]
            try:
                return _view(name, native.table_at(name, location)) if location else None
            except FileNotFoundError:
                # Others have committed so often meanwhile that the metadata was removed.
                return self.load(name)

        return view

    def create(self, name: str, definition: TableDefinition) -> TableView:
        existing = self.load(name)
        if existing:
            return existing
        self._create_database(name.split(".")[0])
        schema = iceberg_schema(definition)
        # Another process may be first; its table is the same.
        with suppress(TableAlreadyExistsError):
            self.native.create_table(
                name, schema, partition_spec=partition_spec(definition, schema), properties=table_properties(definition)
            )
        return _view(name, self.native.load_table(name))

    def _create_database(self, name: str) -> None:
        try:
            self.native.create_namespace_if_not_exists(name)
        except Exception:
            # Two workers may both find it missing; what the later one gets depends on the catalog.
            if not self.native.namespace_exists(name):
                raise

    def alter(
        self, name: str, added: Mapping[str, tuple[str, str]], widened: Mapping[str, str] | None = None
    ) -> TableView:
        def change(table: Table) -> None:
            known = {field.name: field.field_type for field in table.schema().fields}
            missing = {name: column for name, column in added.items() if name not in known}
            wider = {name: iceberg_type(kind, iter(())) for name, kind in (widened or {}).items()}
            wider = {name: kind for name, kind in wider.items() if known.get(name) != kind}
            if not missing and not wider:
                return
            with Once(table) as transaction:
                with transaction.update_schema() as update:
                    for name, (kind, comment) in missing.items():
                        update.add_column((name,), iceberg_type(kind, iter(())), doc=comment)
                    for name, wide in wider.items():
                        update.update_column((name,), field_type=wide)
                _remove_schemas(transaction, table)

        self._retried(name, change)
        return _view(name, self.native.load_table(name))

    def append(self, name: str, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str] | None = None) -> None:
        if rows:
            self._retried(name, lambda table: _append(table, rows, properties))

    def append_planned(self, name: str, plan: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        def append(table: Table) -> None:
            if rows := plan():
                _append(table, rows)

        self._retried(name, append)

    def land(
        self,
        name: str,
        definition: TableDefinition,
        columns: Mapping[str, Sequence[Any]],
        properties: Mapping[str, str],
        plan: Callable[[TableView], Sequence[int] | None],
    ) -> None:
        def append(table: Table) -> None:
            expired = plan(_view(name, table))
            if expired is None:
                return
            transaction = Append(table)
            rows = pa.table(dict(columns), schema=table.schema().as_arrow())
            transaction.append(rows, snapshot_properties=dict(properties))
            # A tag or branch may hold what nobody reads any more.
            held = {reference.snapshot_id for reference in table.metadata.refs.values()}
            free = [snapshot for snapshot in expired if snapshot not in held]
            if free:
                ExpireSnapshots(transaction).by_ids(free).commit()
            try:
                transaction.commit_transaction()
            except ValueError:
                # Another tool may expire snapshots and leave the head: a conflict, which PyIceberg does not call one.
                if all(table.refresh().metadata.snapshot_by_id(snapshot) for snapshot in free):
                    raise
                raise CommitFailedException(f"{name}: snapshots to be expired are gone already") from None

        try:
            self._retried(name, append)
        except NoSuchTableError:
            self.create(name, definition)
            self._retried(name, append)

    def select(
        self, name: str, columns: Sequence[str], where: Where = NO_FILTER, *, at: int | None = None
    ) -> list[dict[str, Any]]:
        try:
            table = self.native.load_table(name)
        except NoSuchTableError:
            return []
        scan = table.scan(_expression(where), selected_fields=tuple(columns), snapshot_id=at)
        return list(scan.to_arrow().to_pylist())

    def delete(self, name: str, where: Where, guard: Callable[[], None] = lambda: None) -> None:
        def remove(table: Table) -> None:
            guard()
            with Once(table) as transaction:
                transaction.delete(_expression(where))

        if self.native.table_exists(name):
            self._retried(name, remove)

    def replace(
        self, name: str, where: Where, rows: Sequence[Mapping[str, Any]], *, only_at: int | None = None
    ) -> bool:
        def overwrite(table: Table) -> bool:
            if only_at not in (None, table.metadata.current_snapshot_id):
                return False
            with Once(table) as transaction:
                transaction.overwrite(_arrow(table, rows), overwrite_filter=_expression(where))
            return True

        return self._retried(name, overwrite)

    def count(self, name: str) -> int:
        try:
            table = self.native.load_table(name)
        except NoSuchTableError:
            return 0
        return table.scan(selected_fields=(table.schema().fields[0].name,)).count()

    def partitions(self, name: str, snapshot_id: int) -> Mapping[tuple[Any, ...], int]:
        rows: Counter[tuple[Any, ...]] = Counter()
        table = self.native.load_table(name)
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        for manifest in snapshot.manifests(table.io) if snapshot else ():
            if manifest.content == ManifestContent.DATA:
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    values: Any = entry.data_file.partition
                    key = tuple(_partition_value(field, values[at]) for at, field in enumerate(table.spec().fields))
                    rows[key] += entry.data_file.record_count
        return rows

    def take_place(
        self, name: str, source: str, snapshot_id: int, summary: Mapping[str, str], *, only_at: int | None, after: int
    ) -> None:
        table, other = self.native.load_table(name), self.native.load_table(source)
        taken = other.metadata.snapshot_by_id(snapshot_id)
        if taken is None or table.spec() != other.spec():
            raise PermanentError(f"{name} cannot take what {source} holds: another partitioning, or no such snapshot")
        updates: list[Any] = []
        schema_id = taken.schema_id
        if name != source:
            schema_id = 1 + max(schema.schema_id for schema in table.metadata.schemas)
            columns = other.schemas()[taken.schema_id] if taken.schema_id is not None else other.schema()
            updates.append(AddSchemaUpdate(schema_=columns.model_copy(update={"schema_id": schema_id})))
        metadata: Any = table.metadata
        number = 1 + max(metadata.last_sequence_number, taken.sequence_number or 0, after)
        snapshot = _taken(taken, table.metadata.new_snapshot_id(), number, schema_id, summary)
        updates += [
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                ref_name=MAIN_BRANCH,
                type="branch",
                snapshot_id=snapshot.snapshot_id,
                max_ref_age_ms=None,
                max_snapshot_age_ms=None,
                min_snapshots_to_keep=None,
            ),
            SetCurrentSchemaUpdate(schema_id=schema_id),
        ]
        uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
        head = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=only_at)
        try:
            self.native.commit_table(table, (uuid, head), tuple(updates))
        except CommitFailedException:
            raise CommitRefusedError(f"{name} was changed by another writer; nothing took its place") from None

    def forget(self, name: str) -> None:
        with suppress(NoSuchTableError):
            self.native.drop_table(name)

    def fork(self, name: str, source: str) -> None:
        with suppress(TableAlreadyExistsError):
            self.native.register_table(name, self.native.load_table(source).metadata_location)

    def mark(self, name: str, properties: Mapping[str, str]) -> None:
        self._retried(name, lambda table: _append(table, [], properties))

    def roll_back(self, name: str, snapshot_id: int | None, *, only_at: int | None) -> None:
        def move(table: Table) -> None:
            head = table.metadata.current_snapshot_id
            if head not in (snapshot_id, only_at):
                raise CommitRefusedError(f"{name} was changed by another writer; it was not rolled back")
            if snapshot_id is None and head is not None:
                table.manage_snapshots().remove_branch(MAIN_BRANCH).commit()
            elif snapshot_id is not None and head != snapshot_id:
                table.manage_snapshots().rollback_to_snapshot(snapshot_id).commit()

        self._retried(name, move)

    def _retried(self, name: str, change: Callable[[Table], Result]) -> Result:
        """Run a change on the newest metadata until no concurrent commit is in its way."""
        retrying = Retrying(
            retry=retry_if_exception_type((CommitFailedException, ValidationException)),
            stop=stop_after_attempt(30),
            wait=wait_random_exponential(multiplier=0.02, max=1),
            reraise=True,
        )
        return retrying(lambda: change(self.native.load_table(name)))


def _append(table: Table, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str] | None = None) -> None:
    """One commit with these rows; without rows it is a commit all the same."""
    transaction = Append(table)
    transaction.append(_arrow(table, rows), snapshot_properties=dict(properties or {}))
    transaction.commit_transaction()


def _arrow(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow())


def _remove_schemas(transaction: Transaction, table: Table) -> None:
    """Remove the schemas that no snapshot names, except the current one: each lists all columns again."""
    named = {table.metadata.current_schema_id, *(snapshot.schema_id for snapshot in table.metadata.snapshots)}
    idle = [schema.schema_id for schema in table.metadata.schemas if schema.schema_id not in named]
    if idle:
        transaction._apply((RemoveSchemasUpdate(schema_ids=idle),))


def _view(name: str, table: Table) -> TableView:
    metadata: Any = table.metadata
    snapshots = {
        snapshot.snapshot_id: Snapshot(
            snapshot_id=snapshot.snapshot_id,
            parent_id=snapshot.parent_snapshot_id,
            sequence_number=snapshot.sequence_number or 0,
            operation=snapshot.summary.operation.value if snapshot.summary else "",
            summary=snapshot.summary.additional_properties if snapshot.summary else {},
        )
        for snapshot in metadata.snapshots
    }
    fields = table.schema().fields
    return TableView(
        name=name,
        uuid=str(metadata.table_uuid),
        head=metadata.current_snapshot_id,
        last_sequence_number=metadata.last_sequence_number,
        snapshots=snapshots,
        columns={field.name: str(field.field_type) for field in fields},
        paths={field.doc: field.name for field in fields if field.doc and field.doc.startswith("$")},
        history=tuple((entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log),
    )


def _taken(
    source: IcebergSnapshot, snapshot_id: int, number: int, schema_id: int | None, summary: Mapping[str, str]
) -> IcebergSnapshot:
    """A snapshot of the same files that has no parent: earlier commits are not its ancestors."""
    properties = source.summary.additional_properties if source.summary else {}
    totals = {key: value for key, value in properties.items() if key.startswith("total-")}
    return IcebergSnapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=number,
        timestamp_ms=time.time_ns() // 1_000_000,
        manifest_list=source.manifest_list,
        summary=Summary(Operation.OVERWRITE, **totals, **summary),
        schema_id=schema_id,
    )


def _partition_value(field: PartitionField, value: Any) -> Any:
    """A partition's value as people write it; files hold days as numbers."""
    is_day = isinstance(field.transform, DayTransform) and value is not None
    return date(1970, 1, 1) + timedelta(days=value) if is_day else value


def _expression(where: Where) -> Any:
    return reduce(_filters.And, (_condition(column, value) for column, value in where.items()), _filters.AlwaysTrue())


def _condition(column: str, value: Any) -> Any:
    match value:
        case Between(first, None):
            return _filters.GreaterThanOrEqual(column, first.isoformat())
        case Between(first, datetime() as end):
            return _condition(column, Between(first)) & _filters.LessThan(column, end.isoformat())
        case StartsWith(text):
            return _filters.StartsWith(column, text)
        case list():
            return _filters.In(column, value)
        case _:
            return _filters.EqualTo(column, value)
