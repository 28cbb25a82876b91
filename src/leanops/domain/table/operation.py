"""An operation as recorded before it starts: work on a topic's tables that is finished or cancelled, never half done.

Tables are first built beside the live ones (`building`; it can still be undone), then put in their place (`going`; from
there it only goes forward).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from leanops.domain.limits import ColumnLimits, Limits
from leanops.domain.table.batch import STANDARDIZED


class Work(StrEnum):
    """What people asked for."""

    DEPLOY = "deploy"
    REBUILD = "rebuild"
    RECURATE = "recurate"
    ROLLBACK = "rollback"


class Scope(StrEnum):
    """Which tables are rebuilt."""

    NONE = "none"
    CURATED = "curated"
    BOTH = "both"


class Accept(StrEnum):
    """Which keys of the live Curated may be missing in the new one."""

    NONE = "none"
    """None, because nobody is there to ask."""
    FAILING = "failing"
    """Those whose newest version fails the schema: each has an error row."""
    GONE = "gone"
    """Those that Standardized no longer has."""
    ALL = "all"


Accepted = Accept | int
"""Which keys a person lets go, or at most how many; 0 is a person who lets none go."""


def agrees(accept: Accepted, missing: int) -> bool:
    """Whether this many keys may go missing."""
    return missing == 0 or accept == Accept.ALL or (isinstance(accept, int) and missing <= accept)


class Stage(StrEnum):
    """How far an operation has come."""

    BUILDING = "building"
    GOING = "going"
    CLOSED = "closed"
    """Finished or cancelled; its row remains and refuses a late worker of an earlier lease."""


class Place(msgspec.Struct, frozen=True):
    """A table at one moment, and the number its rows have, or will have once it is rebuilt."""

    uuid: str
    snapshot: int | None
    batch_seq: int = 0
    rows: int = 0

    @property
    def head(self) -> int:
        """Its snapshot, where there must be one."""
        assert self.snapshot is not None
        return self.snapshot


class Operation(msgspec.Struct, frozen=True):
    """Everything that decides the result; whoever resumes it does exactly this."""

    operation_id: str
    topic: str
    work: Work
    actor: str
    begun_ms: int
    version: int
    """The schema version that holds once it is done."""
    previous: int | None = None
    """The one that held before."""
    classification: str = ""
    scope: Scope = Scope.NONE
    accept: Accepted = Accept.NONE
    raw: Place | None = None
    """RAW as far as it is read."""
    standardized: Place | None = None
    """Standardized before: the source if only Curated is rebuilt."""
    curated: Place | None = None
    standardized_head: int | None = None
    """The snapshot Standardized had: where it has another, somebody else was at work."""
    portion_rows: int = 2_000_000
    """From the settings; the default is that of operations which an earlier version put on record."""
    limits: Limits = Limits()
    column_limits: ColumnLimits = ColumnLimits()
    back_to: int | None = None
    """Rollback: the snapshot of Standardized that comes back."""
    curated_back_to: int | None = None
    """Rollback: the snapshot of Curated that goes with it, where there is one."""

    columns: dict[str, str] = {}
    """Rollback: the columns of Standardized as they were, by path."""

    attempts: tuple[int, ...] = ()
    """Generations of the lease under which tables were built, oldest first; each attempt has tables of its own."""
    built: dict[str, int | None] = {}
    """What was compared and goes live: the snapshot of each table that was built."""
    key_check: str = ""
    """The check value of the key it seals with; whoever resumes it must have the same key."""
    new_key: bool = False
    """Whether that may be another key than the one the tables are sealed with now."""
    agreed_heads: dict[str, int | None] = {}
    """By layer: the head of a live table that a person lets go, though others wrote to it since it began."""

    @property
    def pause_reason(self) -> str:
        """Rollback: why the topic is paused from then on."""
        return f"rolled back to snapshot {self.back_to}; to redo what came after: leanops topics resume {self.topic}"

    def head_of(self, layer: str) -> int | None:
        """The snapshot a live table had when it began."""
        if layer == STANDARDIZED:
            return self.standardized_head
        return self.curated.snapshot if self.curated else None

    @property
    def is_from_a_file(self) -> bool:
        """Whether a schema file that waited asked for it, so that nobody was there to agree to anything."""
        return self.work == Work.DEPLOY and self.accept == Accept.NONE

    @property
    def standardized_batch(self) -> str:
        """The batch id of the new Standardized rows."""
        return self.operation_id

    @property
    def curated_batch(self) -> str:
        """The batch id of the new Curated rows."""
        return f"{self.operation_id}c"


@dataclass(frozen=True)
class UnfinishedOperation:
    """An operation that is not finished yet."""

    operation: Operation
    stage: Stage
    blocked: str | None
    """Why it waits for a person."""

    @property
    def begun(self) -> str:
        """What was started, when and by whom."""
        at = datetime.fromtimestamp(self.operation.begun_ms / 1000, UTC)
        return f"{self.operation.work.value} started at {at:%Y-%m-%d %H:%M:%S} UTC by {self.operation.actor}"

    def sentence(self) -> str:
        """What blocks the topic, and what to do."""
        if self.blocked:
            return f"{self.begun} waits: {self.blocked}"
        again = f"leanops rebuild {self.operation.topic}"
        undo = f"; to cancel: {again} --cancel" if self.stage == Stage.BUILDING else ""
        return f"{self.begun} is unfinished; the next cycle resumes it; to resume now: {again} --resume{undo}"


def unfinished_from(row: Mapping[str, object]) -> UnfinishedOperation | None:
    """The unfinished operation a row of the state store holds, if it does."""
    blocked = row["blocked"]
    if row["stage"] == Stage.CLOSED:
        return None
    operation = msgspec.json.decode(str(row["intent"]), type=Operation)
    return UnfinishedOperation(operation, Stage(str(row["stage"])), str(blocked) if blocked else None)
