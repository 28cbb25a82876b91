"""The work on rows: what a use case asks for, what was written for it, and what rows answer before a deployment."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, ClassVar, Protocol

from leanops.domain.failures import ForgetKeys, Hide
from leanops.domain.limits import ColumnLimits, Limits
from leanops.domain.payload.evolution import ColumnPlan, plan_columns, real_paths
from leanops.domain.payload.flatten import Kind
from leanops.domain.schema.infer import Seen
from leanops.domain.schema.model import Keys, Schema
from leanops.domain.schema.parse import DEFAULT_KEY_PATH, DEFAULT_PERIOD_PATHS
from leanops.domain.schema.plan import FailureGroup
from leanops.domain.table.batch import Batch
from leanops.domain.table.comparison import Comparison

_DEFAULTS = (DEFAULT_KEY_PATH, *DEFAULT_PERIOD_PATHS)


@dataclass(frozen=True)
class Target:
    """Where the rows of a batch go: its table as it was at a snapshot, and the table of what is wrong."""

    table: str
    uuid: str
    base: int | None
    errors: str


@dataclass(frozen=True)
class StandardizeWork:
    """One batch RAW → Standardized, and all that decides its rows."""

    batch: Batch
    raw: str
    target: Target
    keys: Keys
    expected: Mapping[str, Kind]
    """What earlier batches had; a path first seen in this batch gets its cells too, only more slowly."""
    paths: Mapping[str, str]
    """The columns that the table has: path → name."""
    named: tuple[str, ...]
    """Paths that get a column outside all limits."""
    days: tuple[date | None, ...] | None = None
    """Where only a part of RAW is read: the days of publication."""
    secret: bytes | None = field(default=None, repr=False)
    """The key of HMACs."""
    is_curated_next: bool = False
    """Whether to note which versions are superseded, for the batch of Curated that comes next."""
    key: ClassVar = "record_key"
    """The column that tells rows of the target apart."""

    @property
    def known(self) -> frozenset[str]:
        """Paths that have a column, or get one as soon as an event has them."""
        return frozenset((*self.paths, *self.named, *_DEFAULTS))

    def columns(self, kinds: Mapping[str, set[Kind]]) -> ColumnPlan:
        """Where each path of the batch goes."""
        batch, seen = self.batch, real_paths(kinds)
        exempt = [path for path in _DEFAULTS if path in seen or path in self.paths]
        named = [*self.named, *exempt]
        return plan_columns(self.paths, seen, named, batch.contract, batch.column_limits, batch.free_columns)


@dataclass(frozen=True)
class CurateWork:
    """One batch Standardized → Curated, and all that decides its rows."""

    batch: Batch
    standardized: str
    raw: str
    target: Target
    schema: Schema
    paths: Mapping[str, str]
    """The columns of Standardized: path → name."""
    expected: Mapping[str, Kind] = field(default_factory=dict)
    """What earlier batches of Standardized had; any other path gets its cells too, only more slowly."""
    versions: "Sequence[Versions] | None" = None
    """What may be a version in the batch's part of RAW that is not in Standardized; None: it is looked for in RAW."""
    periods: tuple[str | None, ...] | None = None
    """Where only a part of Standardized is read: its periods."""
    secret: bytes | None = field(default=None, repr=False)
    """The key of HMACs."""
    key: ClassVar = "idempotency_key"
    """The column that tells rows of the target apart."""

    @property
    def keys(self) -> Keys:
        """How keys are made of events."""
        return self.schema.keys


Work = StandardizeWork | CurateWork


@dataclass(frozen=True)
class Versions:
    """A file that names versions of keys, and where in RAW each of them is; no table has it."""

    path: str
    rows: int
    elsewhere: int | None
    """How many of them have a key whose newest version came with an earlier batch; None where nobody knows."""


@dataclass(frozen=True)
class Fold:
    """A table with many small files, as the batch that noticed them left it."""

    target: Target
    key: str
    """The column that tells its rows apart."""
    summary: Mapping[str, str]
    """What the commit says of itself."""


@dataclass(frozen=True)
class Written:
    """What was written for a batch; no table has any of it yet."""

    read: int = 0
    added: int = 0
    replaced: int = 0
    """Rows in the files, as their footers count them, and rows of the table that they replace."""
    counts: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, set[Kind]] = field(default_factory=dict)
    """Standardized: the paths of the batch with the kinds they had."""
    lacks_columns: bool = False
    """Standardized: whether nothing was written, because the table lacks columns for paths of the batch."""
    files: tuple[Any, ...] = ()
    deletes: tuple[Any, ...] = ()
    errors: tuple[Any, ...] = ()
    """Files as the engine knows them: rows, positions of replaced rows, and rows of the error table."""
    superseded: tuple[Versions, ...] = ()
    """Standardized: the versions that are not the newest of their key. Whoever asked for them discards them."""
    failed: tuple[str, ...] = ()
    """Curated: files that name the keys whose newest version is not in Curated, for whoever looks for older ones."""
    known_errors: frozenset[str] = frozenset()
    """The files with error rows of its topic that the batch was compared with."""
    many_files: bool = False
    """Whether the table had enough small files to be folded."""

    def plus(self, other: "Written") -> "Written":
        """Both parts of one batch."""
        names = dict.fromkeys((*self.counts, *other.counts))
        return replace(
            self,
            read=self.read + other.read,
            added=self.added + other.added,
            replaced=self.replaced + other.replaced,
            counts={name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names},
            kinds=union((self.kinds, other.kinds)),
            lacks_columns=self.lacks_columns or other.lacks_columns,
            files=(*self.files, *other.files),
            deletes=(*self.deletes, *other.deletes),
            errors=(*self.errors, *other.errors),
            superseded=(*self.superseded, *other.superseded),
            failed=(*self.failed, *other.failed),
        )


@dataclass(frozen=True)
class TableAt:
    """A table at a snapshot; without one it has no rows."""

    table: str
    snapshot: int | None


@dataclass(frozen=True)
class Curations:
    """A new Curated and the live one, with all that can say why a key is in one of them alone."""

    topic: str
    new: TableAt
    live: TableAt
    standardized: TableAt
    """What the new one was made from."""
    raw: TableAt
    errors: TableAt
    parse_errors: TableAt
    """The error rows of the new one."""
    same_keys: bool
    """Whether an event has the same key in both."""


@dataclass(frozen=True)
class Chosen:
    """Some rows of a table, as the engine knows them."""

    rows: int
    of: TableAt
    places: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Events:
    """The events of RAW, or about a share of them, and how they are read."""

    raw: TableAt
    keys: Keys
    limits: Limits
    column_limits: ColumnLimits
    share: float = 1.0
    secret: Callable[[], bytes] | None = field(default=None, repr=False)
    """Finds the key of HMACs, where events are read at all."""


@dataclass(frozen=True)
class Measured:
    """What events hold."""

    counts: Mapping[str, int]
    """rows, parse_errors, missing_keys and version_fallback."""
    kinds: Mapping[str, set[Kind]]
    """All paths, with the kinds they had."""
    seen: Sequence[Seen]
    """The paths that hold a value."""
    has_more: bool = False
    """Whether there are more paths than these."""


@dataclass(frozen=True)
class Trial:
    """A schema, and the rows it is tried on: those of Standardized, or those that RAW would give."""

    topic: str
    new: Schema
    active: Schema | None
    standardized: TableAt
    paths: Mapping[str, str]
    """The columns that Standardized has: path → name."""
    columns: Collection[str]
    """All columns that Standardized has."""
    events: Events | None
    """RAW, where older versions are looked at, or rows are made of it."""
    reads_raw: bool
    """Whether the rows are those that RAW would give."""
    share: float
    """About how much of Standardized is read."""
    curated: TableAt
    live: Mapping[str, bool] | None
    """Its columns, and whether their values can be compared with the new schema's; None where it holds nothing."""
    keeps_key: bool
    """Whether a row that has no key under the new schema has none today."""

    @property
    def is_sample(self) -> bool:
        return self.share < 1


@dataclass(frozen=True)
class Tried:
    """What the schema makes of the rows."""

    counts: Mapping[str, int]
    """judged, failing, failing_today, cde_missing, leaving, resolved and changed."""
    failures: tuple[FailureGroup, ...]
    paths: Mapping[str, str]
    columns: Collection[str]
    """The columns that the rows have."""
    seen: Collection[str]
    """The paths that are in any row, or any event of RAW."""
    refused: int = 0
    """Events that the contract refuses."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """Of RAW: rows, parse_errors, missing_keys and version_fallback."""


def union(parts: Iterable[Mapping[str, set[Kind]]]) -> dict[str, set[Kind]]:
    """The paths of several parts of a batch with all kinds they had."""
    kinds_by_path: dict[str, set[Kind]] = {}
    for part in parts:
        for path, kinds in part.items():
            kinds_by_path[path] = kinds_by_path.get(path, set()) | kinds
    return kinds_by_path


class Engine(Protocol):
    """Does the work on the rows of batches, and commits what it wrote."""

    def standardize(self, works: Sequence[StandardizeWork]) -> "Sequence[Written | Exception]":
        """Write the files of batches; what fails is that batch's alone."""

    def curate(self, works: Sequence[CurateWork]) -> "Sequence[Written | Exception]":
        """Write the files of batches; what fails is that batch's alone.

        Where a batch says so, the older versions of keys whose newest one fails are judged, too.
        """

    def add_errors(self, table: str, written: Mapping[str, Written]) -> Sequence[str]:
        """Add the error rows of the batches of several topics in one commit, each row once.

        The topics it was not done for: somebody has added rows of theirs since they were looked for.
        """

    def commit(self, target: Target, written: Written, summary: Mapping[str, str]) -> None:
        """Commit what was written, with the summary, to the table as it was at the target's base.

        Raises CommitRefusedError where the table has moved since; then the files are removed.
        """

    def fold(self, folds: Sequence[Fold]) -> "Sequence[Exception | None]":
        """Put the rows of small files into fewer, larger ones, on the target's base alone; no row is changed.

        Where it fails, or the table has moved, the table stays as it is.
        """

    def discard(self, target: Target, written: Written) -> None:
        """Remove all files of a batch of which no commit was tried, as far as that can be done."""

    def compare(self, work: Curations) -> Comparison:
        """What becomes of the keys of the live table; raises UnbalancedBatchError if the new one has a key twice."""

    def retired(self, stored: TableAt, raw: TableAt) -> Chosen:
        """The rows of Standardized whose event RAW does not have."""

    def keep(self, chosen: Chosen, batch: Batch, target: Target, names: Mapping[str, str]) -> Written:
        """Write these rows again for another table, as the batch's own; `names` renames some of their columns."""

    def measure(self, events: Events) -> Measured:
        """What events hold."""

    def try_schema(self, trial: Trial) -> Tried:
        """What a schema makes of rows; raises UsageError if it names a column that can be read nowhere."""

    def put_errors(self, source: TableAt, table: str, topic: str) -> None:
        """Bring error rows of a topic into a table, in one commit; an existing row keeps what people wrote into it.

        One that fails again gets its new failures and one more attempt. Twice is the same as once: a row of the same
        batch stays as it is.
        """

    def change_errors(self, table: str, topic: str, change: Hide | ForgetKeys) -> None:
        """Change the error rows of a topic, in one commit; twice is the same as once."""
