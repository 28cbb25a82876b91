"""What others wrote into a table that only our batches should write."""

from dataclasses import dataclass

from leanops.domain.table.history import TableView

_OURS = "leanops."
_COMPACTION = "replace"


@dataclass(frozen=True)
class Foreign:
    """A snapshot that another tool committed."""

    snapshot_id: int
    operation: str
    at_ms: int | None
    """When it became the head, where the table still knows."""

    @property
    def changes_rows(self) -> bool:
        """Whether its rows may be others than before; a compaction only writes the same ones anew."""
        return self.operation != _COMPACTION


def foreign_snapshots(table: TableView) -> list[Foreign]:
    """The snapshots of a layer without a key of ours, newest first, back to the last rebuild or expiry.

    Every commit of a batch, a rebuild and a retention carries one; a rollback moves the head and commits nothing.
    """
    became = {snapshot: when for when, snapshot in table.history}
    return [
        Foreign(snapshot.snapshot_id, snapshot.operation, became.get(snapshot.snapshot_id))
        for snapshot in table.ancestors()
        if not any(key.startswith(_OURS) for key in snapshot.summary)
    ]
