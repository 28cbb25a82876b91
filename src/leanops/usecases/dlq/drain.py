"""Dead-letter queues: emptied into the archive, drained into dlq_errors, and replayed or discarded from there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

from leanops.domain.errors import LeanOpsError, StateConflictError
from leanops.domain.event.names import queue_name
from leanops.domain.failures import DEAD_LETTERS, Status
from leanops.domain.table.definitions import ERRORS, FAILURE
from leanops.domain.table.history import TableView, expirable
from leanops.domain.words import counted
from leanops.ports.clock import moment
from leanops.ports.files import Files
from leanops.ports.queue import DEAD, MAX_RECEIVES, Queue, dead_letter_queue
from leanops.ports.state import ERROR_TRACKER, Row, Stored
from leanops.ports.tables import Where
from leanops.usecases.ingest.archive import archive, exceeded
from leanops.usecases.leases import Lease, check, held
from leanops.usecases.platform import Platform
from leanops.usecases.retry import Patience
from leanops.usecases.topics.registry import list_topics
from leanops.usecases.workers import DEAD_LETTERS as PART
from leanops.usecases.workers import Tell

LEASE = "dlq/drain"
DEAD_LETTERS_PER_COMMIT = 1_000
MESSAGES_PER_RECEIVE = 500
VISIBILITY_S = 300
PATIENCE_S = 30.0
"""How long a drain or a replay waits for another one."""


@dataclass
class Drained:
    """What a drain did."""

    new: int = 0
    again: int = 0
    """Dead letters that were in dlq_errors before and are open again."""
    commits: int = 0

    @property
    def dead_letters(self) -> int:
        return self.new + self.again


def archive_and_drain(platform: Platform, queue: Queue, files: Files) -> tuple[int, Drained]:
    """Archive what the dead-letter queues hold, then drain; returns the number of archived events and the drain.

    A queue whose dead letters cannot be archived does not stop the others; its failure is raised at the end.
    """
    names = [name.removesuffix(DEAD) for name in queue.ready() if name.endswith(DEAD)]
    topics = {queue_name(topic.name): topic.name for topic in list_topics(platform)} if names else {}
    archived, failures = 0, list[LeanOpsError]()
    for name in names:
        try:
            archived += _archive_all(platform, queue, files, name, topics.get(name, name))
        except LeanOpsError as failure:
            failures.append(failure)
    drained = drain(platform)
    if failures:
        raise failures[0]
    return archived, drained


def _archive_all(platform: Platform, queue: Queue, files: Files, name: str, topic: str) -> int:
    """Archive every event in the dead-letter queue of a queue; returns their number."""
    archived, dead = 0, dead_letter_queue(name)
    while received := queue.receive(dead, MESSAGES_PER_RECEIVE, VISIBILITY_S):
        reason = f"it was received {MAX_RECEIVES} times and never succeeded"
        dead_letters = [dead_letter for message in received for dead_letter in exceeded(topic, message, reason)]
        with platform.durable("archive"):
            archive(dead_letters, files, platform.state, platform.clock)
        queue.delete(dead, [message.receipt for message in received])
        platform.step("after delete")
        archived += len(dead_letters)
    return archived


def turn(platform: Platform, queue: Queue, files: Files, tell: Tell) -> int:
    """Do one turn of the background part; returns the number of dead letters it drained."""
    _, drained = archive_and_drain(platform, queue, files)
    if drained.dead_letters:
        tell(PART, f"{counted(drained.dead_letters, 'dead letter')} drained; see: leanops dlq list")
    return drained.dead_letters


@contextmanager
def alone(platform: Platform) -> Iterator[Lease]:
    """Be the only one who changes dlq_errors; waits for another one, but not for ever."""
    patience = Patience(longest_wait_s=1.0).within(PATIENCE_S)
    with ExitStack() as stack:
        yield patience.persist(lambda: stack.enter_context(held(platform, LEASE)))


def drain(platform: Platform) -> Drained:
    """Move what the error tracker holds into dlq_errors, each occurrence of each dead letter exactly once."""
    result = Drained()
    if next(platform.state.rows(ERROR_TRACKER), None) is None:
        return result
    with alone(platform) as lease:
        platform.catalog.create(platform.rules.databases.dlq_errors, ERRORS)
        noted = platform.state.rows(ERROR_TRACKER)
        while dead_letters := list(islice(noted, DEAD_LETTERS_PER_COMMIT)):
            _move(platform, lease, dead_letters, result)
            with platform.durable("forget dead letters"):
                for dead_letter in dead_letters:
                    _forget(platform, dead_letter)
    return result


def _move(platform: Platform, lease: Lease, dead_letters: Sequence[Stored], result: Drained) -> None:
    """Add, in one commit, the occurrences that are not in the table; if it has changed meanwhile it is read again."""
    rows = [dead_letter.row for dead_letter in dead_letters]
    while True:
        seen = platform.catalog.load(platform.rules.databases.dlq_errors)
        known = errors_like(platform, rows)
        before = [(row, known.get(str(row["error_id"]), {})) for row in rows]
        errors = [_error(row, error) for row, error in before if error.get("batch_id") != row["occurrence"]]
        if not errors:
            return
        again = sum(1 for error in errors if error["error_id"] in known)
        check(platform, lease)
        platform.step("before drain")
        if _commit(platform, seen, errors, again > 0):
            break
    platform.step("after drain")
    result.new += len(errors) - again
    result.again += again
    result.commits += 1


def _commit(platform: Platform, seen: TableView | None, errors: Sequence[Mapping[str, Any]], replaces: bool) -> bool:
    """Whether it was committed; an append must follow the head that was seen, so a lost lease duplicates nothing."""
    table, done = platform.rules.databases.dlq_errors, False
    if replaces:
        return platform.catalog.replace(table, these(errors), errors, only_at=seen.head if seen else None)

    def plan(current: TableView) -> Sequence[int] | None:
        nonlocal done
        done = seen is not None and current.head == seen.head
        return expirable(current) if done else None

    columns = {name: [error[name] for error in errors] for name in ERRORS.columns}
    platform.catalog.land(table, ERRORS, columns, {}, plan)
    return done


def _forget(platform: Platform, dead_letter: Stored) -> None:
    """Delete the note of a dead letter, unless the dead letter has arrived again meanwhile."""
    with suppress(StateConflictError):
        platform.state.delete(ERROR_TRACKER, ERROR_TRACKER.key_of(dead_letter.row), expected=dead_letter.revision)


def these(rows: Sequence[Mapping[str, Any]]) -> Where:
    """A filter for the errors of these rows."""
    return {name: sorted({str(row[name]) for row in rows}) for name in ("topic_name", "error_id")}


def errors_like(platform: Platform, rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows of dlq_errors with the ids of these rows, as they are now, by id."""
    table = platform.rules.databases.dlq_errors
    return {row["error_id"]: row for row in platform.catalog.select(table, list(ERRORS.columns), these(rows))}


def _error(dead_letter: Row, before: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a dead letter; one with a row before is open again."""
    failure = {**dict.fromkeys(FAILURE), "rule": dead_letter["rule"], "message": dead_letter["reason"]}
    published = dead_letter["publish_time"]
    return {
        **dict.fromkeys(ERRORS.columns),
        "error_id": dead_letter["error_id"],
        "topic_name": dead_letter["topic_name"],
        "layer": DEAD_LETTERS,
        "message_id": dead_letter["message_id"],
        "publish_time": None if published is None else moment(0) + timedelta(microseconds=int(published)),
        "failures": [failure],
        "source": dead_letter["source"],
        "batch_id": dead_letter["occurrence"],
        "detected_ts": moment(int(dead_letter["detected_at"] or 0)),
        "status": Status.OPEN.value,
        "attempts": 1 + (before.get("attempts") or 0),
    }
