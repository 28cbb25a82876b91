"""Which batch read which row of RAW: the boundaries in the run history, applied to the files of the table."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leanops.domain.errors import EmulationError
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.history import TableView, watermark_from
from leanops.runtimes.embedded import Embedded

SCHEME = "^file:(//)?"
"""Spark and PyIceberg differ in the slashes in front of a path."""
COUNTS = {
    STANDARDIZED: (
        *("read", "inserted", "updated", "duplicates", "superseded"),
        *("parse_errors", "version_fallback", "missing_keys"),
    ),
    CURATED: (
        *("read", "inserted", "updated", "unchanged", "errors"),
        *("behind", "cross_period", "late_corrections", "cde_missing", "kept_older", "replaced_older"),
    ),
}
"""Layer → what each of its batches counts."""


@dataclass(frozen=True)
class Run:
    """A batch of a layer as in the run history; `number` counts the batches from 1, in their order."""

    number: int
    batch_id: str
    source_from: int | None
    source_to: int
    seconds: float | None
    counts: Mapping[str, int]
    """Without those that are NULL in the run history."""


@dataclass(frozen=True)
class Boundaries:
    """The batches of a topic, and the files of RAW that each of them read."""

    standardized: list[Run] = field(default_factory=list)
    curated: list[Run] = field(default_factory=list)
    files: dict[str, int | None] = field(default_factory=dict)
    """File → number of the Standardized batch that read it; None if none has yet."""
    apart: dict[str, str] = field(default_factory=dict)
    """Batch → where it began, if that is not where the one before it ended."""


def boundaries_of(runtime: Embedded, topic: str) -> Boundaries:
    """The batches of a topic in the order in which they read, even if they were recorded in another."""
    databases, catalog = runtime.platform.rules.databases, runtime.platform.catalog
    history = databases.ops_table("job_run_history")
    rows = catalog.select(history, list(_COLUMNS), {"topic_name": topic})
    raw = databases.raw_table(topic)
    table = runtime.catalog.load_table(raw) if catalog.load(raw) else None
    entries = _entries(table) if table else []
    # The files name the snapshots that have expired, the metadata those whose files were rewritten.
    places = {known.snapshot_id: known.sequence_number or 0 for known in (table.metadata.snapshots if table else ())}
    places |= {snapshot: sequence for snapshot, sequence, _ in entries}

    def place(row: Mapping[str, Any]) -> int:
        return _known(places, row["source_to"], f"batch {row['batch_id']} ended at a snapshot that {raw}")

    standardized = _runs(rows, STANDARDIZED, place)
    ends = [places[run.source_to] for run in standardized]
    files = {path: _reader(ends, sequence) for _, sequence, path in entries}
    curated = _runs(rows, CURATED, lambda row: row["source_to"])
    written = _sequence(catalog.load(databases.standardized_table(topic)), standardized) if curated else []
    apart = _apart(standardized) | _apart(curated)
    return Boundaries(standardized, _numbered(curated, written), files, apart)


def _known(places: Mapping[Any, int], name: object, what: str) -> int:
    """A place in the order of commits; raises EmulationError if the table no longer has it."""
    if name not in places:
        raise EmulationError(
            f"{what} does not know, so what it read is unknown; start over with: leanops emulate clean"
        )
    return places[name]


def _reader(ends: Sequence[int], sequence: int) -> int | None:
    """The number of the first batch that ended at this place of RAW or after it."""
    at = bisect_left(ends, sequence)
    return at + 1 if at < len(ends) else None


def _sequence(table: TableView | None, runs: Sequence[Run]) -> list[int]:
    """The batch-seq of every batch of Standardized; it rises with every commit, even if that is not a batch."""
    marks = [watermark_from(snapshot) for snapshot in table.snapshots.values()] if table else []
    known = {mark.batch_id: mark.batch_seq for mark in marks if mark}
    return [
        _known(known, run.batch_id, f"the run history has batch {run.batch_id}, which Standardized") for run in runs
    ]


def _apart(runs: Sequence[Run]) -> dict[str, str]:
    """Batches that did not begin where the one before them ended, or the first one not at the start."""
    return {
        run.batch_id: f"began at {run.source_from}, but the batch before it ended at {end}"
        for run, end in zip(runs, [None, *(run.source_to for run in runs)], strict=False)
        # The batches of Curated count from 0, those of Standardized from no snapshot.
        if (run.source_from or None) != end
    }


def _numbered(curated: Sequence[Run], written: Sequence[int]) -> list[Run]:
    """Batches of Curated with a range of batch numbers of Standardized instead of batch-seqs."""
    return [
        replace(
            run,
            source_from=bisect_right(written, run.source_from or 0),
            source_to=bisect_right(written, run.source_to),
        )
        for run in curated
    ]


_COLUMNS = (
    "layer",
    "batch_id",
    "source_from",
    "source_to",
    "seconds",
    *dict.fromkeys("rows_read" if name == "read" else name for names in COUNTS.values() for name in names),
)


def _runs(rows: list[dict[str, Any]], layer: str, order: Callable[[Mapping[str, Any]], int]) -> list[Run]:
    columns = {name: "rows_read" if name == "read" else name for name in COUNTS[layer]}
    ordered = sorted((row for row in rows if row["layer"] == layer), key=order)
    return [
        Run(
            number,
            row["batch_id"],
            row["source_from"],
            row["source_to"],
            row["seconds"],
            {name: row[column] for name, column in columns.items() if row[column] is not None},
        )
        for number, row in enumerate(ordered, start=1)
    ]


def _entries(table: Any) -> list[tuple[int, int, str]]:
    """Snapshot, its place in the order of commits, and path of every data file; expiry keeps all three."""
    head = table.current_snapshot()
    return [
        (entry.snapshot_id, entry.sequence_number, local(entry.data_file.file_path))
        for manifest in (head.manifests(table.io) if head else [])
        for entry in manifest.fetch_manifest_entry(table.io)
    ]


def local(uri: str) -> str:
    """The path of a local file."""
    return re.sub(SCHEME, "", uri)
