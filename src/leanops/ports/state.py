"""State: small rows changed by compare-and-set, so that every rule above (leases, fencing, batches) is written once."""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from leanops.domain.errors import PermanentError

Value: TypeAlias = str | int | bool | None
Row: TypeAlias = dict[str, Value]
Key: TypeAlias = tuple[str, ...]

SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class StateTable:
    """One table: a key of one or two texts, and nullable columns of type str, int (64 bits) or bool."""

    name: str
    key: Key
    columns: Mapping[str, type] = field(hash=False)

    def key_of(self, row: Row) -> Key:
        """The row's key."""
        return tuple(str(row[column]) for column in self.key)

    def complete(self, row: Row) -> Row:
        """The row with every column present; what one engine would refuse or change is refused for all of them."""
        types: dict[str, type] = {**dict.fromkeys(self.key, str), **self.columns}
        unknown = sorted(row.keys() - types.keys())
        if unknown:
            raise PermanentError(f"state table {self.name} has no column {unknown[0]!r}; use one of {', '.join(types)}")
        self.check_key(tuple(row.get(column) for column in self.key))
        for column, value in row.items():
            if not _fits(value, types[column]):
                kind = types[column].__name__
                raise PermanentError(
                    f"state table {self.name}: {column} cannot hold this value; give it a {kind} or None"
                )
        return {column: row.get(column) for column in types}

    def complete_all(self, rows: Sequence[Row]) -> list[Row]:
        """The rows, each complete; two of one key are refused."""
        complete = [self.complete(row) for row in rows]
        if len({self.key_of(row) for row in complete}) < len(complete):
            raise PermanentError(f"state table {self.name}: two rows of one key; give each key once")
        return complete

    def check_number(self, column: str) -> None:
        """Refuse a column that does not hold whole numbers."""
        if self.columns.get(column) is not int:
            raise PermanentError(f"state table {self.name}: {column!r} does not hold numbers; name a column that does")

    def check_key(self, key: tuple[Value, ...]) -> None:
        """Refuse a key of another length, or with a part that is empty or not a text."""
        if len(key) != len(self.key) or not all(part and _fits(part, str) for part in key):
            raise PermanentError(
                f"state table {self.name}: a key is a text, not empty, for each of {', '.join(self.key)}"
            )


def _fits(value: Value, kind: type) -> bool:
    if value is None:
        return True
    if type(value) is not kind:
        return False
    if isinstance(value, str):
        return value.isascii() or not SURROGATE.search(value)
    return -(2**63) <= value < 2**63


def new_revision() -> int:
    """A number no other write has: it sets a lost reply apart from a lost race, and a row from a deleted one."""
    return secrets.randbits(62) + 1


@dataclass(frozen=True)
class Stored:
    """A row as it was read; the revision names this very write, and only equality of revisions means something."""

    row: Row
    revision: int


class StateStore(Protocol):
    """Reads see every earlier write. A store that does not answer raises StateUnavailableError."""

    def get(self, table: StateTable, key: Key) -> Stored | None:
        """The row of this key, or None."""

    def put(self, table: StateTable, row: Row, *, expected: int | None) -> int:
        """Write the whole row if it is absent (None) or still at the revision seen, else StateConflictError."""

    def get_many(self, table: StateTable, keys: Sequence[Key]) -> dict[Key, Stored]:
        """The rows of these keys, of those that are there, in few calls."""

    def put_many(self, table: StateTable, rows: Sequence[Row]) -> None:
        """Write whole rows over whatever is there, in few calls; where it raises, some may be written.

        For rows that nobody changes by compare-and-set. No two may have one key.
        """

    def delete(self, table: StateTable, key: Key, *, expected: int) -> None:
        """Delete the row if it is still at the revision seen, else StateConflictError."""

    def rows(self, table: StateTable) -> Iterator[Stored]:
        """Every row, each once, in no promised order; rows changed meanwhile come in their old or new state."""

    def purge(self, table: StateTable, column: str, before: int) -> int:
        """Delete the rows whose column is below the limit (never those without a value); how many they were."""


# Times are epoch milliseconds.
CHECKPOINTS = StateTable(
    "checkpoints",
    ("pipeline_id", "checkpoint_type"),
    {
        "snapshot_id": int,
        "batch_seq": int,
        "records_processed": int,
        "timeline": str,
        "key_check": str,
        "generation": int,
        "updated_at": int,
    },
)
LOCKS = StateTable("locks", ("resource",), {"owner": str, "generation": int, "lease_until": int})
SCHEMA_REGISTRY = StateTable(
    "schema_registry",
    ("topic_name",),
    {"processing_enabled": bool, "status": str, "schema_version": int, "reason": str, "updated_at": int},
)
IDEMPOTENCY_KEYS = StateTable("idempotency_keys", ("idempotency_key",), {"expires_at": int})
MESSAGE_FAILURES = StateTable("message_failures", ("message",), {"failures": int, "expires_at": int})
"""How often a message failed by its own fault, where the platform's count of receives counts outages as well."""
ERROR_TRACKER = StateTable(
    "error_tracker",
    ("error_id",),
    {
        "occurrence": str,
        "topic_name": str,
        "message_id": str,
        "publish_time": int,
        "rule": str,
        "reason": str,
        "source": str,
        "detected_at": int,
    },
)
BATCHES = StateTable(
    "batches", ("pipeline_id",), {"batch_id": str, "intent": str, "generation": int, "updated_at": int}
)
ABANDONED_BATCHES = StateTable("abandoned_batches", ("pipeline_id", "batch_id"), {"abandoned_at": int})
"""Batches that were given up before they were committed; a worker that stalled may commit one all the same."""
ATTEMPTS = StateTable(
    "attempts",
    ("pipeline_id",),
    {"tries": int, "parked": bool, "next_try_at": int, "reason": str, "updated_at": int},
)
OPERATIONS = StateTable(
    "operations",
    ("topic_name",),
    {
        "operation_id": str,
        "intent": str,
        "stage": str,
        "blocked": str,
        "generation": int,
        "updated_at": int,
    },
)
BREAKERS = StateTable(
    "breakers",
    ("queue",),
    {
        "state": str,
        "reason": str,
        "window_start": int,
        "succeeded": int,
        "failed": int,
        "changed_at": int,
        "forced": bool,
        "probe": str,
        "probe_until": int,
    },
)
SILENT_MS = 30_000
"""A worker whose last beat is older than this was killed, or is cut off from the state store."""
GONE_MS = 3_600_000
"""A worker that has been silent this long is forgotten."""
WORKERS = StateTable(
    "workers",
    ("worker",),
    {
        "part": str,
        "started_at": int,
        "beat_at": int,
        "done": int,
        "failed": int,
        "error": str,
        "doing": str,
        "doing_since": int,
    },
)
DRIFT_STATE = StateTable("drift_state", ("topic_name",), {"paths": str, "updated_at": int})

TABLES = (
    CHECKPOINTS,
    LOCKS,
    SCHEMA_REGISTRY,
    IDEMPOTENCY_KEYS,
    MESSAGE_FAILURES,
    ERROR_TRACKER,
    BATCHES,
    ABANDONED_BATCHES,
    ATTEMPTS,
    OPERATIONS,
    DRIFT_STATE,
    BREAKERS,
    WORKERS,
)
