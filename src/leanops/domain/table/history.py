"""What can be read from a table's history: snapshots, the watermark they carry, and the range a batch may read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from leanops.domain.errors import SourceRewrittenError
from leanops.domain.table.balance import Counts, Totals
from leanops.domain.table.batch import Batch

_COUNT, _TOTAL = "leanops.count.", "leanops.total."
_KEPT_FORKS = 20
KEPT_SNAPSHOTS = 20
"""How many snapshots of an append-only table are kept at least."""
KIND = "leanops.kind"
"""What a commit of ours is, unless it is a batch."""
FOLD = "fold"
"""A compaction right after a batch. It carries on the batch's watermark, which so outlives the batch's snapshot."""
_BATCH_ID = "leanops.batch-id"
_BATCH_SEQ = "leanops.batch-seq"


@dataclass(frozen=True)
class Snapshot:
    """One commit of a table."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    operation: str
    summary: Mapping[str, str]

    @property
    def added_records(self) -> int:
        return int(self.summary.get("added-records", 0))

    @property
    def batch_id(self) -> str | None:
        """The batch that made it, if one did."""
        return None if self.summary.get(KIND) == FOLD else self.summary.get(_BATCH_ID)


@dataclass(frozen=True)
class TableView:
    """A table as its metadata shows it at one moment."""

    name: str
    uuid: str
    head: int | None
    last_sequence_number: int
    snapshots: Mapping[int, Snapshot]
    columns: Mapping[str, str]
    paths: Mapping[str, str]
    """Payload columns: JSON path → column name, from the columns' comments."""
    history: Sequence[tuple[int, int]] = ()
    """When (epoch milliseconds) which snapshot became the head, oldest first."""

    def ancestors(self, of: int | None = None) -> list[Snapshot]:
        """The head (or another snapshot) and its ancestors, newest first, as far as they are kept."""
        ancestors: list[Snapshot] = []
        at = self.head if of is None else of
        while at is not None and at in self.snapshots:
            ancestors.append(self.snapshots[at])
            at = self.snapshots[at].parent_id
        return ancestors


def rows_in(table: TableView | None) -> int:
    """The rows of an append-only table, as its newest snapshot counts them."""
    head = table.snapshots.get(table.head) if table and table.head else None
    return int(head.summary.get("total-records", 0)) if head else 0


@dataclass(frozen=True)
class Timeline:
    """One history of a table. A rollback ends it: the batch after it begins another, which knows where it forked.

    So whoever read the table up to some batch can tell whether that batch is still part of it, even after all its
    snapshots have expired.
    """

    name: str = ""
    forks: tuple[tuple[str, int], ...] = ()
    """Timelines before this one, newest first, and the last batch number of each that is still part of the table."""

    def fork(self, name: str, batch_seq: int) -> "Timeline":
        """The timeline that continues from a batch of this one."""
        return Timeline(name, ((self.name, batch_seq), *self.forks)[:_KEPT_FORKS])

    def holds(self, name: str, batch_seq: int) -> bool:
        """Whether a batch of a timeline is part of this history."""
        return name == self.name or any(name == fork and batch_seq <= last for fork, last in self.forks)

    def text(self) -> str:
        return ",".join([self.name, *(f"{name}@{last}" for name, last in self.forks)])

    @classmethod
    def parse(cls, text: str) -> "Timeline":
        name, *forks = text.split(",")
        pairs = (fork.rsplit("@", 1) for fork in forks)
        return cls(name, tuple((fork, int(last)) for fork, last in pairs))


@dataclass(frozen=True)
class Watermark:
    """How far a table has come, written in the same commit as its data."""

    batch_id: str
    batch_seq: int
    source_uuid: str
    source_from: int | None
    source_to: int
    source_snapshot: int
    counts: Mapping[str, int]
    totals: Totals = field(default_factory=Totals)
    snapshot_id: int | None = None
    schema_version: int = 0
    timeline: Timeline = field(default_factory=Timeline)
    """Which history of its own table the batch belongs to."""
    source_timeline: str = ""
    """Curated: the timeline of the Standardized it read."""
    key_check: str = ""
    """The check value of the key that sealed something in this table; nothing where none did."""
    raw_to: int | None = None
    """Curated: how far of RAW the Standardized had come that it read."""

    def summary(self) -> dict[str, str]:
        """The keys of the snapshot summary."""
        return {
            _BATCH_ID: self.batch_id,
            _BATCH_SEQ: str(self.batch_seq),
            "leanops.source-uuid": self.source_uuid,
            "leanops.source-from": "" if self.source_from is None else str(self.source_from),
            "leanops.source-to": str(self.source_to),
            "leanops.source-snapshot": str(self.source_snapshot),
            "leanops.schema-version": str(self.schema_version),
            "leanops.timeline": self.timeline.text(),
            "leanops.source-timeline": self.source_timeline,
            "leanops.key-check": self.key_check,
            "leanops.raw-to": "" if self.raw_to is None else str(self.raw_to),
            **{f"{_COUNT}{name}": str(value) for name, value in self.counts.items()},
            **{f"{_TOTAL}{name}": str(value) for name, value in asdict(self.totals).items()},
        }


def watermark_of(batch: Batch, counts: Counts, totals: Totals | None = None) -> Watermark:
    """What a batch writes down with its data."""
    return Watermark(
        batch_id=batch.batch_id,
        batch_seq=batch.batch_seq,
        source_uuid=batch.source_uuid,
        source_from=batch.source_from,
        source_to=batch.source_to,
        source_snapshot=batch.source_snapshot,
        counts=asdict(counts),
        totals=totals or Totals(),
        schema_version=batch.schema_version,
        timeline=Timeline.parse(batch.timeline),
        source_timeline=batch.source_timeline,
        key_check=batch.key_check,
        raw_to=batch.raw_to,
    )


def watermark_from(snapshot: Snapshot) -> Watermark | None:
    """The watermark of the batch that made a snapshot, if one did."""
    return None if snapshot.batch_id is None else _carried(snapshot)


def _carried(snapshot: Snapshot) -> Watermark | None:
    """The watermark a snapshot carries, whether a batch wrote it or a fold carried it on."""
    summary = snapshot.summary
    if _BATCH_ID not in summary:
        return None
    source_from, raw_to = summary["leanops.source-from"], summary.get("leanops.raw-to")
    return Watermark(
        batch_id=summary[_BATCH_ID],
        batch_seq=int(summary[_BATCH_SEQ]),
        source_uuid=summary["leanops.source-uuid"],
        source_from=int(source_from) if source_from else None,
        source_to=int(summary["leanops.source-to"]),
        source_snapshot=int(summary["leanops.source-snapshot"]),
        counts=_numbers(summary, _COUNT),
        totals=Totals(**_numbers(summary, _TOTAL)),
        snapshot_id=snapshot.snapshot_id,
        schema_version=int(summary.get("leanops.schema-version", 0)),
        timeline=Timeline.parse(summary.get("leanops.timeline", "")),
        source_timeline=summary.get("leanops.source-timeline", ""),
        key_check=summary.get("leanops.key-check", ""),
        raw_to=int(raw_to) if raw_to else None,
    )


def _numbers(summary: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): int(value) for key, value in summary.items() if key.startswith(prefix)}


def valid_watermark(table: TableView) -> Watermark | None:
    """The one with the greatest batch-seq among the ancestors: a stalled writer may commit an older one late."""
    marked = [snapshot for snapshot in table.ancestors() if _BATCH_ID in snapshot.summary]
    # Of two batches that began at the same place the first one counts: the other one was abandoned, and came late.
    newest = max(reversed(marked), key=lambda snapshot: int(snapshot.summary[_BATCH_SEQ]), default=None)
    return _carried(newest) if newest else None


def has_batch(table: TableView, batch_id: str) -> Snapshot | None:
    """The snapshot that holds a batch, if it was committed: the first of that name, for a late twin adds nothing."""
    return next((snapshot for snapshot in reversed(table.ancestors()) if snapshot.batch_id == batch_id), None)


@dataclass(frozen=True)
class SourceRange:
    """What a batch reads of an append-only table: after `start` (None = all there is) up to `end`."""

    start: int | None
    end: int
    rows: int
    is_gap: bool = False


def new_range(table: TableView, mark: Watermark | None) -> SourceRange | None:
    """What was appended since the watermark, or None when nothing was; a lost ancestor is a gap: read everything."""
    if table.head is None:
        return None
    if mark is None:
        return _whole(table, is_gap=False)
    if mark.source_uuid != table.uuid:
        return _whole(table, is_gap=True)
    return _since(table, mark.source_to)


def _since(table: TableView, start: int) -> SourceRange | None:
    assert table.head is not None
    if table.head == start:
        return None
    newer: list[Snapshot] = []
    for snapshot in table.ancestors():
        newer.append(snapshot)
        # The start itself may be expired: it is enough that a kept snapshot names it as its parent.
        if snapshot.parent_id == start:
            rows = sum(appended.added_records for appended in _appends(table, newer))
            return SourceRange(start, table.head, rows) if rows else None
    return _whole(table, is_gap=True)


def _whole(table: TableView, *, is_gap: bool) -> SourceRange | None:
    """All rows at the head, counted by the appends where history is whole, else by the table's own total."""
    assert table.head is not None
    history = table.ancestors()
    # Expiry may cut the parent off the oldest snapshot it keeps; only the first one ever has this number.
    is_whole = history[-1].sequence_number <= 1
    appended = sum(s.added_records for s in _appends(table, history))
    retired = any(s.operation == "delete" for s in history)
    total = int(history[0].summary.get("total-records", 0))
    rows = appended if is_whole and not retired else total
    return SourceRange(None, table.head, rows, is_gap) if rows else None


def _appends(table: TableView, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """The appends among them; anything but appends, compactions and our retention stops the topic."""
    for snapshot in snapshots:
        if snapshot.operation not in ("append", "replace") and not _is_retention(snapshot):
            raise SourceRewrittenError(
                f"{table.name}: snapshot {snapshot.snapshot_id} is a {snapshot.operation!r}, and RAW is append-only; "
                "find out who wrote it, then take RAW as it is now with: leanops rebuild TOPIC"
            )
    return [snapshot for snapshot in snapshots if snapshot.operation == "append"]


def is_same_data(table: TableView, snapshot_id: int | None) -> bool:
    """Whether the head holds the rows a snapshot held: it is the snapshot, or files were only rewritten since."""
    for snapshot in table.ancestors():
        if snapshot.snapshot_id == snapshot_id:
            return True
        if not is_compaction(snapshot) and snapshot.summary.get(KIND) != "cancelled":
            return False
    return table.head == snapshot_id


def is_compaction(snapshot: Snapshot) -> bool:
    """Whether a snapshot has the rows of the one before in other files."""
    return snapshot.operation == "replace" and snapshot.batch_id is None


def is_empty(snapshot: Snapshot) -> bool:
    """Whether a snapshot is of a batch that changed no row: the twin of one that was there already."""
    changed = snapshot.added_records + int(snapshot.summary.get("deleted-records", 0))
    return snapshot.batch_id is not None and changed + int(snapshot.summary.get("added-position-deletes", 0)) == 0


def retired_rows(table: TableView) -> int:
    """Rows that retention took out of an append-only table, as far as its history is kept."""
    return sum(int(s.summary.get("deleted-records", 0)) for s in table.ancestors() if _is_retention(s))


def holds_all_read(raw: TableView, table: TableView) -> bool:
    """Whether histories and numbers show that RAW has every event of a table's rows; if not, one has to look."""
    mark = valid_watermark(table)
    if mark is None or raw.head is None or mark.source_uuid != raw.uuid or mark.totals.base_rows:
        return False
    if not _is_all_ours(table) or _live_rows(table) != mark.totals.rows:
        return False
    try:
        new = new_range(raw, mark)
    except SourceRewrittenError:
        return False
    return _live_rows(raw) == mark.totals.read + (new.rows if new else 0)


def _is_all_ours(table: TableView) -> bool:
    """Whether the history of a table is kept from its first batch on, and no other tool has changed its rows."""
    first = watermark_from(table.ancestors()[-1])
    is_whole = first is not None and first.totals.rows == first.counts.get("inserted")
    return is_whole and not any(foreign.changes_rows for foreign in foreign_snapshots(table))


def _live_rows(table: TableView) -> int | None:
    """The rows of a table by its own totals; None where these do not tell."""
    head = None if table.head is None else table.snapshots.get(table.head)
    summary = head.summary if head else {}
    if "total-records" not in summary or int(summary.get("total-equality-deletes", 0)):
        return None
    return int(summary["total-records"]) - int(summary.get("total-position-deletes", 0))


def _is_retention(snapshot: Snapshot) -> bool:
    return snapshot.operation == "delete" and snapshot.summary.get(KIND) == "retention"


def is_kept_since(table: TableView, start: int, end: int) -> bool:
    """Whether every snapshot after one up to another is kept; the first of them may itself have expired."""
    return start == end or any(snapshot.parent_id == start for snapshot in table.ancestors(end))


def batches_between(table: TableView, start: int, end: int) -> list[Watermark] | None:
    """The batches of a table after a number up to another, oldest first; None where some have expired."""
    marks = [mark for snapshot in table.ancestors() if (mark := watermark_from(snapshot))]
    between = [mark for mark in marks if start < mark.batch_seq <= end]
    is_first = bool(between) and between[-1].totals.rows == between[-1].counts["inserted"]
    return between[::-1] if is_first or any(mark.batch_seq <= start for mark in marks) else None


def is_ancestor(table: TableView, snapshot_id: int) -> bool:
    """Whether a snapshot is the head or one of its kept ancestors."""
    return any(snapshot.snapshot_id == snapshot_id for snapshot in table.ancestors())


def has_moved(source: TableView, mark: Watermark) -> bool:
    """Whether what a watermark has read is no longer part of its source: it was rolled back, replaced or re-created.

    Expired snapshots do not count as a move.
    """
    newest = valid_watermark(source)
    if mark.source_uuid != source.uuid or newest is None:
        return mark.source_uuid != source.uuid
    return mark.source_to > newest.batch_seq or not newest.timeline.holds(mark.source_timeline, mark.source_to)


def expirable(table: TableView, needed: Collection[int | None] = ()) -> list[int]:
    """Snapshots of an append-only table that nobody needs: older than those kept and than any still needed."""
    history = table.ancestors()
    oldest = max((at for at, snapshot in enumerate(history) if snapshot.snapshot_id in needed), default=0)
    return [snapshot.snapshot_id for snapshot in history[max(KEPT_SNAPSHOTS, oldest + 1) :]]


@dataclass(frozen=True)
class Foreign:
    """A snapshot that another tool committed to a table that only our batches should write."""

    snapshot_id: int
    operation: str
    at_ms: int | None
    """When it became the head, where the table still knows."""

    @property
    def changes_rows(self) -> bool:
        """Whether its rows may differ from those before it; a compaction only rewrites the same ones."""
        return self.operation != "replace"


def foreign_snapshots(table: TableView) -> list[Foreign]:
    """The snapshots of a layer without a key of ours, newest first, back to the last rebuild or expiry.

    Every commit of a batch, a rebuild and a retention carries one; a rollback moves the head and commits nothing.
    """
    became = {snapshot: when for when, snapshot in table.history}
    return [
        Foreign(snapshot.snapshot_id, snapshot.operation, became.get(snapshot.snapshot_id))
        for snapshot in table.ancestors()
        if is_foreign(snapshot)
    ]


def is_foreign(snapshot: Snapshot) -> bool:
    """Whether another tool committed a snapshot."""
    return not any(key.startswith("leanops.") for key in snapshot.summary)
