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


@dataclass(frozen=True)
class WorkerStatus:
    """One background part of one process."""

    part: str
    worker: str
    since: datetime
    beat: datetime
    is_silent: bool
    """It has not been heard of: stopped without a word, or cut off from the state store."""
    done: int
    failed: int
    error: str | None

    def as_json(self) -> dict[str, Any]:
        """The form `status --json` prints."""
        return {
            "part": self.part,
            "worker": self.worker,
            "state": "silent" if self.is_silent else "failing" if self.error else "working",
            "since": self.since,
            "beat": self.beat,
            "done": self.done,
            "failed": self.failed,
            "error": self.error,
        }


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

    @property
    def queued(self) -> int:
        return sum(depth.messages for depth in self.queues.values())

    def as_json(self) -> dict[str, Any]:
        """The form `status --json` prints."""
        return {
            "workers": [worker.as_json() for worker in self.workers],
            "queues": {
                name: {"visible": depth.visible, "in_flight": depth.in_flight} for name, depth in self.queues.items()
            },
            "delivery": {"waiting": self.delivery.records, "landing": self.delivery.claimed},
            "undrained": self.undrained,
            "stopped": dict(self.stopped),
        }


def background(state: StateStore, queues: Mapping[str, Depth], delivery: Waiting, clock: Clock) -> Background:
    """Every worker that was heard of lately, and what waits before RAW."""
    now = millis(clock())
    workers = sorted((_worker(stored.row, now) for stored in state.rows(WORKERS)), key=lambda found: found.worker)
    undrained = sum(1 for _ in state.rows(ERROR_TRACKER))
    found = {str(stored.row["queue"]): breaker_of(stored.row) for stored in state.rows(BREAKERS)}
    stopped = {queue: one.reason or "by hand" for queue, one in found.items() if one.state is not State.CLOSED}
    return Background(tuple(workers), queues, delivery, undrained, stopped)


def _worker(row: Row, now: int) -> WorkerStatus:
    beat = int(row["beat_at"] or 0)
    return WorkerStatus(
        part=str(row["part"]),
        worker=str(row["worker"]).rpartition("/")[0],
        since=_moment(int(row["started_at"] or 0)),
        beat=_moment(beat),
        is_silent=not 0 <= now - beat <= SILENT_MS,
        done=int(row["done"] or 0),
        failed=int(row["failed"] or 0),
        error=None if row["error"] is None else str(row["error"]),
    )


def _moment(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
