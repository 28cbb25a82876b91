"""Iceberg tables as the use cases need them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from leanops.domain.table.definitions import TableDefinition
from leanops.domain.table.history import TableView


@dataclass(frozen=True)
class Between:
    """From a moment on, and before another if there is one."""

    first: datetime
    end: datetime | None = None


@dataclass(frozen=True)
class StartsWith:
    """Texts with this beginning."""

    text: str


Where: TypeAlias = Mapping[str, object]
"""Column → what it must hold: a value, one of a list, a Between or a StartsWith."""
NO_FILTER: Where = {}


class Catalog(Protocol):
    """Tables without Spark: metadata, definitions, small appends."""

    def load(self, name: str) -> TableView | None:
        """The table as it is now, or None."""

    def look(self, names: Sequence[str]) -> Callable[[str], TableView | None]:
        """One look at all of these tables: what `load` says of each of them, without asking the catalog again."""

    def create(self, name: str, definition: TableDefinition) -> TableView:
        """The table, created if it was not there."""

    def alter(
        self, name: str, added: Mapping[str, tuple[str, str]], widened: Mapping[str, str] | None = None
    ) -> TableView:
        """Add columns (name → type, comment) and widen types in one commit, retried against concurrent commits.

        Columns that are there already and types that are wide enough stay as they are.
        """

    def append(self, name: str, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str] | None = None) -> None:
        """Append rows in one commit, retried against concurrent commits."""

    def land(
        self,
        name: str,
        definition: TableDefinition,
        columns: Mapping[str, Sequence[Any]],
        properties: Mapping[str, str],
        plan: Callable[[TableView], Sequence[int] | None],
    ) -> None:
        """Append rows, given as columns, and forget the snapshots the plan names, in one commit.

        The table is created if it was not there. The plan sees the table the commit is based on, and gives None where
        nothing should be appended.
        """

    def select(
        self, name: str, columns: Sequence[str], where: Where = NO_FILTER, *, at: int | None = None
    ) -> list[dict[str, Any]]:
        """Small reads: the rows that match, only these columns; nothing where the table does not exist.

        `at` is a snapshot; without it the table is read as it is now.
        """

    def append_planned(self, name: str, plan: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        """Append what the plan gives, in one commit based on the table as it was when the plan was asked.

        Where another writer was first, the plan is asked again: so it may look into the table, or raise.
        """

    def delete(self, name: str, where: Where, guard: Callable[[], None] = lambda: None) -> None:
        """Remove the rows that match, in one commit; nothing where the table does not exist.

        The guard may refuse by raising: it is asked after the table was read, before each try to commit.
        """

    def replace(
        self, name: str, where: Where, rows: Sequence[Mapping[str, Any]], *, only_at: int | None = None
    ) -> bool:
        """Remove the rows that match and append these, in one commit; False where the head is not the one named."""

    def count(self, name: str) -> int:
        """How many rows a table has, replaced ones left out; none where it does not exist."""

    def partitions(self, name: str, snapshot_id: int) -> Mapping[tuple[Any, ...], int]:
        """Rows in each partition at a snapshot, as the files count them: rows replaced since are still in it."""

    def take_place(
        self, name: str, source: str, snapshot_id: int, summary: Mapping[str, str], *, only_at: int | None, after: int
    ) -> None:
        """Give a table the rows and columns another one (or itself) has at a snapshot, in one commit with the summary.

        No row is written again: the files change hands, so a source is forgotten afterwards, not dropped. Readers see
        the old table or the new one; earlier snapshots can still be read, and only read. Raises CommitRefusedError
        where the head is not the one named. The commit's sequence number is greater than `after`.
        """

    def forget(self, name: str) -> None:
        """Take a table out of the catalog and leave its files; nothing where it does not exist."""

    def fork(self, name: str, source: str) -> None:
        """A second table that begins as another one is now, history and all; nothing where it is there already.

        From here each goes its own way. They share files, so neither may ever be purged.
        """

    def mark(self, name: str, properties: Mapping[str, str]) -> None:
        """A commit without rows: whatever was planned on the head before it is refused from now on."""

    def roll_back(self, name: str, snapshot_id: int | None, *, only_at: int | None) -> None:
        """Make an ancestor of the head the head, or leave the table without one; nothing where it is so already.

        Raises CommitRefusedError where the head is not the one named.
        """
