"""Tables through PyIceberg: metadata, definitions and small appends, without Spark."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from leanops.domain.errors import CommitRefusedError, PermanentError
from leanops.domain.snapshots import Snapshot, TableView
from leanops.domain.tables import FAILURE, FAILURES, TableDefinition

PROPERTIES = {
    "format-version": "2",
    "write.merge.mode": "merge-on-read",
    "write.merge.isolation-level": "serializable",
    "write.merge.distribution-mode": "hash",
    "write.distribution-mode": "none",
    "write.target-file-size-bytes": str(256 << 20),
    "write.parquet.compression-codec": "zstd",
    # A small dictionary gives up early on columns that hardly repeat: quicker to write, and smaller.
    "write.parquet.dict-size-bytes": str(64 << 10),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest.target-size-bytes": str(8 << 20),
    # Without it PyIceberg adds a manifest to the list with every append, and reads them all at the next.
    "commit.manifest-merge.enabled": "true",
    "commit.retry.num-retries": "30",
    "write.metadata.metrics.default": "none",
}
_PRIMITIVES: dict[str, IcebergType] = {
    "string": StringType(),
    "long": LongType(),
    "int": IntegerType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamptz": TimestamptzType(),
}
Result = TypeVar("Result")


class IcebergCatalog:
    """The Catalog port on any PyIceberg catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def load(self, name: str) -> TableView | None:
        try:
            return _view(name, self._catalog.load_table(name))
        except NoSuchTableError:
            return None

    def create(self, name: str, definition: TableDefinition) -> TableView:
        found = self.load(name)
        if found:
            return found
        self._create_database(name.split(".")[0])
        schema = _schema(definition)
        # Another process may be first; its table is the same.
        with suppress(TableAlreadyExistsError):
            self._catalog.create_table(
                name, schema, partition_spec=_partitions(definition, schema), properties=_properties(definition)
            )
        return _view(name, self._catalog.load_table(name))

    def _create_database(self, name: str) -> None:
        try:
            self._catalog.create_namespace_if_not_exists(name)
        except Exception:
            # Two workers may both find it missing; what the later one is told depends on the catalog.
            if not self._catalog.namespace_exists(name):
                raise

    def alter(
        self, name: str, added: Mapping[str, tuple[str, str]], widened: Mapping[str, str] | None = None
    ) -> TableView:
        def change(table: Table) -> None:
            known = {field.name: field.field_type for field in table.schema().fields}
            missing = {name: column for name, column in added.items() if name not in known}
            wider = {name: _type(kind, iter(())) for name, kind in (widened or {}).items()}
            wider = {name: kind for name, kind in wider.items() if known.get(name) != kind}
            if not missing and not wider:
                return
            with table.update_schema() as update:
                for name, (kind, comment) in missing.items():
                    update.add_column((name,), _type(kind, iter(())), doc=comment)
                for name, wide in wider.items():
                    update.update_column((name,), field_type=wide)

        self._retried(name, change)
        return _view(name, self._catalog.load_table(name))

    def append(self, name: str, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str] | None = None) -> None:
        if not rows:
            return

        def append(table: Table) -> None:
            transaction = _Append(table)
            data = pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow())
            transaction.append(data, snapshot_properties=dict(properties or {}))
            transaction.commit_transaction()

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
            transaction = _Append(table)
            rows = pa.table(dict(columns), schema=table.schema().as_arrow())
            transaction.append(rows, snapshot_properties=dict(properties))
            # A tag or branch may hold what nobody reads any more.
            held = {reference.snapshot_id for reference in table.metadata.refs.values()}
            free = [snapshot for snapshot in expired if snapshot not in held]
            if free:
                ExpireSnapshots(transaction).by_ids(free).commit()
            transaction.commit_transaction()

        try:
            self._retried(name, append)
        except NoSuchTableError:
            self.create(name, definition)
            self._retried(name, append)

    def select(self, name: str, columns: Sequence[str], where: str = "true") -> list[dict[str, Any]]:
        try:
            table = self._catalog.load_table(name)
        except NoSuchTableError:
            return []
        scan = table.scan(selected_fields=tuple(columns))
        found = scan if where == "true" else scan.filter(where)
        return list(found.to_arrow().to_pylist())

    def delete(self, name: str, where: str) -> None:
        if self._catalog.table_exists(name):
            self._retried(name, lambda table: table.delete(where))

    def replace(self, name: str, where: str, rows: Sequence[Mapping[str, Any]], *, only_at: int | None = None) -> bool:
        def overwrite(table: Table) -> bool:
            if only_at not in (None, table.metadata.current_snapshot_id):
                return False
            table.overwrite(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()), overwrite_filter=where)
            return True

        return self._retried(name, overwrite)

    def count(self, name: str) -> int:
        try:
            table = self._catalog.load_table(name)
        except NoSuchTableError:
            return 0
        return table.scan(selected_fields=(table.schema().fields[0].name,)).count()

    def partitions(self, name: str, snapshot_id: int) -> Mapping[tuple[Any, ...], int]:
        found: Counter[tuple[Any, ...]] = Counter()
        table = self._catalog.load_table(name)
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        for manifest in snapshot.manifests(table.io) if snapshot else ():
            if manifest.content == ManifestContent.DATA:
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    values: Any = entry.data_file.partition
                    key = tuple(_partition_value(field, values[at]) for at, field in enumerate(table.spec().fields))
                    found[key] += entry.data_file.record_count
        return found

    def take_place(
        self, name: str, source: str, snapshot_id: int, summary: Mapping[str, str], *, only_at: int | None, after: int
    ) -> None:
        table, other = self._catalog.load_table(name), self._catalog.load_table(source)
        taken = other.metadata.snapshot_by_id(snapshot_id)
        if taken is None or table.spec() != other.spec():
            raise PermanentError(f"{name} cannot take what {source} holds: another partitioning, or no such snapshot")
        updates: list[Any] = []
        schema_id = taken.schema_id
        if name != source:
            schema_id = 1 + max(schema.schema_id for schema in table.metadata.schemas)
            updates.append(AddSchemaUpdate(schema_=other.schema().model_copy(update={"schema_id": schema_id})))
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
            self._catalog.commit_table(table, (uuid, head), tuple(updates))
        except CommitFailedException:
            raise CommitRefusedError(f"{name} was changed by another writer; nothing took its place") from None

    def forget(self, name: str) -> None:
        with suppress(NoSuchTableError):
            self._catalog.drop_table(name)

    def roll_back(self, name: str, snapshot_id: int) -> None:
        def move(table: Table) -> None:
            if table.metadata.current_snapshot_id != snapshot_id:
                table.manage_snapshots().rollback_to_snapshot(snapshot_id).commit()

        self._retried(name, move)

    def drop(self, name: str) -> None:
        with suppress(NoSuchTableError):
            self._catalog.purge_table(name)

    def _retried(self, name: str, change: Callable[[Table], Result]) -> Result:
        """Run a change on the newest metadata until no concurrent commit is in its way."""
        retrying = Retrying(
            retry=retry_if_exception_type(CommitFailedException),
            stop=stop_after_attempt(30),
            wait=wait_random_exponential(multiplier=0.02, max=1),
            reraise=True,
        )
        return retrying(lambda: change(self._catalog.load_table(name)))


class _Append(Transaction):
    """One append, perhaps with an expiry: nothing in it looks at what it stages, so only the commit applies it.

    PyIceberg's own applies and copies all metadata at each of some twenty looks.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


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
    found: IcebergSnapshot, snapshot_id: int, number: int, schema_id: int | None, summary: Mapping[str, str]
) -> IcebergSnapshot:
    """The same files as a snapshot without a past: what was committed before it is no ancestor."""
    said = found.summary.additional_properties if found.summary else {}
    totals = {key: value for key, value in said.items() if key.startswith("total-")}
    return IcebergSnapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=number,
        timestamp_ms=time.time_ns() // 1_000_000,
        manifest_list=found.manifest_list,
        summary=Summary(Operation.OVERWRITE, **totals, **summary),
        schema_id=schema_id,
    )


def _partition_value(field: PartitionField, value: Any) -> Any:
    """A partition's value as people write it; files hold days as numbers."""
    is_day = isinstance(field.transform, DayTransform) and value is not None
    return date(1970, 1, 1) + timedelta(days=value) if is_day else value


def _schema(definition: TableDefinition) -> Schema:
    ids = iter(range(1, 10_000))
    fields = []
    for name, kind in definition.columns.items():
        number = next(ids)
        fields.append(NestedField(number, name, _type(kind, ids), required=False, doc=definition.comments.get(name)))
    return Schema(*fields)


def _type(kind: str, ids: "Any") -> IcebergType:
    if kind == FAILURES:
        element = next(ids)
        members = [NestedField(next(ids), name, StringType(), required=False) for name in FAILURE]
        return ListType(element, StructType(*members), element_required=False)
    if kind.startswith("decimal("):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return DecimalType(int(precision), int(scale))
    return _PRIMITIVES[kind]


def _partitions(definition: TableDefinition, schema: Schema) -> PartitionSpec:
    transforms: dict[str, Any] = {"day": DayTransform, "identity": IdentityTransform}
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(column).field_id,
                1000 + position,
                transforms[transform](),
                definition.partition_names[position],
            )
            for position, (column, transform) in enumerate(definition.partition_by)
        )
    )


def _properties(definition: TableDefinition) -> dict[str, str]:
    metrics = {f"write.metadata.metrics.column.{name}": "truncate(16)" for name in definition.measured}
    known = {key: mode for key, mode in metrics.items() if key.rsplit(".", 1)[1] in definition.columns}
    return {**PROPERTIES, **known}
