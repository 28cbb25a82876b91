"""Questions to the tables in SQL, read-only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Answer:
    """The rows a statement gives; they are read as they are taken, once."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]

    def as_dicts(self) -> Iterator[dict[str, Any]]:
        """Each row by column name."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)


def quoted(table: str) -> str:
    """A table's full name as a statement can hold it, whatever words it is made of."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


class Query(Protocol):
    """SELECT over tables by their full names; only the tables and columns a statement names are read."""

    def ask(self, statement: str, parameters: Sequence[Any] = ()) -> Answer:
        """The answer to one SELECT, with `?` for the parameters; raises UsageError for anything else."""
