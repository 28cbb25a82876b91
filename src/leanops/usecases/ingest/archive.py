"""Dead letters: events that cannot go on, archived as they are and noted in the state store until they are drained."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from leanops.domain.errors import InvalidTopicError, StateConflictError
from leanops.domain.event.envelope import (
    EARLIEST_MICROS,
    LATEST_MICROS,
    LONGEST_ID,
    BadEnvelope,
    Envelope,
    encoded,
    envelopes_in,
)
from leanops.domain.event.names import check_topic, queue_name
from leanops.domain.event.record import Unroutable, envelope_again
from leanops.domain.failures import DEAD_LETTERS, Rule, error_id
from leanops.ports.clock import Clock, millis
from leanops.ports.files import Files
from leanops.ports.queue import Received
from leanops.ports.state import ERROR_TRACKER, Row, StateStore

NO_TOPIC = "unknown"
LONGEST_REASON = 1_000


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

    @property
    def folder(self) -> str:
        """The topic; where an event names what is none, something that is safe in file names and filters."""
        try:
            return check_topic(self.topic)
        except InvalidTopicError:
            return queue_name(self.topic) or NO_TOPIC


def unroutable(found: Unroutable) -> DeadLetter:
    """A record that no table takes, as the queue message that would bring it back."""
    try:
        again = envelope_again(found.record)
    except ValueError:  # its attributes are no JSON
        again = None
    if again is None:
        return DeadLetter(found.topic or NO_TOPIC, found.record, Rule.UNROUTABLE, found.reason)
    return DeadLetter(again.topic, encoded(again), Rule.UNROUTABLE, found.reason, again.message_id, again.publish_time)


def exceeded(topic: str, message: Received, reason: str) -> list[DeadLetter]:
    """The dead letters of a message that failed too often, one for each event."""
    return [_exceeded(topic, found, reason) for found in envelopes_in(message.body)]


def _exceeded(topic: str, found: Envelope | BadEnvelope, reason: str) -> DeadLetter:
    if isinstance(found, BadEnvelope):
        return DeadLetter(topic, found.body, Rule.RECEIVES_EXCEEDED, reason, found.message_id)
    return DeadLetter(topic, encoded(found), Rule.RECEIVES_EXCEEDED, reason, found.message_id, found.publish_time)


def archive(dead_letters: Sequence[DeadLetter], files: Files, state: StateStore, clock: Clock) -> None:
    """Archive the dead letters and note each, once however often it comes."""
    now = clock()
    for dead_letter in dead_letters:
        row = _row(dead_letter, now)
        files.put(str(row["source"]), dead_letter.body)
        _note(state, row)


def _row(dead_letter: DeadLetter, now: datetime) -> Row:
    identity = error_id(DEAD_LETTERS, dead_letter.folder, dead_letter.name)
    published = dead_letter.publish_time
    return {
        "error_id": identity,
        "occurrence": secrets.token_hex(8),
        "topic_name": dead_letter.folder,
        "message_id": dead_letter.name[:LONGEST_ID],
        "publish_time": published if published is not None and EARLIEST_MICROS <= published <= LATEST_MICROS else None,
        "rule": dead_letter.rule.value,
        "reason": dead_letter.reason[:LONGEST_REASON],
        # Of two dead letters that claim one message id, both are kept.
        "source": f"dlq/{dead_letter.folder}/{now:%Y-%m-%d}/{identity}-{sha256(dead_letter.body).hexdigest()[:8]}.json",
        "detected_at": millis(now),
    }


def _note(state: StateStore, row: Row) -> None:
    """Write the row over an earlier one of its id; one that meanwhile was drained or renewed is read again."""
    while True:
        stored = state.get(ERROR_TRACKER, (str(row["error_id"]),))
        try:
            state.put(ERROR_TRACKER, row, expected=stored.revision if stored else None)
        except StateConflictError:
            continue
        return
