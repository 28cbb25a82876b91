"""The circuit breaker of every topic."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from leanops.domain.breaker import Breaker, State, breaker_of
from leanops.domain.event.names import queue_name
from leanops.ports.state import BREAKERS, StateStore
from leanops.views.sources import time_of


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


def breakers(state: StateStore, topics: Iterable[str]) -> list[BreakerStatus]:
    """The breaker of every topic, open ones first; a queue without a topic has its own name."""
    names = {queue_name(topic): topic for topic in topics}
    kept = {str(stored.row["queue"]): breaker_of(stored.row) for stored in state.rows(BREAKERS)}
    every = [_status(names.get(queue, queue), kept.get(queue, Breaker())) for queue in {**names, **kept}]
    return sorted(every, key=lambda status: (status.state is State.CLOSED, status.topic))


def _status(topic: str, breaker: Breaker) -> BreakerStatus:
    since = time_of(breaker.changed_at) if breaker.changed_at else None
    return BreakerStatus(topic, breaker.state, since, breaker.forced, breaker.reason, breaker.succeeded, breaker.failed)
