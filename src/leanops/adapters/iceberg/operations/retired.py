"""Rows of Standardized whose event has left RAW: found, and written again for a table that is rebuilt."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from leanops.adapters.iceberg.batches.plan import groups
from leanops.adapters.iceberg.batches.runner import Runner
from leanops.adapters.iceberg.operations.matching import Matched, Partners, Texts, matched
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.held import together
from leanops.adapters.iceberg.tasks.outputs import stamped
from leanops.adapters.iceberg.tasks.places import Place
from leanops.adapters.iceberg.tasks.rows import POSITION, chosen_pieces
from leanops.adapters.iceberg.tasks.stored import Layout, Positions
from leanops.adapters.iceberg.tasks.written import write_rows
from leanops.domain.table.batch import Batch
from leanops.ports.engine import Written
from leanops.transforms.curate import Flags

_MESSAGE, _RAW = "message_id", "raw"
_STAMPED = ("_batch_seq", "_batch_id")


@dataclass(frozen=True)
class KeepUnit:
    """Some rows of some files, to be written as those of a batch."""

    source: Place
    chosen: Mapping[str, Positions]
    target: Layout
    batch: Batch
    names: Mapping[str, str]
    """What some columns are called in the target."""
    memory: int


def retired(runner: Runner, rules: TaskRules, stored: Place, raw: Place) -> Matched:
    """The rows whose event RAW does not have."""
    return matched(runner, rules, Texts(stored, _MESSAGE), {_RAW: Texts(raw, _MESSAGE)}, _has_left)


def _has_left(partners: Partners) -> Flags:
    return ~partners[_RAW]


def keep_units(unit: KeepUnit, rules: TaskRules) -> list[KeepUnit]:
    """The same work for several tasks."""
    files = [file for file in unit.source.files if file.path in unit.chosen]
    parts = (part for part in groups(files, rules) if part)
    return [
        replace(
            unit,
            source=replace(unit.source, files=part),
            chosen={file.path: unit.chosen[file.path] for file in part},
        )
        for part in parts
    ]


def keep_unit(unit: KeepUnit) -> Written:
    """Stored rows → files of the table that is built."""
    files = write_rows(unit.target.io(), unit.target, together(_rows(unit), unit.memory), ("record_key",))
    return Written(added=sum(file.record_count for file in files), files=tuple(files))


def _rows(unit: KeepUnit) -> Iterator[pa.Table]:
    layout = unit.source.layout
    io, columns = layout.io(), [field.name for field in layout.schema.fields if field.name not in _STAMPED]
    for file in unit.source.files:
        for piece in chosen_pieces(io, layout, file, columns, unit.chosen[file.path]):
            rows = piece.drop_columns([POSITION])
            yield stamped(rows.rename_columns([unit.names.get(name, name) for name in columns]), unit.batch)
