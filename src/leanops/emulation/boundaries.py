"""Which batch read which row of RAW: the boundaries of the run history over the files of the table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leanops.domain.batches import CURATED, STANDARDIZED
from leanops.runtimes.embedded import Embedded

_COUNTS = {
    STANDARDIZED: (
        "read",
        "inserted",
        "updated",
        "duplicates",
        "superseded",
        "parse_errors",
        "version_fallback",
        "missing_keys",
    ),
    CURATED: (
        "read",
        "inserted",
        "updated",
        "unchanged",
        "errors",
        "behind",
        "cross_period",
        "late_corrections",
        "cde_missing",
    ),
}


@dataclass(frozen=True)
class Run:
    """One batch of a layer, as the run history has it; `number` counts from 1 in the order of the batches."""

    number: int
    batch_id: str
    source_from: int | None
    source_to: int
    seconds: float | None
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Boundaries:
    """The batches of a topic, and the files of RAW each of them read."""

    standardized: list[Run] = field(default_factory=list)
    curated: list[Run] = field(default_factory=list)
    files: dict[str, int | None] = field(default_factory=dict)
    """File → number of the Standardized batch that read it; None where none has yet."""


def boundaries_of(runtime: Embedded, topic: str) -> Boundaries:
    """How a topic was cut into batches."""
    databases, catalog = runtime.platform.rules.databases, runtime.catalog
    history = databases.ops_table("job_run_history")
    rows = (
        runtime.platform.catalog.select(history, list(_COLUMNS), f"topic_name = '{topic}'")
        if runtime.platform.catalog.load(history)
        else []
    )
    table = catalog.load_table(databases.raw_table(topic))
    entries = _entries(table)
    position = {snapshot: sequence for snapshot, sequence, _ in entries}
    standardized = _runs(rows, STANDARDIZED, lambda row: position.get(row["source_to"], 0))
    ends = [(position.get(run.source_to, 0), run.number) for run in standardized]
    files = {path: next((number for end, number in ends if sequence <= end), None) for _, sequence, path in entries}
    return Boundaries(standardized, _runs(rows, CURATED, lambda row: row["source_to"]), files)


_COLUMNS = (
    "layer",
    "batch_id",
    "source_from",
    "source_to",
    "seconds",
    *dict.fromkeys("rows_read" if name == "read" else name for names in _COUNTS.values() for name in names),
)


def _runs(rows: list[dict[str, Any]], layer: str, order: Any) -> list[Run]:
    found = sorted((row for row in rows if row["layer"] == layer), key=order)
    return [
        Run(
            number,
            row["batch_id"],
            row["source_from"],
            row["source_to"],
            row["seconds"],
            {name: row["rows_read" if name == "read" else name] or 0 for name in _COUNTS[layer]},
        )
        for number, row in enumerate(found, start=1)
    ]


def _entries(table: Any) -> list[tuple[int, int, str]]:
    """Snapshot, its place in the order of commits, and path of every data file; expiry does not change them."""
    head = table.current_snapshot()
    return [
        (entry.snapshot_id, entry.sequence_number, entry.data_file.file_path.removeprefix("file://"))
        for manifest in (head.manifests(table.io) if head else [])
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
