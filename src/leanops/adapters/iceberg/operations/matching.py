"""Which rows of a table have a partner in other tables: texts are shuffled, so that equal ones meet in one task."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.adapters.iceberg.batches.plan import groups
from leanops.adapters.iceberg.batches.runner import Runner, portable
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.held import packed, split, unpacked
from leanops.adapters.iceberg.tasks.places import Place
from leanops.adapters.iceberg.tasks.rows import POSITION, DeadRows, chosen_pieces, live_pieces
from leanops.adapters.iceberg.tasks.stored import Positions, StoredFile
from leanops.transforms.curate import Flags

FILE = "file"
"""The number of the file that a row is in."""
_ASKED = ""
"""In place of a name: the rows that are asked about."""
_TEXTS_PER_ROW = 16
"""How many texts a task can hold in place of each row it may read."""
Partners = Mapping[str, Flags]
"""By the name of each other table, whether rows have a partner there."""
Wanted = Callable[[Partners], Flags | None]
"""Which rows to report; None is all of them."""


@dataclass(frozen=True)
class Texts:
    """A column of the live rows of a table, or of some of them; a row without a text has no partner."""

    place: Place
    column: str
    chosen: Mapping[str, Positions] | None = None
    """Where only some rows are meant: their positions by file."""
    prefix: str = ""
    """Only texts that begin with it count, and what comes after it."""


@dataclass(frozen=True)
class Matched:
    """Rows with a flag for each other table: whether it has their text."""

    rows: pa.Table
    """Where they are, and the flags by name; sorted by file and position."""
    totals: Mapping[str, tuple[int, int]]
    """Of each other table how many texts it has, and how many different ones."""

    def chosen(self, files: Sequence[StoredFile], which: Flags | None = None) -> dict[str, Positions]:
        """The positions of the rows that `which` selects, by file; None selects all."""
        rows = self.rows if which is None else self.rows.filter(pa.array(which))
        numbers, positions = rows.column(FILE).to_numpy(), rows.column(POSITION).to_numpy()
        return {files[number].path: positions[numbers == number] for number in np.unique(numbers).tolist()}

    def has(self, name: str) -> Flags:
        """Whether each row has a partner there."""
        return np.array(self.rows.column(name).to_numpy(), bool)


def everyone(_: Partners) -> None:
    """Every row, whatever partners it has."""


def matched(
    runner: Runner,
    rules: TaskRules,
    asked: Texts,
    others: Mapping[str, Texts],
    wanted: Wanted = everyone,
) -> Matched:
    """The rows that are wanted for the partners they have; of the other tables nothing comes to the driver.

    Where nobody is asked about, nothing is counted either.
    """
    if asked.chosen is not None and not asked.chosen:
        return Matched(_nothing(others), {})
    sides = {_ASKED: asked, **others}
    units = [_Unit(name, part, numbers) for name, texts in sides.items() for part, numbers in _cut(texts, rules)]
    rows = sum(file.rows for unit in units for file in unit.texts.place.files)
    parts = max(runner.cores, -(-rows // (_TEXTS_PER_ROW * rules.task_rows)))
    shuffled = runner.shuffle(_Spread(parts), units, parts) if units else None
    answers = shuffled.gather(_Gather(tuple(others), wanted), range(parts)) if shuffled else []
    pieces, totals = [_nothing(others)], dict.fromkeys(others, (0, 0))
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        rows_of_part, counts = answer
        pieces.append(unpacked(rows_of_part))
        totals = {name: (texts + counts[name][0], kinds + counts[name][1]) for name, (texts, kinds) in totals.items()}
    return Matched(pa.concat_tables(pieces).sort_by([(FILE, "ascending"), (POSITION, "ascending")]), totals)


@dataclass(frozen=True)
class _Unit:
    """Some files of a table; their numbers are those among all of its files."""

    name: str
    texts: Texts
    numbers: tuple[int, ...]


def _cut(texts: Texts, rules: TaskRules) -> Iterator[tuple[Texts, tuple[int, ...]]]:
    """What one task reads each, with the numbers of the files."""
    place, chosen = texts.place, texts.chosen
    numbers = {file.path: number for number, file in enumerate(place.files)}
    files = place.files if chosen is None else [file for file in place.files if file.path in chosen]
    for part in groups(files, rules):
        if part:
            mine = None if chosen is None else {file.path: chosen[file.path] for file in part}
            some = replace(texts, place=replace(place, files=part), chosen=mine)
            yield some, tuple(numbers[file.path] for file in part)


@dataclass(frozen=True)
class _Spread:
    """Reads texts and gives each to the part that all equal ones go to."""

    parts: int

    def __call__(self, unit: _Unit) -> Iterator[tuple[int, bytes]]:
        try:
            for rows in _texts(unit):
                for part, given in split(rows, rows.column("text"), self.parts):
                    yield part, pickle.dumps((unit.name, packed(given)))
        except Exception as failure:  # noqa: BLE001 - raised again on the driver
            yield 0, pickle.dumps(("", portable(failure)))


def _texts(unit: _Unit) -> Iterator[pa.Table]:
    """The texts of the rows of a unit; those that are asked about with their places."""
    texts = unit.texts
    layout = texts.place.layout
    io = layout.io()
    dead = DeadRows(io)
    for number, file in zip(unit.numbers, texts.place.files, strict=True):
        if texts.chosen is None:
            pieces = live_pieces(io, layout, file, [texts.column], dead=dead)
        else:
            pieces = chosen_pieces(io, layout, file, [texts.column], texts.chosen[file.path])
        for piece in pieces:
            if unit.name == _ASKED:
                rows = piece.rename_columns(["text", POSITION])
                yield rows.append_column(FILE, pa.array(np.full(len(rows), number)))
            else:
                yield pa.table({"text": _without(texts.prefix, piece.column(texts.column).drop_null())})


def _without(prefix: str, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """What comes after the prefix, of the texts that begin with it."""
    return pc.utf8_slice_codeunits(texts.filter(pc.starts_with(texts, prefix)), len(prefix)) if prefix else texts


@dataclass(frozen=True)
class _Gather:
    """Of the rows that are asked about those that are wanted, and how many texts others have."""

    others: tuple[str, ...]
    wanted: Wanted

    def __call__(self, _part: int, given: Iterable[bytes]) -> tuple[bytes, dict[str, tuple[int, int]]]:
        sides: dict[str, list[pa.Table]] = {name: [] for name in (_ASKED, *self.others)}
        for name, rows in map(pickle.loads, given):
            if isinstance(rows, Exception):
                raise rows
            sides[name].append(unpacked(rows))
        asked = pa.concat_tables(sides[_ASKED]) if sides[_ASKED] else None
        partners, totals = dict[str, Flags](), dict[str, tuple[int, int]]()
        for name in self.others:
            texts = pa.chunked_array([rows.column("text").combine_chunks() for rows in sides[name]], pa.string())
            distinct = pc.unique(texts)
            totals[name] = len(texts), len(distinct)
            if asked is not None:
                partners[name] = np.array(pc.is_in(asked.column("text"), value_set=distinct).to_numpy(), bool)
        if asked is None:
            return packed(_nothing(self.others)), totals
        rows = asked.select([FILE, POSITION])
        for name, has in partners.items():
            rows = rows.append_column(name, pa.array(has))
        wanted = self.wanted(partners)
        return packed(rows if wanted is None else rows.filter(pa.array(wanted))), totals


def _nothing(others: Iterable[str]) -> pa.Table:
    kinds = {FILE: pa.int64(), POSITION: pa.int64(), **dict.fromkeys(others, pa.bool_())}
    return pa.schema(list(kinds.items())).empty_table()
