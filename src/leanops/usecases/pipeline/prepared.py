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
        """Raise unless the rows are accounted for, and the files hold as many as were counted."""
        self.counts.check()
        added, counted = self.written.added, self.counts.inserted + self.counts.updated
        if (added, self.written.replaced) != (counted, self.counts.updated):
            raise UnbalancedBatchError(
                f"{self.batch.topic}: the files of batch {self.batch.batch_id} hold {added} rows and replace "
                f"{self.written.replaced}, not {counted} and {self.counts.updated}"
            )
