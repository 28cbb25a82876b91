"""Dead letters: events that cannot get to RAW, archived as they are and noted in the state store until drained."""

import secrets
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256

from leanops.domain.errors import InvalidTopicError, RetryableError, StateConflictError
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
from leanops.ports.files import ARCHIVE, Files
from leanops.ports.queue import Received
from leanops.ports.state import ERROR_TRACKER, Row, StateStore
from leanops.usecases.retry import Patience

NO_TOPIC = "unknown"
LONGEST_REASON = 1_000
PROGRESS = f"{ARCHIVE}progress/"
"""How much of each source is archived; a chunk is archived before its end is written here."""
CHUNK_SIZE = 500
THREADS = 16


@dataclass(frozen=True)
class DeadLetter:
    """An event that cannot get to RAW; `body` is a queue message that would bring it back."""

    topic: str
    body: bytes
    rule: Rule
    reason: str
    message_id: str | None = None
    publish_time: int | None = None

    @classmethod
    def of(cls, topic: str, event: Envelope | BadEnvelope, rule: Rule, reason: str) -> "DeadLetter":
        """The dead letter of an event in a queue of the topic."""
        if isinstance(event, BadEnvelope):
            return cls(topic, event.body, rule, reason, event.message_id)
        return cls(topic, encoded(event), rule, reason, event.message_id, event.publish_time)

    @property
    def name(self) -> str:
        """The message id, or one made of the bytes."""
        return self.message_id or f"body-{sha256(self.body).hexdigest()[:16]}"

    @property
    def folder(self) -> str:
        """The topic; if its name is not valid, a name that is safe in file names and filters."""
        try:
            return check_topic(self.topic)
        except InvalidTopicError:
            return queue_name(self.topic) or NO_TOPIC


def unroutable(record: Unroutable) -> DeadLetter:
    """The dead letter of a record that no table takes."""
    try:
        envelope = envelope_again(record.record)
    except ValueError:  # its attributes are not JSON
        envelope = None
    if envelope is None:
        return DeadLetter(record.topic or NO_TOPIC, record.record, Rule.UNROUTABLE, record.reason)
    return DeadLetter.of(envelope.topic, envelope, Rule.UNROUTABLE, record.reason)


def exceeded(topic: str, message: Received, reason: str) -> list[DeadLetter]:
    """The dead letters of a message that failed too often, one for each event."""
    return [DeadLetter.of(topic, event, Rule.RECEIVES_EXCEEDED, reason) for event in envelopes_in(message.body)]


def archive(dead_letters: Sequence[DeadLetter], files: Files, state: StateStore, clock: Clock) -> None:
    """Archive the dead letters and note each, once however often it arrives."""
    now = clock()
    for dead_letter in dead_letters:
        row = _row(dead_letter, now)
        files.put(str(row["source"]), dead_letter.body)
        _note(state, row)


def _row(dead_letter: DeadLetter, now: datetime) -> Row:
    identity = error_id(DEAD_LETTERS, dead_letter.folder, dead_letter.name)
    published, content = dead_letter.publish_time, sha256(dead_letter.body).hexdigest()[:8]
    return {
        "error_id": identity,
        "occurrence": secrets.token_hex(8),
        "topic_name": dead_letter.folder,
        "message_id": dead_letter.name[:LONGEST_ID],
        "publish_time": published if published is not None and EARLIEST_MICROS <= published <= LATEST_MICROS else None,
        "rule": dead_letter.rule.value,
        "reason": dead_letter.reason[:LONGEST_REASON],
        # Of two dead letters that claim one message id, both are kept.
        "source": f"{ARCHIVE}{dead_letter.folder}/{now:%Y-%m-%d}/{identity}-{content}.json",
        "detected_at": millis(now),
    }


def _note(state: StateStore, row: Row) -> None:
    """Write the row over an earlier one of its id; after a conflict that one is read again."""
    while True:
        stored = state.get(ERROR_TRACKER, (str(row["error_id"]),))
        with suppress(StateConflictError):
            state.put(ERROR_TRACKER, row, expected=stored.revision if stored else None)
            return


@dataclass(frozen=True)
class ChunkedArchive:
    """The archive of dead letters for sources that a single call may not finish."""

    files: Files
    state: StateStore
    clock: Clock
    patience: Patience = field(default_factory=Patience)
    chunk_size: int = CHUNK_SIZE

    def archive_message(self, identity: str, dead_letters: Sequence[DeadLetter]) -> int:
        """Archive the events that are left of a message; returns their number.

        Raises RetryableError when time is up; the next call continues after the last whole chunk. A message of one
        chunk needs no marker: it is deleted, or arrives again as a whole.
        """
        size = self.chunk_size
        marker = marker_of(identity) if len(dead_letters) > size else None
        starts = range(self.position(marker) if marker else 0, len(dead_letters), size)
        return self.archive_chunks(marker, ((dead_letters[start : start + size], start + size) for start in starts))

    def archive_chunks(self, marker: str | None, chunks: Iterable[tuple[Sequence[DeadLetter], int]]) -> int:
        """Archive each chunk and write its end to the marker; returns the number of dead letters."""
        archived = 0
        with ThreadPoolExecutor(THREADS, thread_name_prefix="archive") as pool:
            for dead_letters, end in chunks:
                # At least one chunk a call, so that the last one is reached however little time a call has.
                if archived and self.patience.give_up():
                    raise RetryableError(f"{archived} records are archived; the next call continues")
                list(pool.map(self._archive, dead_letters))
                if marker:
                    self.patience.persist(partial(self.files.put, marker, str(end).encode()))
                archived += len(dead_letters)
        return archived

    def position(self, marker: str) -> int:
        """Where to continue."""
        return int(self.patience.persist(lambda: self.files.get(marker)) or 0)

    def _archive(self, dead_letter: DeadLetter) -> None:
        self.patience.persist(lambda: archive([dead_letter], self.files, self.state, self.clock))


def marker_of(identity: str) -> str:
    """The file that says how much of a source is archived."""
    return PROGRESS + sha256(identity.encode()).hexdigest()
