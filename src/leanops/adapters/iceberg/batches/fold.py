"""Folding: a compaction of our own, so that a batch has few files to look into, however many batches came before."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from leanops.adapters.iceberg.batches.stored import DeadRows, Layout, StoredFile, live_rows
from leanops.adapters.iceberg.batches.written import write_deletes, write_rows
from leanops.adapters.iceberg.options import TaskRules
from leanops.ports.engine import Written

_TASKS = 2
"""How much more a task can fold than it reads of a batch."""
Item = TypeVar("Item")


@dataclass(frozen=True)
class FoldUnit:
    """What one task folds: small files of a partition, and delete files that are many for one data file."""

    layout: Layout
    key: str
    """The column that rows are sorted by within a file."""
    files: tuple[StoredFile, ...]
    """Written anew, without their dead rows."""
    kept: tuple[StoredFile, ...]
    """Data files that stay, each with those of its delete files that are written anew."""

    @property
    def removed(self) -> frozenset[str]:
        """The files that no longer count when those that are written do."""
        deletes = {delete.path for file in (*self.files, *self.kept) for delete in file.deletes}
        return frozenset(deletes.union(file.path for file in self.files))


def fold_units(layout: Layout, key: str, files: Sequence[StoredFile], rules: TaskRules) -> list[FoldUnit]:
    """What is worth folding in a table with these files, partition by partition."""
    partitions: dict[tuple[Any, ...], list[StoredFile]] = defaultdict(list)
    for file in files:
        # Rows of an older partitioning would go to other partitions.
        if file.spec_id == layout.spec_id:
            partitions[file.partition].append(file)
    units = (_unit(layout, key, members, rules) for members in partitions.values())
    return [unit for unit in units if unit.removed]


def _unit(layout: Layout, key: str, files: Sequence[StoredFile], rules: TaskRules) -> FoldUnit:
    small = _in_one_task(_if_many(lightest(files, lambda file: file.rows), rules), rules)
    others = [file for file in files if file not in small]
    many = [_if_many(lightest(file.deletes, lambda delete: delete.rows), rules) for file in others]
    gone = {delete.path for deletes in (*many, *(file.deletes for file in small)) for delete in deletes}
    # A delete file that goes may name other files, too: what it says of them is written anew.
    kept = (replace(file, deletes=tuple(one for one in file.deletes if one.path in gone)) for file in others)
    return FoldUnit(layout, key, tuple(small), tuple(file for file in kept if file.deletes))


def lightest(items: Sequence[Item], weight: Callable[[Item], int]) -> list[Item]:
    """The lightest ones, up to one that outweighs all before it: so nothing is written anew too often."""
    chosen: list[Item] = []
    total = 0
    for item in sorted(items, key=weight):
        if len(chosen) > 1 and weight(item) > 2 * total:
            break
        chosen.append(item)
        total += weight(item)
    return chosen


def _if_many(items: list[Item], rules: TaskRules) -> list[Item]:
    return items if len(items) >= rules.fold_files else []


def _in_one_task(files: Sequence[StoredFile], rules: TaskRules) -> list[StoredFile]:
    """As many of the first ones as a task can hold; none where that is only one."""
    chosen: list[StoredFile] = []
    rows = size = 0
    for file in files:
        rows, size = rows + file.rows, size + file.size
        if rows > _TASKS * rules.task_rows or size > _TASKS * rules.task_bytes:
            break
        chosen.append(file)
    return chosen if len(chosen) > 1 else []


def fold_unit(unit: FoldUnit) -> Written:
    """The same rows in fewer files."""
    layout, io = unit.layout, unit.layout.io()
    dead, columns = DeadRows(io), [column.name for column in layout.schema.fields]
    parts = [live_rows(io, layout, file, columns, dead=dead) for file in unit.files]
    files = write_rows(io, layout, pa.concat_tables(parts), sort_by=(unit.key,)) if parts else []
    deletes = write_deletes(io, layout, [(file, dead.of(file)) for file in unit.kept])
    return Written(files=tuple(files), deletes=tuple(deletes))
