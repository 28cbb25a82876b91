"""The shadow tables that an operation builds, and what they are built from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from leanops.domain.errors import LateErrorsError
from leanops.domain.table.definitions import TableDefinition
from leanops.domain.table.history import TableView
from leanops.domain.table.operation import Operation, Scope
from leanops.ports.engine import TableAt, Written
from leanops.usecases.journal import schema_of_version
from leanops.usecases.leases import HeldTopic
from leanops.usecases.platform import Platform

_TABLES = ("standardized", "parse_errors", "curated", "errors")
Progress = Callable[[str, int, int], None]
"""Called with what is being built, the rows done and the rows in all."""


def quiet(_what: str, _done: int, _rows: int) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class Portion:
    """Some partitions of the source, with about the number of rows that are worked on at a time."""

    values: tuple[Any, ...]
    rows: int

    def mark(self, operation: Operation) -> str:
        """The id in the commit that says it is done."""
        ends = f"{self.values[0]}..{self.values[-1]}" if self.values else "nothing"
        return f"{operation.operation_id}/{ends}"


def portions(counts: Mapping[Any, int], most: int) -> list[Portion]:
    """Partition values in order, put together up to about `most` rows; the same for the same counts."""
    grouped: list[Portion] = []
    if not counts:
        return [Portion((), 0)]
    for value in sorted(counts, key=lambda value: (value is not None, str(value))):
        if grouped and grouped[-1].rows + counts[value] <= most:
            grouped[-1] = Portion((*grouped[-1].values, value), grouped[-1].rows + counts[value])
        else:
            grouped.append(Portion((value,), counts[value]))
    return grouped


def shadow_tables(platform: Platform, operation: Operation, attempt: int | None) -> dict[str, str]:
    """The tables an attempt at an operation builds; no other attempt or operation has the same."""
    databases = platform.rules.databases
    return {what: databases.shadow_table(operation.operation_id, attempt, what) for what in _TABLES}


def continue_attempts(platform: Platform, operation: Operation) -> None:
    """Continue from what earlier attempts built, in forks of their tables: their workers may still be writing to them.

    Curated comes first, so that Standardized is at least what Curated was made from.
    """
    *earlier, ours = operation.attempts
    mine = shadow_tables(platform, operation, ours)
    for what in reversed(_TABLES):
        names = (shadow_tables(platform, operation, attempt)[what] for attempt in reversed(earlier))
        newest = next((name for name in names if platform.catalog.load(name)), None)
        if newest:
            with platform.durable("fork"):
                platform.catalog.fork(mine[what], newest)


def forget_shadows(platform: Platform, operation: Operation) -> None:
    """Take the tables of all attempts out of the catalog. Their files stay: live tables may have them by now."""
    for attempt in (None, *operation.attempts):
        forget_shadow(platform, operation, attempt)


def forget_shadow(platform: Platform, operation: Operation, attempt: int | None) -> None:
    """Take the tables of one attempt out of the catalog; whoever forked from them has tables of their own."""
    for name in shadow_tables(platform, operation, attempt).values():
        platform.catalog.forget(name)


class Shadow:
    """One operation at work: where it reads, where it builds, and under which lease."""

    def __init__(self, held: HeldTopic, operation: Operation, progress: Progress = quiet) -> None:
        self.held, self.operation, self.progress = held, operation, progress
        self.platform = platform = held.platform
        self.schema = schema = schema_of_version(platform, held.topic, operation.version)
        databases, topic = platform.rules.databases, operation.topic
        self.raw = databases.raw_table(topic)
        self.live_standardized = databases.standardized_table(topic)
        self.live_curated = databases.curated_table(schema.table_name)
        ours = shadow_tables(platform, operation, operation.attempts[-1] if operation.attempts else None)
        self.standardized, self.parse_errors, self.curated, self.errors = ours.values()
        self._compared = {ours[what]: snapshot for what, snapshot in operation.built.items()}

    def source(self) -> tuple[TableView, int]:
        """What Curated is made from, and at which snapshot."""
        if self.operation.scope == Scope.BOTH:
            view = self.view(self.standardized)
            assert view.head is not None
            return view, view.head
        assert self.operation.standardized is not None
        return self.view(self.live_standardized), self.operation.standardized.head

    def raw_rows(self) -> TableAt:
        """RAW as far as the operation reads it; nothing where there was none."""
        raw = self.operation.raw
        return TableAt(self.raw, raw.snapshot if raw else None)

    @property
    def keeps_keys(self) -> bool:
        """Whether keys are made as they were before."""
        if self.operation.previous is None:
            return False
        before = schema_of_version(self.platform, self.operation.topic, self.operation.previous)
        return before.keys == self.schema.keys and not self.is_resealed

    @property
    def is_resealed(self) -> bool:
        """Whether keys are HMACs of another key than before."""
        return self.operation.new_key and bool(self.schema.keys.pii)

    def create(self, name: str, definition: TableDefinition) -> None:
        """Create a table to build in, unless an earlier attempt left one."""
        self.platform.catalog.create(name, replace(definition, is_shadow=True))

    def append_errors(self, written: Written, name: str) -> None:
        """Error rows of a portion into a shadow, each once."""
        if written.errors:
            self.held.check()
            with self.platform.durable("shadow errors"):
                late = self.platform.engine().add_errors(name, {self.operation.topic: written})
            if late:
                raise LateErrorsError(self.operation.topic, name)

    def summed(self, name: str, counts: Sequence[str]) -> dict[str, int]:
        """Counts of all portions of a table, as its commits say them."""
        return {count: sum(self.each(name, count)) for count in counts}

    def each(self, name: str, count: str) -> list[int]:
        """A count of every portion of a table."""
        snapshots = self.view(name).ancestors()
        return [int(snapshot.summary.get(f"leanops.count.{count}", 0)) for snapshot in snapshots]

    def view(self, name: str) -> TableView:
        """A table that must be there."""
        view = self.find(name)
        assert view is not None, name
        return view

    def find(self, name: str) -> TableView | None:
        """A table if it is there; one that was compared is seen as it was then, whatever was written to it since."""
        view = self.platform.catalog.load(name)
        return replace(view, head=self._compared[name]) if view and name in self._compared else view

    def built(self, name: str) -> TableAt:
        """What was built of a table; nothing where it was not begun."""
        view = self.find(name)
        return TableAt(name, view.head if view else None)

    def as_built(self) -> Operation:
        """The operation with what it has built so far, which is what will be compared and go live."""
        ours = shadow_tables(self.platform, self.operation, self.operation.attempts[-1])
        views = {what: self.platform.catalog.load(name) for what, name in ours.items()}
        return msgspec.structs.replace(self.operation, built={what: view.head for what, view in views.items() if view})
