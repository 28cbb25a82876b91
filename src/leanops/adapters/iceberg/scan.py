"""The rows of a table as a stream of Arrow batches, a few files at a time."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import Table

from leanops.domain.groups import in_groups

BYTES_AT_ONCE = 64 << 20


class Scan:
    """Some columns of a table at one snapshot; an Arrow stream that can be opened any number of times."""

    def __init__(self, table: Table, columns: Sequence[str], row_filter: BooleanExpression) -> None:
        self.columns = tuple(columns) or _smallest(table)
        self._scan = table.scan(selected_fields=self.columns, row_filter=row_filter)
        self.schema = schema_to_pyarrow(self._scan.projection(), include_field_ids=False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        scan = self._scan
        # PyIceberg holds all files it is given at once.
        for tasks in in_groups(scan.plan_files(), lambda task: task.file.file_size_in_bytes, most_bytes=BYTES_AT_ONCE):
            files = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter, scan.case_sensitive)
            for batch in files.to_record_batches(tasks):
                yield batch.cast(self.schema)


def _smallest(table: Table) -> tuple[str, ...]:
    """One column for a reader that only counts rows."""
    fixed = [field.name for field in table.schema().fields if str(field.field_type) in ("int", "long", "timestamptz")]
    return tuple(fixed[:1]) or (table.schema().fields[0].name,)
