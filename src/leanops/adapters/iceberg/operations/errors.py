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
from leanops.adapters.iceberg.tasks.rows import POSITION, ROWS_OF_PAYLOADS, DeadRows, live_pieces
from leanops.adapters.iceberg.tasks.stored import Layout, Positions, StoredFile
from leanops.adapters.iceberg.tasks.written import remove_files, write_both
from leanops.domain.errors import CommitRefusedError, CommitUnknownError
from leanops.domain.failures import ForgetKeys, Hide
from leanops.ports.engine import Written
from leanops.transforms.quarantine import changed, renewed

_TRIES = 5
_ID = "error_id"


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
    memory: int
    part: int = 0
    parts: int = 1
    """A task does the rows of its part."""


class _OvertakenError(Exception):
    """Somebody has changed the error rows of the topic since they were read."""


def change_errors(
    catalog: Catalog, runner: Runner, rules: TaskRules, name: str, topic: str, change: Hide | ForgetKeys
) -> None:
    """Change the error rows of a topic in one commit."""

    def units(place: Place) -> list[Any]:
        files = (part for part in groups(place.files, rules) if part)
        return [ChangeUnit(topic, Place(place.layout, part), change, rules.task_memory) for part in files]

    _commit(catalog, runner, name, topic, change_unit, units)


def put_errors(catalog: Catalog, runner: Runner, rules: TaskRules, source: Place, name: str, topic: str) -> None:
    """Bring error rows into a table in one commit, each once."""
    parts = max(1, -(-sum(file.rows for file in source.files) // rules.task_rows))

    def units(place: Place) -> list[Any]:
        return [PutUnit(topic, source, place, rules.task_memory, part, parts) for part in range(parts)]

    _commit(catalog, runner, name, topic, put_unit, units)


def _commit(
    catalog: Catalog,
    runner: Runner,
    name: str,
    topic: str,
    task: Callable[[Any], Written],
    units: Callable[[Place], list[Any]],
) -> None:
    """Run tasks on the error rows of a topic and commit what they wrote, again if somebody changed those rows."""
    for _ in range(_TRIES):
        table = catalog.load_table(name)
        files = error_files(table, table.metadata.current_snapshot_id)(topic)
        written = _written(table, runner.run(task, units(Place(Layout.of(table), files))))
        if not written.files:
            return

        def guard(now: Table, seen: Sequence[StoredFile] = files) -> None:
            found = error_files(now, now.metadata.current_snapshot_id)(topic)
            if {file.path: file.deletes for file in found} != {file.path: file.deletes for file in seen}:
                raise _OvertakenError

        try:
            commit_on_any_head(catalog, name, written.files, written.deletes, {}, guard)
        except CommitUnknownError:
            raise
        except Exception as failure:
            remove_files(table.io, (*written.files, *written.deletes))
            if not isinstance(failure, _OvertakenError):
                raise
        else:
            return
    raise CommitRefusedError(f"{name}: the error rows of {topic} were changed by other writers all the time; try again")


def _written(table: Table, parts: Sequence[Written | Exception]) -> Written:
    """What all tasks wrote; where one failed nothing is left."""
    done = [part for part in parts if isinstance(part, Written)]
    whole = reduce(Written.plus, done, Written())
    failed = next((part for part in parts if isinstance(part, Exception)), None)
    if failed:
        remove_files(table.io, (*whole.files, *whole.deletes))
        raise failed
    return whole


def change_unit(unit: ChangeUnit) -> Written:
    """Error rows of some files → those that change, written again."""
    layout, io = unit.target.layout, unit.target.layout.io()
    columns, dead = _columns(unit.target), DeadRows(io)
    gone = list[tuple[StoredFile, Positions]]()

    def rows() -> Iterator[pa.Table]:
        for file in unit.target.files:
            for piece in live_pieces(io, layout, file, columns, dead=dead, at_once=ROWS_OF_PAYLOADS):
                rows = changed(_of_topic(piece, unit.topic), unit.change)
                gone.append((file, rows.column(POSITION).to_numpy()))
                yield rows.drop_columns([POSITION])

    files, deletes = write_both(io, layout, together(rows(), unit.memory), (), lambda: gone)
    return Written(files=tuple(files), deletes=tuple(deletes))


def put_unit(unit: PutUnit) -> Written:
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
    return Written(files=tuple(files), deletes=tuple(deletes))


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
