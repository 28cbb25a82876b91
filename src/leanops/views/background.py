"""Events on their way to RAW, the background parts that bring them there, and the breakers that stop them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any

from leanops.domain.breaker import Breaker, State, breaker_of
from leanops.domain.event.names import queue_name
from leanops.ports.clock import Clock, millis
from leanops.ports.delivery import Waiting
from leanops.ports.queue import Depth
from leanops.ports.state import BREAKERS, ERROR_TRACKER, GONE_MS, SILENT_MS, WORKERS, Row, StateStore
from leanops.views.sources import time_of


@dataclass(frozen=True)
class WorkerStatus:
    """One background part of one process."""

    part: str
    worker: str
    state: str
    """`working`, `failing`, or `silent`: killed, or cut off from the state store."""
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
class BreakerStatus:
    """The breaker of one topic."""

    topic: str
    state: State
    since: datetime | None
    by_hand: bool
    reason: str | None
    succeeded: int
    failed: int


@dataclass(frozen=True)
class Background:
    """Everything before RAW."""

    workers: tuple[WorkerStatus, ...]
    queues: Mapping[str, Depth]
    delivery: Waiting
    undrained: int
    """Dead letters that are not in dlq_errors yet."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Queue → why its circuit breaker is open."""
    now_ms: int = 0
    shortage: str | None = None
    """Why no events are taken in."""

    @property
    def queued(self) -> int:
        return sum(depth.messages for depth in self.queues.values())

    def oldest_s(self, queue: str) -> int | None:
        """Seconds since the oldest message of a queue was sent; None if the queue does not know."""
        oldest_ms = self.queues[queue].oldest_ms
        return None if oldest_ms is None else max(0, (self.now_ms - oldest_ms) // 1000)

    def as_json(self) -> dict[str, Any]:
        """The fields; queues have the age of their oldest message, delivery what waits and what is landing."""
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
    """Every worker seen within the hour, and what waits before RAW."""
    now = millis(clock())
    seen = [stored.row for stored in state.rows(WORKERS) if now - int(stored.row["beat_at"] or 0) < GONE_MS]
    workers = sorted((_worker(row, now) for row in seen), key=attrgetter("worker"))
    undrained = sum(1 for _ in state.rows(ERROR_TRACKER))
    stopped = {queue: b.reason or "by hand" for queue, b in _breakers(state).items() if b.state is not State.CLOSED}
    return Background(tuple(workers), queues, delivery, undrained, stopped, now, shortage)


def _worker(row: Row, now: int) -> WorkerStatus:
    beat = int(row["beat_at"] or 0)
    error = None if row["error"] is None else str(row["error"])
    return WorkerStatus(
        part=str(row["part"]),
        worker=str(row["worker"]).rpartition("/")[0],
        state="silent" if not 0 <= now - beat <= SILENT_MS else "failing" if error else "working",
        since=time_of(int(row["started_at"] or 0)),
        beat=time_of(beat),
        done=int(row["done"] or 0),
        failed=int(row["failed"] or 0),
        error=error,
        doing=None if row["doing"] is None else str(row["doing"]),
        doing_since=None if row["doing_since"] is None else time_of(int(row["doing_since"])),
    )


def breakers(state: StateStore, topics: Iterable[str]) -> list[BreakerStatus]:
    """The breaker of every topic, open ones first; a queue without a topic has its own name."""
    names = {queue_name(topic): topic for topic in topics}
    known = _breakers(state)
    every = [_breaker(names.get(queue, queue), known.get(queue, Breaker())) for queue in {**names, **known}]
    return sorted(every, key=lambda status: (status.state is State.CLOSED, status.topic))


def _breakers(state: StateStore) -> dict[str, Breaker]:
    return {str(stored.row["queue"]): breaker_of(stored.row) for stored in state.rows(BREAKERS)}


def _breaker(topic: str, breaker: Breaker) -> BreakerStatus:
    since = time_of(breaker.changed_at) if breaker.changed_at else None
    return BreakerStatus(topic, breaker.state, since, breaker.forced, breaker.reason, breaker.succeeded, breaker.failed)
