"""Folding: a compaction of our own, so that a batch has few files to look into, however many batches came before."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.held import together
from leanops.adapters.iceberg.tasks.rows import POSITION, ROWS_OF_PAYLOADS, DeadRows, live_pieces
from leanops.adapters.iceberg.tasks.stored import Layout, Positions, StoredFile
from leanops.adapters.iceberg.tasks.written import write_both
from leanops.domain.errors import UnbalancedBatchError
from leanops.ports.engine import Written

Item = TypeVar("Item")


@dataclass(frozen=True)
class FoldUnit:
    """What one task folds: small files of a partition, and delete files that are many for one data file."""

    layout: Layout
    key: str
    """The column that rows are sorted by within a file."""
    files: tuple[StoredFile, ...]
    """Rewritten without their dead rows."""
    kept: tuple[StoredFile, ...]
    """Data files that stay, each with those of its delete files that are rewritten."""
    memory: int
    """About how many bytes of rows the task may hold."""

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
    small = _small(layout, files, rules)
    folded = {file.path for file in small}
    others = [file for file in files if file.path not in folded]
    many = [lightest(file.deletes, lambda delete: delete.rows, rules.fold_files) for file in others]
    gone = {delete.path for deletes in (*many, *(file.deletes for file in small)) for delete in deletes}
    # A delete file that goes may name other files, too: what it says of them is rewritten.
    kept = (replace(file, deletes=tuple(delete for delete in file.deletes if delete.path in gone)) for file in others)
    return FoldUnit(layout, key, tuple(small), tuple(file for file in kept if file.deletes), rules.task_memory)


def _small(layout: Layout, files: Sequence[StoredFile], rules: TaskRules) -> list[StoredFile]:
    """The files to rewrite: the lightest ones, up to what a task can hold.

    Neither limit lets the same rows be written again and again: a file above one is never folded, and files of which
    not all fit into a task become one above it.
    """
    limit = min(rules.task_bytes, layout.file_bytes // 2)
    candidates = [file for file in files if file.rows <= rules.task_rows and file.size <= limit]
    chosen: list[StoredFile] = []
    rows = size = 0
    for file in lightest(candidates, lambda file: file.rows, rules.fold_files):
        rows, size = rows + file.rows, size + file.size
        if rows > 2 * rules.task_rows or size > 2 * limit:
            break
        chosen.append(file)
    return chosen


def lightest(items: Sequence[Item], weight: Callable[[Item], int], least: int) -> list[Item]:
    """The lightest ones, if at least N of them are of similar weight.

    One that weighs more than twice all similar ones before it is not similar to them: it is only taken with others of
    its own kind. So an item is rewritten a few times until it is heavy, not with each light one that comes.
    """
    similar: list[Item] = []
    before: list[Item] = []
    total = 0
    for item in sorted(items, key=weight):
        if similar and weight(item) > 2 * total:
            if len(similar) >= least:
                break
            before, similar, total = before + similar, [], 0
        similar.append(item)
        total += weight(item)
    return before + similar if len(similar) >= least else []


def fold_unit(unit: FoldUnit) -> Written:
    """The same rows in fewer files."""
    layout, io = unit.layout, unit.layout.io()
    dead, columns = DeadRows(io), [column.name for column in layout.schema.fields]
    rows_read = 0

    def rows() -> Iterator[pa.Table]:
        nonlocal rows_read
        for file in unit.files:
            for piece in live_pieces(io, layout, file, columns, dead=dead, at_once=ROWS_OF_PAYLOADS):
                rows_read += len(piece)
                yield piece.drop_columns([POSITION])

    def named() -> list[tuple[StoredFile, Positions]]:
        """What is still dead, if all that is alive was written."""
        alive = sum(file.rows - len(np.unique(dead.of(file))) for file in unit.files)
        if rows_read != alive:
            raise UnbalancedBatchError(f"the files to fold hold {rows_read} rows, not {alive}; nothing was folded")
        return [(file, dead.of(file)) for file in unit.kept]

    files, deletes = write_both(io, layout, together(rows(), unit.memory), (unit.key,), named)
    return Written(files=tuple(files), deletes=tuple(deletes))
