"""The registered topics for a process without a platform: read every minute, and looked up when one is new."""

from dataclasses import dataclass, field

from leanops.domain.errors import InvalidTopicError, LeanOpsError
from leanops.domain.event.names import check_topic, queue_name
from leanops.ports.clock import Clock, millis
from leanops.ports.state import SCHEMA_REGISTRY, StateStore

FRESH_MS = 60_000
UNKNOWN_MS = 5_000


def topic_names(state: StateStore) -> list[str]:
    """Every registered topic, by name."""
    return sorted(str(stored.row["topic_name"]) for stored in state.rows(SCHEMA_REGISTRY))


@dataclass
class Registered:
    """A container of topic names; if the state store fails, the names read before are used."""

    state: StateStore
    clock: Clock
    _names: set[str] | None = None
    _read_at: int = 0
    _unknown: dict[str, int] = field(default_factory=dict)
    _failed_at: int = -UNKNOWN_MS

    def __contains__(self, topic: object) -> bool:
        return topic in self._known() or (isinstance(topic, str) and self._was_added(topic))

    def topic_of(self, queue: str) -> str:
        """The topic of a queue; the queue's own name if none is registered."""
        return next((name for name in self._known() if queue_name(name) == queue), queue)

    def _known(self) -> set[str]:
        now = millis(self.clock())
        if self._names is not None and 0 <= now - self._read_at < FRESH_MS:
            return self._names
        try:
            self._names = set(topic_names(self.state))
        except LeanOpsError:
            if self._names is None:
                raise
        self._read_at = now
        return self._names

    def _was_added(self, topic: str) -> bool:
        """Whether the topic was registered since the last read; a no is kept for some seconds.

        It is also no if the state store fails: one dead letter must not fail all other records.
        """
        now = millis(self.clock())
        if 0 <= now - max(self._unknown.get(topic, -UNKNOWN_MS), self._failed_at) < UNKNOWN_MS:
            return False
        try:
            stored = self.state.get(SCHEMA_REGISTRY, (check_topic(topic),))
        except InvalidTopicError:
            return False
        except LeanOpsError:
            self._failed_at = now
            return False
        if stored is not None:
            self._known().add(topic)
            return True
        if len(self._unknown) >= 10_000:
            self._unknown.clear()
        self._unknown[topic] = now
        return False
