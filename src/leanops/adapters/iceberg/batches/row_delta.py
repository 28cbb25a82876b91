"""Commits of files that tasks wrote: new rows and deletes on one exact head, or an append on whatever head there is."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate
from pyiceberg.utils.properties import property_as_bool, property_as_int
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from leanops.adapters.iceberg.local import NothingCommittedError
from leanops.adapters.iceberg.tasks.fold import lightest
from leanops.adapters.iceberg.tasks.stored import manifests_of
from leanops.adapters.iceberg.tasks.written import remove_files
from leanops.domain.errors import CommitRefusedError, CommitUnknownError, PermanentError

_TRIES = 30
_MANIFESTS_BEFORE_MERGE = 20
_NOTHING_CHANGED = (
    *(AuthorizationExpiredError, BadRequestError, ForbiddenError, NoSuchTableError, OAuthError),
    *(TooManyRequestsError, UnauthorizedError, NothingCommittedError),
)
"""Answers of a catalog that has not taken the commit and never will."""


def commit_row_delta(
    catalog: Catalog,
    name: str,
    *,
    uuid: str,
    base: int | None,
    data_files: Sequence[DataFile],
    delete_files: Sequence[DataFile],
    removed: Collection[str] = (),
    summary: Mapping[str, str],
) -> int:
    """One snapshot with these files right on top of `base`, perhaps with none; its id. Refused on any other head.

    With removed files, data or deletes, it is a compaction: the rows of the table are the same.
    """
    refused = f"{name} was changed by another writer; nothing was committed, and the batch is planned again"
    table = _load(catalog, name)
    if str(table.metadata.table_uuid) != uuid or table.metadata.current_snapshot_id != base:
        raise CommitRefusedError(refused)
    try:
        operation = Operation.REPLACE if removed else Operation.OVERWRITE
        return _Commit(table, operation, summary).run(data_files, delete_files, frozenset(removed))
    except CommitFailedException:
        raise CommitRefusedError(refused) from None


def commit_on_any_head(
    catalog: Catalog,
    name: str,
    data_files: Sequence[DataFile],
    delete_files: Sequence[DataFile],
    summary: Mapping[str, str],
    guard: Callable[[Table], None] = lambda _: None,
    removed: Collection[str] = (),
) -> int:
    """One snapshot with these files on whatever head the table has; its id. `guard` sees each head and may raise.

    With removed files, which must be files of that head, rows of the table change: it is no compaction.
    """
    operation = Operation.OVERWRITE if delete_files or removed else Operation.APPEND

    def commit() -> int:
        table = _load(catalog, name)
        guard(table)
        return _Commit(table, operation, summary).run(data_files, delete_files, frozenset(removed))

    retrying = Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        stop=stop_after_attempt(_TRIES),
        wait=wait_random_exponential(multiplier=0.02, max=1),
        reraise=True,
    )
    try:
        return retrying(commit)
    except CommitFailedException:
        raise CommitRefusedError(f"{name} was changed by other writers {_TRIES} times in a row; try again") from None


def _load(catalog: Catalog, name: str) -> Table:
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        raise CommitRefusedError(f"{name} no longer exists; nothing was committed") from None
    if table.format_version != 2:
        raise PermanentError(f"{name} has Iceberg format {table.format_version}; only format 2 is supported")
    return table


class _DeleteManifest(ManifestWriterV2):
    """PyIceberg writes manifests of data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


_WRITERS = {ManifestContent.DATA: ManifestWriterV2, ManifestContent.DELETES: _DeleteManifest}


@dataclass
class _Commit:
    """One try to put a snapshot on the head of a table as it was loaded."""

    table: Table
    operation: Operation
    summary: Mapping[str, str]
    written: list[str] = field(default_factory=list)
    """Manifests and the list of them."""

    def __post_init__(self) -> None:
        # Read once: PyIceberg computes some of these at every call.
        metadata: Any = self.table.metadata
        self._metadata, self._schema, self._specs = metadata, self.table.schema(), self.table.specs()
        self._places, self._name = self.table.location_provider(), uuid4()
        self._snapshot_id: int = metadata.new_snapshot_id()
        self._parent: Snapshot | None = metadata.current_snapshot()
        self._compression: Any = metadata.properties.get(
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )

    def run(
        self, data_files: Sequence[DataFile], delete_files: Sequence[DataFile], removed: frozenset[str] = frozenset()
    ) -> int:
        """The id of the snapshot. CommitFailedException says that another commit came first."""
        try:
            snapshot = self._snapshot(data_files, delete_files, removed)
        except BaseException:
            remove_files(self.table.io, self.written)
            raise
        self._send(snapshot)
        return self._snapshot_id

    def _snapshot(
        self, data_files: Sequence[DataFile], delete_files: Sequence[DataFile], removed: frozenset[str]
    ) -> Snapshot:
        added = self._added(ManifestContent.DATA, data_files) + self._added(ManifestContent.DELETES, delete_files)
        stored, rewritten, gone = self._without(self._stored(), removed)
        manifests = added + rewritten + self._merged(stored, [*added, *rewritten])
        number = self._metadata.next_sequence_number()
        place = self._places.new_metadata_location(f"snap-{self._snapshot_id}-0-{self._name}.avro")
        self.written.append(place)
        parent_id = self._parent.snapshot_id if self._parent else None
        with write_manifest_list(
            format_version=2,
            output_file=self.table.io.new_output(place),
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=number,
            avro_compression=self._compression,
        ) as writer:
            writer.add_manifests(manifests)
        return Snapshot(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=parent_id,
            manifest_list=place,
            sequence_number=number,
            summary=self._summary([*data_files, *delete_files], gone),
            schema_id=self._metadata.current_schema_id,
        )

    def _send(self, snapshot: Snapshot) -> None:
        branch: Any = {"ref_name": MAIN_BRANCH, "type": "branch", "snapshot_id": self._snapshot_id}
        updates = AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate(**branch)
        requirements = (
            AssertTableUUID(uuid=self._metadata.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=snapshot.parent_snapshot_id),
        )
        try:
            self.table._do_commit(updates, requirements)
        except CommitFailedException:
            if not self._landed():
                remove_files(self.table.io, self.written)
                raise
        except _NOTHING_CHANGED:
            remove_files(self.table.io, self.written)
            raise
        except Exception as failure:
            # Whatever else a catalog or the way to it raises leaves open whether the commit is there.
            raise CommitUnknownError(self._unknown()) from failure

    def _landed(self) -> bool:
        """Whether the table has the snapshot though it was refused: the answer to a first try may have been lost."""
        try:
            metadata = self.table.catalog.load_table(self.table.name()).metadata
        except Exception as failure:
            # Without another look the refusal proves nothing.
            raise CommitUnknownError(self._unknown()) from failure
        return metadata.snapshot_by_id(self._snapshot_id) is not None

    def _unknown(self) -> str:
        name = ".".join(self.table.name())
        return f"{name}: the catalog did not confirm whether the commit succeeded; the next try looks for it"

    def _summary(self, added: Iterable[DataFile], removed: Iterable[DataFile]) -> Summary:
        limit = property_as_int(self._metadata.properties, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, 0) or 0
        collector = SnapshotSummaryCollector(limit)
        for file in added:
            collector.add_file(file, self._schema, self._specs[file.spec_id])
        for file in removed:
            collector.remove_file(file, self._schema, self._specs[file.spec_id])
        # PyIceberg adds up the totals of an overwrite, and knows no compaction.
        counted = Summary(Operation.OVERWRITE, **{**self.summary, **collector.build()})
        totals = update_snapshot_summaries(counted, self._parent.summary if self._parent else None)
        return Summary(self.operation, **totals.additional_properties)

    def _added(self, content: ManifestContent, files: Iterable[DataFile]) -> list[ManifestFile]:
        """A manifest of new files for each partitioning; who commits them gives them their sequence number."""
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for file in files:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file
            )
            by_spec[file.spec_id].append(entry)
        return [self._write(content, spec_id, entries) for spec_id, entries in by_spec.items()]

    def _write(self, content: ManifestContent, spec_id: int, entries: Iterable[ManifestEntry]) -> ManifestFile:
        place = self._places.new_metadata_location(f"{self._name}-m{len(self.written)}.avro")
        self.written.append(place)
        output = self.table.io.new_output(place)
        with _WRITERS[content](
            self._specs[spec_id], self._schema, output, self._snapshot_id, self._compression
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _stored(self) -> list[ManifestFile]:
        """The manifests of the head that list anything alive."""
        if self._parent is None:
            return []
        manifests = manifests_of(self.table, self._parent)
        return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]

    def _without(
        self, stored: Sequence[ManifestFile], removed: frozenset[str]
    ) -> tuple[list[ManifestFile], list[ManifestFile], list[DataFile]]:
        """The manifests that list none of the removed files, new ones for all others, and the files."""
        if not removed:
            return list(stored), [], []
        untouched: list[ManifestFile] = []
        touched: dict[tuple[ManifestContent, int], list[ManifestEntry]] = defaultdict(list)
        gone: list[DataFile] = []
        for manifest in stored:
            entries = manifest.fetch_manifest_entry(self.table.io)
            listed = [entry.data_file for entry in entries if entry.data_file.file_path in removed]
            if listed:
                touched[_kind(manifest)] += entries
                gone += listed
            else:
                untouched.append(manifest)
        if missing := removed - {file.file_path for file in gone}:
            raise ValueError(f"{'.'.join(self.table.name())} does not have {len(missing)} of the files to remove")
        for entry in (entry for entries in touched.values() for entry in entries):
            entry.status = ManifestEntryStatus.EXISTING
            if entry.data_file.file_path in removed:
                entry.status, entry.snapshot_id = ManifestEntryStatus.DELETED, self._snapshot_id
        return untouched, [self._write(*kind, entries) for kind, entries in touched.items()], gone

    def _merged(self, stored: Sequence[ManifestFile], added: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The stored manifests, in fewer files where a kind has too many; the new ones count, and stay apart."""
        properties = self._metadata.properties
        if not property_as_bool(properties, TableProperties.MANIFEST_MERGE_ENABLED, True):
            return list(stored)
        most = property_as_int(properties, TableProperties.MANIFEST_MIN_MERGE_COUNT, _MANIFESTS_BEFORE_MERGE)
        kinds: dict[tuple[ManifestContent, int], list[ManifestFile]] = defaultdict(list)
        for manifest in stored:
            kinds[_kind(manifest)].append(manifest)
        merged: list[ManifestFile] = []
        for kind, manifests in kinds.items():
            count = len(manifests) + sum(_kind(manifest) == kind for manifest in added)
            chosen = self._worth_merging(manifests) if count > (most or 0) else []
            merged += [manifest for manifest in manifests if manifest not in chosen]
            if chosen:
                merged.append(self._write(*kind, self._existing(chosen)))
        return merged

    def _worth_merging(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The smallest ones, as long as they fit into one file; a large one stays as it is."""
        limit = property_as_int(
            self._metadata.properties,
            TableProperties.MANIFEST_TARGET_SIZE_BYTES,
            TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
        )
        most = limit or 0
        light = lightest([manifest for manifest in manifests if manifest.manifest_length <= most // 2], _files, least=2)
        sizes = accumulate(manifest.manifest_length for manifest in light)
        chosen = [manifest for manifest, size in zip(light, sizes, strict=True) if size <= most]
        return chosen if len(chosen) > 1 else []

    def _existing(self, manifests: Iterable[ManifestFile]) -> Iterable[ManifestEntry]:
        for manifest in manifests:
            for entry in manifest.fetch_manifest_entry(self.table.io):
                entry.status = ManifestEntryStatus.EXISTING
                yield entry


def _kind(manifest: ManifestFile) -> tuple[ManifestContent, int]:
    return manifest.content, manifest.partition_spec_id


def _files(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
