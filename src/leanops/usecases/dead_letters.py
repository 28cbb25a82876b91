"""Dead letters: events that cannot go on, archived as they are and noted in the state store until they are drained."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from leanops.domain.envelope import encoded
from leanops.domain.errors import StateConflictError
from leanops.domain.failures import Rule, error_id
from leanops.domain.records import Unroutable, envelope_again
from leanops.ports.clock import Clock, millis
from leanops.ports.files import Files
from leanops.ports.state import ERROR_TRACKER, Row, StateStore

LAYER = "dlq"
NO_TOPIC = "unknown"


@dataclass(frozen=True)
class DeadLetter:
    """An event that cannot go on; `body` is a queue message that would bring it back."""

    topic: str
    body: bytes
    rule: Rule
    reason: str
    message_id: str | None = None
    publish_time: int | None = None

    @property
    def name(self) -> str:
        """The message id, or one made of the bytes."""
        return self.message_id or f"body-{sha256(self.body).hexdigest()[:16]}"


def unroutable(found: Unroutable) -> DeadLetter:
    """A record that no table takes, as the queue message that would bring it back."""
    again = envelope_again(found.record)
    if again is None:
        return DeadLetter(found.topic or NO_TOPIC, found.record, Rule.UNROUTABLE, found.reason)
    return DeadLetter(again.topic, encoded(again), Rule.UNROUTABLE, found.reason, again.message_id, again.publish_time)


def bury(letters: Sequence[DeadLetter], files: Files, state: StateStore, clock: Clock) -> None:
    """Archive the letters and note each, once however often it comes."""
    now = clock()
    for letter in letters:
        identity = error_id(LAYER, letter.topic, letter.name)
        file = f"dlq/{letter.topic}/{now:%Y-%m-%d}/{identity}.json"
        files.put(file, letter.body)
        row: Row = {
            "error_id": identity,
            "occurrence": secrets.token_hex(8),
            "topic_name": letter.topic,
            "message_id": letter.name,
            "publish_time": letter.publish_time,
            "rule": letter.rule.value,
            "reason": letter.reason,
            "source": file,
            "detected_at": millis(now),
        }
        stored = state.get(ERROR_TRACKER, (identity,))
        try:
            state.put(ERROR_TRACKER, row, expected=stored.revision if stored else None)
        except StateConflictError:
            continue  # the same letter was noted by another worker just now
