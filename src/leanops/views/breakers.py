"""Circuit breakers as people look at them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from leanops.domain.breaker import Breaker, State, breaker_of
from leanops.domain.event.names import queue_name
from leanops.ports.state import BREAKERS, StateStore


@dataclass(frozen=True)
class BreakerStatus:
    """The breaker of one topic."""

    topic: str
    breaker: Breaker

    @property
    def since(self) -> datetime | None:
        changed = self.breaker.changed_at
        return datetime.fromtimestamp(changed / 1000, UTC) if changed else None

    def as_json(self) -> dict[str, Any]:
        """The form `breaker show --json` prints."""
        found = self.breaker
        return {
            "topic": self.topic,
            "state": found.state,
            "since": self.since,
            "by_hand": found.forced,
            "reason": found.reason,
            "succeeded": found.succeeded,
            "failed": found.failed,
        }


def breakers(state: StateStore, topics: Iterable[str]) -> list[BreakerStatus]:
    """Every topic's breaker, those that stop something first; a queue of no topic is called by its own name."""
    names = {queue_name(topic): topic for topic in topics}
    kept = {str(stored.row["queue"]): breaker_of(stored.row) for stored in state.rows(BREAKERS)}
    found = [BreakerStatus(names.get(queue, queue), kept.get(queue, Breaker())) for queue in {**names, **kept}]
    return sorted(found, key=lambda one: (one.breaker.state is State.CLOSED, one.topic))
