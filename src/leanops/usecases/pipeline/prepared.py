"""What a layer hands over to be committed."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from leanops.domain.payload.flatten import Kind
from leanops.domain.table.balance import Counts
from leanops.domain.table.batch import Batch
from leanops.ports.tables import Merge


@dataclass(frozen=True)
class Prepared:
    """A batch whose rows are judged, counted and in balance; nothing of it is in the table yet."""

    batch: Batch
    table: str
    source_rows: DataFrame
    errors: DataFrame | None
    merge: Merge
    counts: Counts
    persisted: tuple[DataFrame, ...]
    kinds: Mapping[str, set[Kind]] = field(default_factory=dict)
    added_columns: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Columns the table does not have yet: name → type and path. They are added before anything of the batch is
    written."""

    def free(self) -> None:
        """Give back what the batch holds in memory and on disk."""
        # An engine that is gone holds nothing, and must not hide the failure that was its end.
        with suppress(Exception):
            for frame in self.persisted:
                frame.unpersist()
