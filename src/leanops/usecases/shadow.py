"""The tables of an operation that are built beside the live ones, and what both of them are made from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from leanops.domain.operations import Operation, Scope
from leanops.domain.schema import Schema
from leanops.domain.snapshots import TableView
from leanops.ports.tables import Lake
from leanops.usecases.batches import schema_of_version
from leanops.usecases.leases import Lease, check
from leanops.usecases.platform import Platform

_TABLES = ("standardized", "parse_errors", "curated", "errors")
Progress = Callable[[str, int, int], None]
"""Told what is being built, how many rows are done, and how many there are."""


def quiet(_what: str, _done: int, _rows: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Portion:
    """Some partitions of the source, with about as many rows as are worked on at a time."""

    values: tuple[Any, ...]
    rows: int

    def mark(self, operation: Operation) -> str:
        """The id in the commit that says it is done."""
        ends = f"{self.values[0]}..{self.values[-1]}" if self.values else "nothing"
        return f"{operation.operation_id}/{ends}"


def portions(counts: Mapping[Any, int], most: int) -> list[Portion]:
    """Partition values in order, put together up to about `most` rows; the same for the same counts."""
    found: list[Portion] = []
    if not counts:
        return [Portion((), 0)]
    for value in sorted(counts, key=lambda value: (value is not None, str(value))):
        if found and found[-1].rows + counts[value] <= most:
            found[-1] = Portion((*found[-1].values, value), found[-1].rows + counts[value])
        else:
            found.append(Portion((value,), counts[value]))
    return found


def shadow_tables(platform: Platform, operation: Operation) -> Sequence[str]:
    """The tables an operation builds; no other operation, of this topic or another, has the same."""
    return [platform.rules.databases.shadow_table(operation.operation_id, what) for what in _TABLES]


def drop_shadow(platform: Platform, operation: Operation) -> None:
    """Remove what an operation built, files and all: none of it is live."""
    for name in shadow_tables(platform, operation):
        platform.catalog.drop(name)


def forget_shadow(platform: Platform, operation: Operation) -> None:
    """Take the tables of an operation that is done out of the catalog; the live tables have their files now."""
    for name in shadow_tables(platform, operation):
        platform.catalog.forget(name)


class Shadow:
    """One operation at work: where it reads, where it builds, and under which lease."""

    def __init__(
        self,
        platform: Platform,
        lake: Lake,
        operation: Operation,
        schema: Schema,
        lease: Lease,
        progress: Progress = quiet,
    ) -> None:
        self.platform, self.lake, self.operation, self.schema = platform, lake, operation, schema
        self.lease, self.progress = lease, progress
        databases, topic = platform.rules.databases, operation.topic
        self.raw = databases.raw_table(topic)
        self.live_standardized = databases.standardized_table(topic)
        self.live_curated = databases.curated_table(schema.table_name)
        self.standardized, self.parse_errors, self.curated, self.errors = shadow_tables(platform, operation)

    def source(self) -> tuple[TableView, int]:
        """What Curated is made from, and at which snapshot."""
        if self.operation.scope == Scope.BOTH:
            view = self.view(self.standardized)
            assert view.head is not None
            return view, view.head
        assert self.operation.standardized is not None
        return self.view(self.live_standardized), self.operation.standardized.head

    def raw_rows(self) -> DataFrame:
        """RAW as far as the operation reads it."""
        assert self.operation.raw is not None
        return self.lake.at(self.raw, self.operation.raw.head)

    @property
    def keeps_keys(self) -> bool:
        """Whether keys are made as they were before."""
        if self.operation.previous is None:
            return False
        before = schema_of_version(self.platform, self.operation.topic, self.operation.previous)
        return before.keys == self.schema.keys

    def append_errors(self, rows: DataFrame, name: str) -> None:
        """Error rows into a shadow, each once."""
        check(self.platform, self.lease)
        self.platform.step("before shadow errors")
        self.lake.append_new(rows, name, "error_id", {"topic_name": [self.operation.topic]})
        self.platform.step("after shadow errors")

    def summed(self, name: str, counts: Sequence[str]) -> dict[str, int]:
        """Counts of all portions of a table, as its commits say them."""
        return {count: sum(self.each(name, count)) for count in counts}

    def each(self, name: str, count: str) -> list[int]:
        """A count of every portion of a table."""
        snapshots = self.view(name).ancestors()
        return [int(snapshot.summary.get(f"leanops.count.{count}", 0)) for snapshot in snapshots]

    def view(self, name: str) -> TableView:
        """A table that must be there."""
        view = self.platform.catalog.load(name)
        assert view is not None, name
        return view

    def built(self, name: str) -> DataFrame:
        """What was built of a table; nothing where it was not begun."""
        view = self.platform.catalog.load(name)
        return self.lake.at(name, view.head if view else None)
