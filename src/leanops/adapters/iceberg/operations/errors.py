"""Error rows of a topic that change: rows of a rebuild come in, values are hidden, keys forgotten."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from leanops.adapters.iceberg.batches.plan import error_files, groups
from leanops.adapters.iceberg.batches.row_delta import commit_on_any_head
from leanops.adapters.iceberg.batches.runner import Runner
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.held import joined, part_numbers, together
from leanops.adapters.iceberg.tasks.places import FILE, Place, stored_rows
from leanops.adapters.iceberg.tasks.rows import POSITION, ROWS_OF_PAYLOADS, DeadRows, chosen_pieces, live_pieces
from leanops.adapters.iceberg.tasks.stored import Layout, Positions, StoredFile
from leanops.adapters.iceberg.tasks.written import remove_files, write_both, write_rows
from leanops.domain.errors import CommitRefusedError, CommitUnknownError
from leanops.domain.failures import ForgetKeys, Hide
from leanops.ports.engine import Written
from leanops.transforms.quarantine import changed, renewed

_TRIES = 5
_ID = "error_id"
_DECISIVE = ("topic_name", "record_key", "failures", "schema_version")
"""What decides whether a row changes, and all that changes in it."""


@dataclass(frozen=True)
class ChangeUnit:
    """Files with error rows of a topic, and what is to change in them."""

    topic: str
    target: Place
    change: Hide | ForgetKeys
    memory: int


@dataclass(frozen=True)
class PutUnit:
    """Error rows that come into a table, and the files that may have them already."""

    topic: str
    source: Place
    target: Place
    part: int = 0
    parts: int = 1
    """A task does the rows of its part."""


@dataclass(frozen=True)
class Rewritten:
    """What a task wrote, and the data files whose live rows it has written again."""

    written: Written
    removed: frozenset[str] = frozenset()

    def plus(self, other: "Rewritten") -> "Rewritten":
        return Rewritten(self.written.plus(other.written), self.removed | other.removed)

    @property
    def files(self) -> tuple[Any, ...]:
        """All that was written."""
        return (*self.written.files, *self.written.deletes)

    def gone(self, files: Sequence[StoredFile]) -> frozenset[str]:
        """What no longer counts of these files of a table: data files, and delete files that name no others."""
        kept = {delete.path for file in files if file.path not in self.removed for delete in file.deletes}
        gone = {delete.path for file in files if file.path in self.removed for delete in file.deletes}
        return self.removed | (gone - kept)


class _OvertakenError(Exception):
    """Somebody has changed the error rows of the topic since they were read."""


def change_errors(
    catalog: Catalog, runner: Runner, rules: TaskRules, name: str, topic: str, change: Hide | ForgetKeys
) -> None:
    """Change the error rows of a topic in one commit, after which no file of the table has what they held."""

    def units(place: Place) -> list[Any]:
        files = (part for part in groups(place.files, rules) if part)
        return [ChangeUnit(topic, Place(place.layout, part), change, rules.task_memory) for part in files]

    _commit(catalog, runner, name, topic, change_unit, units)


def put_errors(catalog: Catalog, runner: Runner, rules: TaskRules, source: Place, name: str, topic: str) -> None:
    """Bring error rows into a table in one commit, each once."""
    parts = -(-sum(file.rows for file in source.files) // rules.task_rows)

    def units(place: Place) -> list[Any]:
        return [PutUnit(topic, source, place, part, parts) for part in range(parts)]

    _commit(catalog, runner, name, topic, put_unit, units)


def _commit(
    catalog: Catalog,
    runner: Runner,
    name: str,
    topic: str,
    task: Callable[[Any], Rewritten],
    units: Callable[[Place], list[Any]],
) -> None:
    """Run tasks on the error rows of a topic and commit what they wrote, again if somebody changed those rows."""
    for _ in range(_TRIES):
        table = catalog.load_table(name)
        files = error_files(table, table.metadata.current_snapshot_id)(topic)
        work = units(Place(Layout.of(table), files))
        done = _whole(table, runner.run(task, work) if work else ())
        if not done.files and not done.removed:
            return

        def guard(now: Table, seen: Sequence[StoredFile] = files) -> None:
            found = error_files(now, now.metadata.current_snapshot_id)(topic)
            if {file.path: file.deletes for file in found} != {file.path: file.deletes for file in seen}:
                raise _OvertakenError

        try:
            written, gone = done.written, done.gone(files)
            commit_on_any_head(catalog, name, written.files, written.deletes, {}, guard, gone)
        except CommitUnknownError:
            raise
        except Exception as failure:
            remove_files(table.io, done.files)
            if not isinstance(failure, _OvertakenError):
                raise
        else:
            return
    raise CommitRefusedError(f"{name}: the error rows of {topic} were changed by other writers all the time; try again")


def _whole(table: Table, parts: Sequence[Rewritten | Exception]) -> Rewritten:
    """What all tasks wrote; where one failed nothing is left."""
    done = [part for part in parts if isinstance(part, Rewritten)]
    whole = reduce(Rewritten.plus, done, Rewritten(Written()))
    failed = next((part for part in parts if isinstance(part, Exception)), None)
    if failed:
        remove_files(table.io, whole.files)
        raise failed
    return whole


def change_unit(unit: ChangeUnit) -> Rewritten:
    """The live rows of those files in which any row changes, dead ones too, for what is dead can still be read."""
    layout, io = unit.target.layout, unit.target.layout.io()
    columns, dead = _columns(unit.target), DeadRows(io)
    concerned = [file for file in unit.target.files if _is_concerned(unit, file)]

    def rows() -> Iterator[pa.Table]:
        for file in concerned:
            for piece in live_pieces(io, layout, file, columns, dead=dead, at_once=ROWS_OF_PAYLOADS):
                found = piece.drop_columns([POSITION])
                is_ours = pc.equal(found.column("topic_name"), unit.topic).fill_null(False)
                yield changed(found.filter(is_ours), unit.change)
                yield found.filter(pc.invert(is_ours))

    files = write_rows(io, layout, together(rows(), unit.memory))
    return Rewritten(Written(files=tuple(files)), frozenset(file.path for file in concerned))


def _is_concerned(unit: ChangeUnit, file: StoredFile) -> bool:
    """Whether any row of a file, dead or alive, changes."""
    layout = unit.target.layout
    for piece in chosen_pieces(layout.io(), layout, file, _DECISIVE, np.arange(file.rows)):
        rows = _of_topic(piece, unit.topic)
        if not changed(rows, unit.change).equals(rows):
            return True
    return False


def put_unit(unit: PutUnit) -> Rewritten:
    """Error rows of a part → those that are new, and those that failed again."""
    layout, io = unit.target.layout, unit.target.layout.io()
    new = _first_of_each(_rows_of_part(unit))
    stored = stored_rows(unit.target, _ID, new.column(_ID), _columns(unit.target))
    if stored is None or not len(stored):
        written, gone = new, list[tuple[StoredFile, Positions]]()
    else:
        again = renewed(stored, new)
        numbers, positions = again.column(FILE).to_numpy(), again.column(POSITION).to_numpy()
        gone = [(unit.target.files[at], positions[numbers == at]) for at in np.unique(numbers).tolist()]
        is_known = pc.is_in(new.column(_ID), value_set=stored.column(_ID).combine_chunks())
        written = joined([new.filter(pc.invert(is_known)), again.drop_columns([FILE, POSITION])])
    files, deletes = write_both(io, layout, [written], (), lambda: gone)
    return Rewritten(Written(files=tuple(files), deletes=tuple(deletes)))


def _rows_of_part(unit: PutUnit) -> pa.Table:
    layout, io = unit.source.layout, unit.source.layout.io()
    columns, dead, selected = _columns(unit.source), DeadRows(io), list[pa.Table]()
    for file in unit.source.files:
        for piece in live_pieces(io, layout, file, columns, dead=dead, at_once=ROWS_OF_PAYLOADS):
            rows = _of_topic(piece, unit.topic).drop_columns([POSITION])
            if unit.parts > 1:
                rows = rows.filter(pa.array(part_numbers(rows.column(_ID), unit.parts) == unit.part))
            selected.append(rows)
    return joined(selected)


def _first_of_each(rows: pa.Table) -> pa.Table:
    """Two workers may have built at once: each row once."""
    codes = rows.column(_ID).combine_chunks().dictionary_encode().indices.to_numpy()
    return rows.take(pa.array(np.sort(np.unique(codes, return_index=True)[1])))


def _of_topic(rows: pa.Table, topic: str) -> pa.Table:
    return rows.filter(pc.equal(rows.column("topic_name"), topic))


def _columns(place: Place) -> list[str]:
    return [field.name for field in place.layout.schema.fields]
