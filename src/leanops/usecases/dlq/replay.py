"""Dead letters sent into their queues again, or put away for good."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from leanops.domain.errors import FilesUnavailableError, LeanOpsError, UsageError
from leanops.domain.event.envelope import Envelope, envelopes_in
from leanops.domain.event.names import check_topic, queue_name
from leanops.domain.failures import Status
from leanops.domain.table.definitions import ERRORS
from leanops.ports.files import Files
from leanops.ports.queue import Outgoing, Queue
from leanops.ports.state import IDEMPOTENCY_KEYS
from leanops.ports.tables import StartsWith
from leanops.usecases.audit import record_action
from leanops.usecases.dlq.drain import alone, these
from leanops.usecases.ingest.pack import messages
from leanops.usecases.ingest.repeats import repeat_key
from leanops.usecases.leases import check
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import list_topics

DEAD_LETTERS_PER_COMMIT = 500
LONGEST_TURN_S = 20.0
"""With a rate, so long at most is sent before what was sent is marked and others may change the table."""
MESSAGES_PER_SEND = 50
TRIES = 5
_HEX = re.compile(r"[0-9a-f]{6,32}")

Row = dict[str, Any]


class Outcome(StrEnum):
    """What became of one dead letter."""

    REPLAYED = "replayed"
    DISCARDED = "discarded"
    WAITING = "would be done"
    MISSING_FILE = "missing file"
    NOT_REGISTERED = "not registered"
    TOO_LARGE = "too large for the queue"
    NOT_TAKEN = "not taken by the queue"
    CLOSED = "already replayed or discarded"


@dataclass(frozen=True)
class Selection:
    """Which dead letters; without an id only open ones, the oldest first."""

    topic: str | None = None
    rule: str | None = None
    error_id: str | None = None
    """The whole id or its first characters."""
    limit: int | None = None
    newest: bool = False


@dataclass(frozen=True)
class Done:
    """One dead letter and what became of it."""

    error_id: str
    topic: str
    message_id: str
    outcome: Outcome


def selected(platform: Platform, selection: Selection) -> list[Row]:
    """The rows of dlq_errors that are meant."""
    where: dict[str, object] = {}
    if selection.topic is not None:
        where["topic_name"] = check_topic(selection.topic)
    if selection.error_id is None:
        where["status"] = Status.OPEN.value
    elif _HEX.fullmatch(selection.error_id):
        where["error_id"] = StartsWith(selection.error_id)
    else:
        raise UsageError(f"{selection.error_id!r} is not an error id; see them with: leanops dlq list")
    table = platform.rules.databases.dlq_errors
    rows = platform.catalog.select(table, list(ERRORS.columns), where)
    if selection.error_id is not None and not rows:
        raise UsageError(f"there is no dead letter {selection.error_id!r}; see them with: leanops dlq list")
    fitting = [row for row in rows if selection.rule in (None, *(failure["rule"] for failure in row["failures"]))]
    fitting.sort(key=lambda row: (row["detected_ts"], row["error_id"]), reverse=selection.newest)
    return fitting[: selection.limit]


@dataclass(frozen=True)
class Pace:
    """How fast dead letters are sent: so many a second, or as fast as the queue takes them."""

    per_second: float | None = None
    sleep: Callable[[float], object] = time.sleep

    @property
    def turn(self) -> int:
        """Letters between two commits."""
        if self.per_second is None:
            return DEAD_LETTERS_PER_COMMIT
        return max(1, min(DEAD_LETTERS_PER_COMMIT, int(self.per_second * LONGEST_TURN_S)))

    @property
    def piece(self) -> int:
        """Letters in one send."""
        return max(1, min(MESSAGES_PER_SEND, int(self.per_second or MESSAGES_PER_SEND)))

    def wait(self, sent: int) -> None:
        """Wait for as long as this many dead letters are to take."""
        if self.per_second is not None and sent:
            self.sleep(sent / self.per_second)


def replay(
    platform: Platform,
    queue: Queue,
    files: Files,
    selection: Selection,
    *,
    dry_run: bool = False,
    pace: Pace | None = None,
    progress: Callable[[int], None] = lambda _count: None,
) -> list[Done]:
    """Send the dead letters into the queues of their topics; each is marked once the queue has it, and not sent again.

    Only a kill between the two sends a dead letter twice, which is then a duplicate by its message_id.
    """
    done: list[Done] = []
    speed, rows = pace or Pace(), selected(platform, selection)
    turns = _Replay(platform, queue, files, {topic.name for topic in list_topics(platform)}, speed)
    with _audited(platform, "dlq replay", [] if dry_run else rows, done):
        for dead_letters in _batched(rows, speed.turn):
            done += turns.try_out(dead_letters) if dry_run else turns.send(dead_letters)
            progress(len(done))
    return done


def discard(platform: Platform, selection: Selection, *, dry_run: bool = False) -> list[Done]:
    """Mark the dead letters as put away for good; their rows and files stay."""
    done: list[Done] = []
    rows = selected(platform, selection)
    with _audited(platform, "dlq discard", [] if dry_run else rows, done):
        for dead_letters in _batched(rows, DEAD_LETTERS_PER_COMMIT):
            if dry_run:
                done += [_done(row, Outcome.WAITING if _is_open(row) else Outcome.CLOSED) for row in dead_letters]
                continue
            with alone(platform) as lease:
                still = _still_open(platform, dead_letters)
                check(platform, lease)
                _mark(platform, list(still.values()), Status.DISCARDED)
            done += [
                _done(row, Outcome.DISCARDED if row["error_id"] in still else Outcome.CLOSED) for row in dead_letters
            ]
    return done


@contextmanager
def _audited(platform: Platform, action: str, rows: Sequence[Row], done: Sequence[Done]) -> Iterator[None]:
    """Put on record what became of open dead letters, also where it is interrupted."""
    topics = sorted({row["topic_name"] for row in rows if _is_open(row)})
    try:
        yield
    except LeanOpsError:
        record_action(platform, action, topics, {"dead_letters": "interrupted; see status_ts in dlq_errors"})
        raise
    record_action(platform, action, topics, Counter(one.outcome.value for one in done))


@dataclass(frozen=True)
class _Replay:
    """What one replay works with."""

    platform: Platform
    queue: Queue
    files: Files
    registered: set[str]
    pace: Pace

    def try_out(self, dead_letters: Sequence[Row]) -> list[Done]:
        """What would become of the dead letters."""
        return [_done(row, self._obstacle(row) or Outcome.WAITING) for row in dead_letters]

    def send(self, dead_letters: Sequence[Row]) -> list[Done]:
        """Send what is still open, and mark it."""
        with alone(self.platform) as lease:
            rows = _still_open(self.platform, dead_letters)
            outcomes = {row["error_id"]: self._obstacle(row) or Outcome.NOT_TAKEN for row in rows.values()}
            ready = [row for row in rows.values() if outcomes[row["error_id"]] is Outcome.NOT_TAKEN]
            check(self.platform, lease)
            outcomes |= dict.fromkeys(self._sent(ready), Outcome.REPLAYED)
        return [_done(row, outcomes.get(row["error_id"], Outcome.CLOSED)) for row in dead_letters]

    def _sent(self, waiting: Sequence[Row]) -> list[str]:
        """The ids of the dead letters the queue has taken; all are marked, even if it stops answering half-way."""
        taken: list[Row] = []
        try:
            for piece in _batched(waiting, self.pace.piece):
                with self.platform.durable("send"):
                    taken += self._taken(piece)
                self.pace.wait(len(piece))
        except (Exception, KeyboardInterrupt):
            _mark(self.platform, taken, Status.REPLAYED)
            raise
        _mark(self.platform, taken, Status.REPLAYED)
        return [row["error_id"] for row in taken]

    def _taken(self, piece: Sequence[Row]) -> list[Row]:
        for row in piece:
            self._forget_delivery(row)
        left = [(row, self._message(row)) for row in piece]
        for _ in range(TRIES):
            left = [left[position] for position in self.queue.send([message for _, message in left])]
            if not left:
                break
        refused = {row["error_id"] for row, _ in left}
        return [row for row in piece if row["error_id"] not in refused]

    def _forget_delivery(self, row: Row) -> None:
        """Or the processor would drop as a repeat what it once delivered and no table took."""
        key = (repeat_key(queue_name(row["topic_name"]), row["message_id"]),)
        stored = self.platform.state.get(IDEMPOTENCY_KEYS, key)
        if stored:
            self.platform.state.delete(IDEMPOTENCY_KEYS, key, expected=stored.revision)

    def _obstacle(self, row: Row) -> Outcome | None:
        """Why a dead letter cannot be sent."""
        if not _is_open(row):
            return Outcome.CLOSED
        if row["topic_name"] not in self.registered:
            return Outcome.NOT_REGISTERED
        body = self.files.get(row["source"])
        if body is None:
            return Outcome.MISSING_FILE
        fits = len(body) <= self.queue.max_bytes or _envelopes(body)
        return None if fits else Outcome.TOO_LARGE

    def _message(self, row: Row) -> Outgoing:
        """The dead letter as it was archived; one put back together from a claim check goes by claim check again."""
        body = self.files.get(row["source"])
        if body is None:
            raise FilesUnavailableError(f"the file {row['source']} was there a moment ago; try again")
        if len(body) > self.queue.max_bytes:
            claimed, _ = next(messages(self.queue, self.files, self.platform.clock, _envelopes(body)))
            body = claimed.body
        return Outgoing(queue_name(row["topic_name"]), body)


def _envelopes(body: bytes) -> list[Envelope]:
    return [found for found in envelopes_in(body) if isinstance(found, Envelope)]


def _still_open(platform: Platform, dead_letters: Sequence[Row]) -> dict[str, Row]:
    """The rows as they are now, those that someone else has not dealt with meanwhile."""
    table = platform.rules.databases.dlq_errors
    found = platform.catalog.select(table, list(ERRORS.columns), these(dead_letters))
    return {row["error_id"]: row for row in found if _is_open(row)}


def _is_open(row: Row) -> bool:
    return bool(row["status"] == Status.OPEN.value)


def _mark(platform: Platform, rows: Sequence[Row], status: Status) -> None:
    if not rows:
        return
    marked = [{**row, "status": status.value, "status_ts": platform.clock()} for row in rows]
    with platform.durable("mark"):
        platform.catalog.replace(platform.rules.databases.dlq_errors, these(marked), marked)


def _done(row: Row, outcome: Outcome) -> Done:
    return Done(row["error_id"], row["topic_name"], row["message_id"], outcome)


def _batched(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
