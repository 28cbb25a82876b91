"""Tables in a folder, and the steps of a batch on them: look up, write, commit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table

from leanops.adapters.iceberg.batches.row_delta import commit_row_delta
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.local import LocalCatalog
from leanops.adapters.iceberg.tasks.rows import DeadRows, live_rows
from leanops.adapters.iceberg.tasks.stored import Layout, Positions, StoredFile, arrow_type, stored_files
from leanops.adapters.iceberg.tasks.written import write_deletes, write_rows
from leanops.domain.table.definitions import TableDefinition

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAME = "db.t"


@contextmanager
def catalog_in(folder: Path) -> Iterator[Catalog]:
    """The catalog of a home; no test waits for disks."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = LocalCatalog("leanops", folder, lambda _folder: None)
    try:
        yield catalog
    finally:
        catalog.engine.dispose()


def created(catalog: Catalog, definition: TableDefinition, **properties: str) -> Table:
    """A new table, with some properties changed."""
    IcebergCatalog(catalog).create(NAME, definition)
    table = catalog.load_table(NAME)
    if properties:
        with table.transaction() as change:
            change.set_properties(
                {key.replace("__", "-").replace("_", "."): value for key, value in properties.items()}
            )
    return catalog.load_table(NAME)


def event(key: str, version: int = 0, period: str = "2026-03", day: int = 0) -> dict[str, Any]:
    """A row of Standardized."""
    return {
        "record_key": key,
        "period_reference": period,
        "publish_time": DAY + timedelta(days=day),
        "_batch_seq": version,
    }


def arrow(layout: Layout, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows with those columns that one of them has, in the table's types."""
    names = [column for column in layout.schema.fields if any(column.name in row for row in rows)]
    return pa.Table.from_pylist(
        list(rows), schema=pa.schema([(column.name, arrow_type(column.field_type)) for column in names])
    )


def located(table: Table, keys: set[str]) -> list[tuple[StoredFile, Positions]]:
    """Where the live rows of these keys are."""
    layout, found = Layout.of(table), []
    dead = DeadRows(table.io)
    for file in stored_files(table, table.metadata.current_snapshot_id, ("record_key",)):
        rows = live_rows(table.io, layout, file, ["record_key"], positions=True, dead=dead)
        hits = rows.filter(pa.compute.is_in(rows["record_key"], pa.array(sorted(keys), pa.string())))
        if hits.num_rows:
            found.append((file, hits["_pos"].to_numpy().astype(np.int64)))
    return found


def upsert(catalog: Catalog, rows: Sequence[Mapping[str, Any]], **summary: str) -> int:
    """One batch: the rows replace those of the same keys."""
    table = catalog.load_table(NAME)
    layout = Layout.of(table)
    return commit_row_delta(
        catalog,
        NAME,
        uuid=uuid_of(catalog),
        base=table.metadata.current_snapshot_id,
        data_files=write_rows(layout.io(), layout, [arrow(layout, rows)], ("record_key",)),
        delete_files=write_deletes(layout.io(), layout, located(table, {row["record_key"] for row in rows})),
        summary=summary,
    )


def scanned(catalog: Catalog, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as PyIceberg's own scan reads them."""
    rows = catalog.load_table(NAME).scan(selected_fields=columns).to_arrow().to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in rows)


def read_by_us(catalog: Catalog, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as a task reads them."""
    table = catalog.load_table(NAME)
    layout, dead = Layout.of(table), DeadRows(table.io)
    files = stored_files(table, table.metadata.current_snapshot_id, ())
    rows = [row for file in files for row in live_rows(table.io, layout, file, columns, dead=dead).to_pylist()]
    return sorted(tuple(row[column] for column in columns) for row in rows)


def files_with(catalog: Catalog, *keys: str, version: int = 0) -> list[DataFile]:
    """Files of rows with these keys, not committed."""
    layout = Layout.of(catalog.load_table(NAME))
    return write_rows(layout.io(), layout, [arrow(layout, [event(key, version) for key in keys])])


def head_of(catalog: Catalog) -> int | None:
    """The snapshot the table is at."""
    return catalog.load_table(NAME).metadata.current_snapshot_id


def uuid_of(catalog: Catalog) -> str:
    """The identity of the table; none where it is gone."""
    try:
        return str(catalog.load_table(NAME).metadata.table_uuid)
    except NoSuchTableError:
        return ""


def committed(catalog: Catalog, base: int | None, files: list[DataFile], **summary: str) -> int:
    """A commit of data files alone."""
    return commit_row_delta(
        catalog, NAME, uuid=uuid_of(catalog), base=base, data_files=files, delete_files=[], summary=summary
    )


def summary_of(table: Table, snapshot_id: int) -> Mapping[str, str]:
    """The whole summary of a snapshot."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def manifests(catalog: Catalog, kind: ManifestContent) -> list[ManifestFile]:
    """The manifests of the head that list data, or deletes."""
    table = catalog.load_table(NAME)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [manifest for manifest in snapshot.manifests(table.io) if manifest.content == kind]


def avros(catalog: Catalog) -> set[str]:
    """The names of all manifests and manifest lists there are."""
    folder = Path(catalog.load_table(NAME).location().removeprefix("file://"), "metadata")
    return {path.name for path in folder.glob("*.avro")}
