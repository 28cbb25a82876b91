"""Dead letters sent into their queues again, or marked as discarded."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from leanops.domain.errors import FilesUnavailableError, LeanOpsError, UsageError
from leanops.domain.event.envelope import Envelope, envelopes_in
from leanops.domain.event.names import check_topic, queue_name
from leanops.domain.failures import Status, is_error_id
from leanops.domain.groups import batched
from leanops.domain.table.definitions import ERRORS
from leanops.ports.files import Files
from leanops.ports.queue import Outgoing, Queue
from leanops.ports.state import IDEMPOTENCY_KEYS
from leanops.ports.tables import StartsWith
from leanops.usecases.audit import record_action
from leanops.usecases.dlq.drain import alone, errors_like, these
from leanops.usecases.ingest.pack import messages, send_patiently
from leanops.usecases.ingest.process import repeat_key
from leanops.usecases.leases import check
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import list_topics

DEAD_LETTERS_PER_COMMIT = 500
LONGEST_TURN_S = 20.0
"""With a rate, how long is sent at most before the sent ones are marked and others may change the table."""
MESSAGES_PER_SEND = 50

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
    """The rows of dlq_errors that are selected."""
    where: dict[str, object] = {}
    if selection.topic is not None:
        where["topic_name"] = check_topic(selection.topic)
    if selection.error_id is None:
        where["status"] = Status.OPEN.value
    elif is_error_id(selection.error_id):
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
    """How fast dead letters are sent: N a second, or as fast as the queue takes them."""

    per_second: float | None = None
    sleep: Callable[[float], object] = time.sleep

    @property
    def turn(self) -> int:
        """Dead letters between two commits."""
        return max(1, int(min(DEAD_LETTERS_PER_COMMIT, (self.per_second or math.inf) * LONGEST_TURN_S)))

    @property
    def piece(self) -> int:
        """Dead letters in one send."""
        return max(1, int(min(MESSAGES_PER_SEND, self.per_second or math.inf)))

    def wait(self, sent: int) -> None:
        """Wait for as long as sending this many dead letters should take."""
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
) -> list[Done]:
    """Send the dead letters into the queues of their topics; each is marked once the queue has it, and not sent again.

    Only a kill between the two sends a dead letter twice, which is then a duplicate by its message_id.
    """
    speed, registered = pace or Pace(), {topic.name for topic in list_topics(platform)}
    sending = _Replay(platform, queue, files, registered, speed)
    work = _Work("dlq replay", Outcome.REPLAYED, sending.obstacle, sending.send, speed.turn)
    return _carry_out(platform, selection, work, dry_run)


def discard(platform: Platform, selection: Selection, *, dry_run: bool = False) -> list[Done]:
    """Mark the dead letters as discarded; their rows and files stay."""

    def mark(rows: Sequence[Row]) -> Sequence[Row]:
        _mark(platform, rows, Status.DISCARDED)
        return rows

    return _carry_out(platform, selection, _Work("dlq discard", Outcome.DISCARDED, lambda _row: None, mark), dry_run)


@dataclass(frozen=True)
class _Work:
    """What is done with dead letters."""

    action: str
    outcome: Outcome
    """What becomes of the dead letters that `finish` returns."""
    obstacle: Callable[[Row], Outcome | None]
    finish: Callable[[Sequence[Row]], Sequence[Row]]
    per_commit: int = DEAD_LETTERS_PER_COMMIT


def _carry_out(platform: Platform, selection: Selection, work: _Work, dry_run: bool) -> list[Done]:
    """Do the work, or only look for obstacles, and put on record what became of open dead letters."""
    rows, done = selected(platform, selection), list[Done]()
    topics = sorted({row["topic_name"] for row in rows if _is_open(row) and not dry_run})
    try:
        for dead_letters in batched(rows, work.per_commit):
            outcomes = _tried_out(dead_letters, work) if dry_run else _finished(platform, dead_letters, work)
            for row in dead_letters:
                outcome = outcomes.get(row["error_id"], Outcome.CLOSED)
                done.append(Done(row["error_id"], row["topic_name"], row["message_id"], outcome))
    except LeanOpsError:
        record_action(platform, work.action, topics, {"dead_letters": "interrupted; see status_ts in dlq_errors"})
        raise
    record_action(platform, work.action, topics, Counter(dead_letter.outcome.value for dead_letter in done))
    return done


def _tried_out(rows: Iterable[Row], work: _Work, otherwise: Outcome = Outcome.WAITING) -> dict[str, Outcome]:
    """The obstacle of each open dead letter, by its id."""
    return {row["error_id"]: work.obstacle(row) or otherwise for row in rows if _is_open(row)}


def _finished(platform: Platform, dead_letters: Sequence[Row], work: _Work) -> dict[str, Outcome]:
    """Do the work on the dead letters that are still open."""
    with alone(platform) as lease:
        rows = errors_like(platform, dead_letters)
        outcomes = _tried_out(rows.values(), work, Outcome.NOT_TAKEN)
        ready = [rows[name] for name, outcome in outcomes.items() if outcome is Outcome.NOT_TAKEN]
        check(platform, lease)
        finished = work.finish(ready)
    return outcomes | {row["error_id"]: work.outcome for row in finished}


@dataclass(frozen=True)
class _Replay:
    """What one replay works with."""

    platform: Platform
    queue: Queue
    files: Files
    registered: set[str]
    pace: Pace

    def send(self, waiting: Sequence[Row]) -> Sequence[Row]:
        """Send and mark dead letters; those the queue has taken are marked even if it stops answering half-way."""
        taken: list[Row] = []
        try:
            for piece in batched(waiting, self.pace.piece):
                with self.platform.durable("send"):
                    taken += self._taken(piece)
                self.pace.wait(len(piece))
        except (Exception, KeyboardInterrupt):
            _mark(self.platform, taken, Status.REPLAYED)
            raise
        _mark(self.platform, taken, Status.REPLAYED)
        return taken

    def _taken(self, piece: Sequence[Row]) -> list[Row]:
        for row in piece:
            self._forget_delivery(row)
        refused = send_patiently(self.queue, [self._message(row) for row in piece])
        return [row for position, row in enumerate(piece) if position not in refused]

    def _forget_delivery(self, row: Row) -> None:
        """Forget that the event was delivered once and no table took it; the processor would drop it as a repeat."""
        key = (repeat_key(queue_name(row["topic_name"]), row["message_id"]),)
        stored = self.platform.state.get(IDEMPOTENCY_KEYS, key)
        if stored:
            self.platform.state.delete(IDEMPOTENCY_KEYS, key, expected=stored.revision)

    def obstacle(self, row: Row) -> Outcome | None:
        """Why an open dead letter cannot be sent."""
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
            raise FilesUnavailableError(f"the file {row['source']} existed a moment ago; try again")
        if len(body) > self.queue.max_bytes:
            claimed, _ = next(messages(self.queue, self.files, self.platform.clock, _envelopes(body)))
            body = claimed.body
        return Outgoing(queue_name(row["topic_name"]), body)


def _envelopes(body: bytes) -> list[Envelope]:
    return [envelope for envelope in envelopes_in(body) if isinstance(envelope, Envelope)]


def _is_open(row: Row) -> bool:
    return bool(row["status"] == Status.OPEN.value)


def _mark(platform: Platform, rows: Sequence[Row], status: Status) -> None:
    if not rows:
        return
    marked = [{**row, "status": status.value, "status_ts": platform.clock()} for row in rows]
    with platform.durable("mark"):
        platform.catalog.replace(platform.rules.databases.dlq_errors, these(marked), marked)
