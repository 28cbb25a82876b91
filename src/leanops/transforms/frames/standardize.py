"""RAW cells become rows of Standardized, in the workers: what a first batch would write, and older versions of keys."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.table.definitions import STANDARDIZED
from leanops.domain.table.sql import quoted, spark_type
from leanops.transforms.curate import is_newer_than
from leanops.transforms.frames.curate import completed
from leanops.transforms.older import PLACE
from leanops.transforms.standardize import arrivals, judge, paths_without_column, rows_of, table_rows

_MADE = [name for name in STANDARDIZED.columns if name not in ("topic_name", "_batch_seq", "_batch_id")]
"""What the rows of an event decide: all but what is the same in the whole batch."""
_COMPARED = ("message_id", "_version", "last_updated_ts", "publish_time", "ingestion_ts", "first_seen_ts")


@dataclass(frozen=True)
class Cells:
    """How cells become rows: the columns of all paths, and which column of cells has the texts of which path."""

    columns: Mapping[str, str]
    positions: Mapping[str, str]
    refuses: bool
    """Whether the contract refuses events with paths that have no column."""

    @property
    def row_type(self) -> str:
        """The columns of rows, as Spark names them."""
        system = [f"{name} {spark_type(STANDARDIZED.columns[name])}" for name in _MADE]
        return ", ".join([*system, *(f"{quoted(name)} string" for name in self.columns.values())])

    def aligned(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows in the order of `row_type`, with NULL in the columns that none of them has."""
        names = [*_MADE, *self.columns.values()]
        nothing = pa.nulls(len(rows), pa.string())
        columns = [rows.column(name) if name in rows.column_names else nothing for name in names]
        yield from pa.table(columns, names).combine_chunks().to_batches()


def first_rows(events: DataFrame, cells: Cells, topic: str) -> DataFrame:
    """The newest version of each key among valid events, as a first batch would write it."""
    # All events of a key must be in one partition, and nothing but this line brings them together.
    rows = events.repartition("record_key").mapInArrow(_FirstBatch(cells), cells.row_type)
    return rows.withColumn("topic_name", F.lit(topic))


def refused(events: DataFrame, cells: Cells) -> int:
    """How many valid events the contract refuses."""
    if not cells.refuses:
        return 0
    counts = events.mapInArrow(_Refused(cells), "refused bigint")
    return int(counts.agg(F.coalesce(F.sum("refused"), F.lit(0))).collect()[0][0])


def older_rows(events: DataFrame, newest: DataFrame, cells: Cells) -> DataFrame:
    """The versions that are older than the newest one of their key, which `newest` has."""
    known = completed(newest).select("record_key", *(F.col(name).alias(f"newest_{name}") for name in _COMPARED))
    rows = events.join(known, "record_key").mapInArrow(_Older(cells), cells.row_type)
    return rows.withColumn("topic_name", F.lit(None).cast("string"))


@dataclass(frozen=True)
class _FirstBatch:
    """The function that runs in the workers: a partition has all events of its keys."""

    cells: Cells

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if not found:
            return
        cells, columns, positions = _placed(found), self.cells.columns, self.cells.positions
        events, _ = arrivals(cells, columns, positions, 0, refuses=self.cells.refuses)
        winners = judge(events, None).winners
        yield from self.cells.aligned(rows_of(cells, winners, columns, positions, 0))


@dataclass(frozen=True)
class _Refused:
    """Counts the events that the contract refuses."""

    cells: Cells

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = paths_without_column(_table([batch]), self.cells.columns, self.cells.positions)
            yield pa.RecordBatch.from_pydict({"refused": pa.array([len(found) - found.null_count], pa.int64())})


@dataclass(frozen=True)
class _Older:
    """Leaves out what is not older than the newest version of its key, or what the contract refuses."""

    cells: Cells

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns, positions = self.cells.columns, self.cells.positions
        for batch in batches:
            rows = _table([batch])
            rows = rows.filter(pa.array(is_newer_than(_newest(rows), rows)))
            if self.cells.refuses:
                rows = rows.filter(paths_without_column(rows, columns, positions).is_null())
            yield from self.cells.aligned(table_rows(rows, rows.column("newest_first_seen_ts"), columns, positions))


def _newest(rows: pa.Table) -> pa.Table:
    """The newest version of the key of each row."""
    return pa.table([rows.column(f"newest_{name}") for name in _COMPARED], list(_COMPARED))


def _placed(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Cells with no place in RAW: nobody looks for what they came from."""
    cells = _table(batches)
    for name in PLACE:
        cells = cells.append_column(name, pa.nulls(len(cells)))
    return cells


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches))
