"""What is on its way to RAW, and the background parts that bring it there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from leanops.domain.breaker import State, breaker_of
from leanops.ports.clock import Clock, millis
from leanops.ports.delivery import Waiting
from leanops.ports.queue import Depth
from leanops.ports.state import BREAKERS, ERROR_TRACKER, WORKERS, Row, StateStore

SILENT_MS = 30_000
GONE_MS = 3_600_000
"""A worker that was not heard of for so long is gone, and not shown."""


@dataclass(frozen=True)
class WorkerStatus:
    """One background part of one process."""

    part: str
    worker: str
    state: str
    """`working`, `failing`, or `silent`: stopped without a word, or cut off from the state store."""
    since: datetime
    beat: datetime
    done: int
    failed: int
    error: str | None
    doing: str | None = None
    doing_since: datetime | None = None

    @property
    def is_silent(self) -> bool:
        return self.state == "silent"


@dataclass(frozen=True)
class Background:
    """Everything before RAW."""

    workers: tuple[WorkerStatus, ...]
    queues: Mapping[str, Depth]
    delivery: Waiting
    undrained: int
    """Dead letters that are not in dlq_errors yet."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Queue → why its circuit breaker stops it."""
    now_ms: int = 0
    shortage: str | None = None
    """Why nothing more is taken in."""

    @property
    def queued(self) -> int:
        return sum(depth.messages for depth in self.queues.values())

    def oldest_s(self, queue: str) -> int | None:
        """Seconds since the oldest message of a queue was sent, where the queue can tell."""
        oldest_ms = self.queues[queue].oldest_ms
        return None if oldest_ms is None else max(0, (self.now_ms - oldest_ms) // 1000)

    def as_json(self) -> dict[str, Any]:
        """The fields, but queues tell the age of their oldest message, and delivery only what waits and what lands."""
        return {
            "workers": self.workers,
            "queues": {
                name: {"visible": depth.visible, "in_flight": depth.in_flight, "oldest_s": self.oldest_s(name)}
                for name, depth in self.queues.items()
            },
            "delivery": {"waiting": self.delivery.records, "landing": self.delivery.claimed},
            "undrained": self.undrained,
            "stopped": self.stopped,
            "shortage": self.shortage,
        }


def background(
    state: StateStore, queues: Mapping[str, Depth], delivery: Waiting, clock: Clock, shortage: str | None = None
) -> Background:
    """Every worker that was heard of within the hour, and what waits before RAW."""
    now = millis(clock())
    heard = [stored.row for stored in state.rows(WORKERS) if now - int(stored.row["beat_at"] or 0) < GONE_MS]
    workers = sorted((_worker(row, now) for row in heard), key=lambda found: found.worker)
    undrained = sum(1 for _ in state.rows(ERROR_TRACKER))
    found = {str(stored.row["queue"]): breaker_of(stored.row) for stored in state.rows(BREAKERS)}
    stopped = {queue: one.reason or "by hand" for queue, one in found.items() if one.state is not State.CLOSED}
    return Background(tuple(workers), queues, delivery, undrained, stopped, now, shortage)


def _worker(row: Row, now: int) -> WorkerStatus:
    beat = int(row["beat_at"] or 0)
    error = None if row["error"] is None else str(row["error"])
    return WorkerStatus(
        part=str(row["part"]),
        worker=str(row["worker"]).rpartition("/")[0],
        state="silent" if not 0 <= now - beat <= SILENT_MS else "failing" if error else "working",
        since=_moment(int(row["started_at"] or 0)),
        beat=_moment(beat),
        done=int(row["done"] or 0),
        failed=int(row["failed"] or 0),
        error=error,
        doing=None if row["doing"] is None else str(row["doing"]),
        doing_since=None if row["doing_since"] is None else _moment(int(row["doing_since"])),
    )


def _moment(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
