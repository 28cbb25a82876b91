"""Our own PyIceberg transactions: each is committed on the table its plan has seen, or not at all."""

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata


class Once(Transaction):
    """A transaction that a conflict ends.

    PyIceberg would put it on top of whatever came meanwhile, up to `commit.retry.num-retries` times, which is a
    property for Spark. A change that was planned on the contents of the table has to be planned again by the caller.
    """

    def _rebuild_snapshot_updates(self) -> None:
        # Called after a conflict, once the table was found not to hold this commit: its answer may have been lost.
        raise CommitFailedException("another commit came first; the change is planned again")


class Append(Once):
    """One append, perhaps with an expiry: nothing in it reads the staged metadata, so only the commit applies it.

    PyIceberg's own transaction applies and copies all metadata at each of about twenty reads.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata
