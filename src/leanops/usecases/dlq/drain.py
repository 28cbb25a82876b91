"""Dead-letter queues: emptied into the archive, drained into dlq_errors, and replayed or discarded from there."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from leanops.domain.errors import LeanOpsError, StateConflictError
from leanops.domain.event.names import queue_name
from leanops.domain.failures import DEAD_LETTERS, Status
from leanops.domain.table.definitions import ERRORS, FAILURE
from leanops.domain.table.history import TableView, expirable
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
KEPT_SNAPSHOTS = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Drained:
    """What a drain did."""

    new: int = 0
    again: int = 0
    """Letters that were in dlq_errors before and are open once more."""
    commits: int = 0

    @property
    def dead_letters(self) -> int:
        return self.new + self.again


def process(
    platform: Platform, queue: Queue, files: Files, names: Iterable[str], topic_of: Callable[[str], str]
) -> int:
    """Archive every event in the dead-letter queues of these queues; how many there were."""
    archived = 0
    for name in names:
        topic, dead = topic_of(name), dead_letter_queue(name)
        while received := queue.receive(dead, MESSAGES_PER_RECEIVE, VISIBILITY_S):
            reason = f"it was received {MAX_RECEIVES} times and never succeeded"
            dead_letters = [letter for message in received for letter in exceeded(topic, message, reason)]
            with platform.durable("archive"):
                archive(dead_letters, files, platform.state, platform.clock)
            queue.delete(dead, [message.receipt for message in received])
            platform.step("after delete")
            archived += len(dead_letters)
    return archived


def archive_and_drain(platform: Platform, queue: Queue, files: Files) -> tuple[int, Drained]:
    """Archive what the dead-letter queues hold, and drain everything archived; how many events, and what the drain did.

    A queue whose dead letters cannot be archived stops no other; its failure is raised in the end.
    """
    names = [name.removesuffix(DEAD) for name in queue.ready() if name.endswith(DEAD)]
    topics = {queue_name(topic.name): topic.name for topic in list_topics(platform)} if names else {}
    archived, failures = 0, list[LeanOpsError]()
    for name in names:
        try:
            archived += process(platform, queue, files, [name], lambda name: topics.get(name, name))
        except LeanOpsError as failure:
            failures.append(failure)
    drained = drain(platform)
    if failures:
        raise failures[0]
    return archived, drained


def turn(platform: Platform, queue: Queue, files: Files, tell: Tell) -> int:
    """The background part; how many dead letters it drained."""
    _, drained = archive_and_drain(platform, queue, files)
    if drained.dead_letters:
        tell(PART, f"{drained.dead_letters:,} events in dlq_errors; see them with: leanops dlq list")
    return drained.dead_letters


@contextmanager
def alone(platform: Platform, sleep: Callable[[float], object] = time.sleep) -> Iterator[Lease]:
    """Be the only one who changes dlq_errors; another one is waited for, but not for ever."""
    deadline = time.monotonic() + PATIENCE_S
    patience = Patience(lambda: time.monotonic() > deadline, sleep, longest_wait_s=1.0)
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
    """Commit, in one commit, the occurrences that are not in the table; where it changed meanwhile it is read again."""
    while True:
        seen = platform.catalog.load(platform.rules.databases.dlq_errors)
        known = {
            str(row["error_id"]): row for row in _rows(platform, [dead_letter.row for dead_letter in dead_letters])
        }
        errors = [
            _error(dead_letter.row, known.get(str(dead_letter.row["error_id"])))
            for dead_letter in dead_letters
            if known.get(str(dead_letter.row["error_id"]), {}).get("batch_id") != dead_letter.row["occurrence"]
        ]
        if not errors:
            return
        again = sum(1 for error in errors if error["error_id"] in known)
        check(platform, lease)
        platform.step("before drain")
        if _commit(platform, seen, errors, again > 0):
            break
    platform.step("after drain")
    result.new, result.again, result.commits = (
        result.new + len(errors) - again,
        result.again + again,
        result.commits + 1,
    )


def _commit(platform: Platform, seen: TableView | None, errors: Sequence[Mapping[str, Any]], replaces: bool) -> bool:
    """Whether it was done; an append must follow what was seen, so that whoever lost the lease doubles nothing."""
    table, done = platform.rules.databases.dlq_errors, False
    if replaces:
        return platform.catalog.replace(table, these(errors), errors, only_at=seen.head if seen else None)

    def plan(found: TableView) -> Sequence[int] | None:
        nonlocal done
        done = seen is not None and found.head == seen.head
        return expirable(found, [], KEPT_SNAPSHOTS) if done else None

    columns = {name: [error[name] for error in errors] for name in ERRORS.columns}
    platform.catalog.land(table, ERRORS, columns, {}, plan)
    return done


def _forget(platform: Platform, dead_letter: Stored) -> None:
    """Delete the note of a dead letter, unless the dead letter came again meanwhile."""
    with suppress(StateConflictError):
        platform.state.delete(ERROR_TRACKER, ERROR_TRACKER.key_of(dead_letter.row), expected=dead_letter.revision)


def these(rows: Iterable[Mapping[str, Any]]) -> Where:
    """A filter for the errors of these rows."""
    found = list(rows)
    return {name: sorted({str(row[name]) for row in found}) for name in ("topic_name", "error_id")}


def _rows(platform: Platform, like: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return platform.catalog.select(platform.rules.databases.dlq_errors, list(ERRORS.columns), these(like))


def _error(dead_letter: Row, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """The row of a dead letter; one that came before is open again."""
    failure = {**dict.fromkeys(FAILURE), "rule": dead_letter["rule"], "message": dead_letter["reason"]}
    published = dead_letter["publish_time"]
    return {
        **dict.fromkeys(ERRORS.columns),
        "error_id": dead_letter["error_id"],
        "topic_name": dead_letter["topic_name"],
        "layer": DEAD_LETTERS,
        "message_id": dead_letter["message_id"],
        "publish_time": None if published is None else _EPOCH + timedelta(microseconds=int(published)),
        "failures": [failure],
        "source": dead_letter["source"],
        "batch_id": dead_letter["occurrence"],
        "detected_ts": _EPOCH + timedelta(milliseconds=int(dead_letter["detected_at"] or 0)),
        "status": Status.OPEN.value,
        "attempts": 1 + (before["attempts"] or 0) if before else 1,
    }
