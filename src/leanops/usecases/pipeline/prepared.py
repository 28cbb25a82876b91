"""What a layer hands over to be committed."""

from collections.abc import Mapping
from dataclasses import dataclass

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.balance import Counts
from leanops.domain.table.batch import Batch
from leanops.ports.engine import Target, Written


@dataclass(frozen=True)
class Prepared:
    """A batch whose rows are judged, counted, in balance and written to files; no table has any of them yet."""

    batch: Batch
    target: Target
    written: Written
    counts: Counts
    summary: Mapping[str, str]

    def check(self) -> None:
        """Raise unless the rows are accounted for, and the files hold the number that was counted."""
        self.counts.check()
        files, counts = (self.written.added, self.written.replaced), (self.counts.added, self.counts.replaced)
        if files != counts:
            raise UnbalancedBatchError(
                f"{self.batch.topic}: the files of batch {self.batch.batch_id} hold {files[0]} rows and replace "
                f"{files[1]}, not {counts[0]} and {counts[1]}"
            )
