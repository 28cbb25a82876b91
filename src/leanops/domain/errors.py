"""Everything Lean-Ops raises.

LeanOpsError
├── RetryableError                the same call may succeed later
│   ├── StateConflictError        someone else changed the row first
│   ├── StateUnavailableError     the state store does not answer
│   ├── QueueUnavailableError     the queue does not answer
│   ├── QueueStoppedError         its circuit breaker is open
│   ├── DeliveryUnavailableError  the delivery stream takes nothing right now
│   ├── FilesUnavailableError     the file store does not answer
│   ├── SourceUnavailableError    Pub/Sub does not answer
│   ├── JobsUnavailableError      no job can be started right now
│   ├── PartEndedError            a background part is gone, and the process with it
│   ├── EngineUnavailableError    Java, a jar or a server cannot be had right now
│   ├── LeaseHeldError            another worker has the topic
│   ├── LeaseLostError            our lease expired or was taken over
│   ├── CommitRefusedError        the table did not take the commit; nothing changed
│   │   └── LateErrorsError       another worker has added error rows of the topic
│   └── CommitUnknownError        a commit was sent and its result is not known
└── PermanentError                a person has to change something
    ├── InfrastructureError       a service refuses us or lacks what we need; the data is not at fault
    ├── UsageError                a command or a file the user gave is wrong
    │   ├── InvalidPathError      a JSON path that cannot be read
    │   ├── InvalidTopicError     a topic name that is not valid
    │   ├── UnknownTopicError     a topic that was never added
    │   ├── TopicPausedError      a topic somebody paused
    │   ├── InvalidSchemaError    a schema file with problems
    │   ├── StaleOperationError   an operation whose tables have moved since
    │   └── WrongKeyError         tables sealed with another key
    ├── FileRefusedError          one file cannot be read or written, others can
    ├── PartlySentError           the queue refuses some messages for good; it has taken the others
    ├── UnbalancedBatchError      counts that do not add up; nothing was committed
    ├── OperationBlockedError     a rebuild that waits for a person's consent
    ├── EmulationError            an emulation that cannot continue
    ├── SpikeError                more bad rows than the schema's policy lets pass
    └── SourceRewrittenError      RAW was changed by something other than an append
"""

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from leanops.domain.problems import Problem

_PROBLEMS_SHOWN = 5


class LeanOpsError(Exception):
    """The root; its text is one line that says what, which, and what to do."""


class RetryableError(LeanOpsError):
    """The same call may succeed later."""


class PermanentError(LeanOpsError):
    """Trying again changes nothing; a person has to."""


class InfrastructureError(PermanentError):
    """A service refuses us, or lacks what we need; whatever data was in flight is not to blame."""


class StateConflictError(RetryableError):
    """The stored row is not the one that was seen."""

    def __init__(self, table: str, key: Sequence[str]) -> None:
        super().__init__(
            f"{table} {'/'.join(key)}: changed by another process in the meantime; read it again and retry"
        )
        self.table, self.key = table, tuple(key)


class StateUnavailableError(RetryableError):
    """The state store does not answer."""


class QueueUnavailableError(RetryableError):
    """The queue does not answer."""


class QueueStoppedError(RetryableError):
    """A circuit breaker stops a topic; what waits in its queue is kept."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(
            f"{topic}: the circuit breaker is open ({reason}), so events stay in the queue; resume with: "
            f"leanops breaker close {topic}"
        )


class DeliveryUnavailableError(RetryableError):
    """The delivery stream takes nothing right now: throttled, full or away."""


class FilesUnavailableError(RetryableError):
    """The file store does not answer."""


class SourceUnavailableError(RetryableError):
    """Pub/Sub does not answer."""


class JobsUnavailableError(RetryableError):
    """No job can be started right now: the limit is reached, or the service is away."""


class PartEndedError(RetryableError):
    """A background part ended though nobody stopped it; the process ends too, so that something restarts it."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"{part} ended unexpectedly ({why}), so every part was stopped; start leanops serve again")


class EngineUnavailableError(RetryableError):
    """Something outside Python that we need cannot be had right now."""


class LeaseHeldError(RetryableError):
    """Another worker has the resource."""

    def __init__(self, resource: str, owner: str, until: datetime | None = None) -> None:
        name = resource.removeprefix("topic/")
        lasts = f" until {until:%Y-%m-%d %H:%M:%S} UTC unless it renews its lease" if until else ""
        super().__init__(
            f"{resource}: {owner} is working on it{lasts}; wait for it, or if it hangs: leanops topics unlock {name}"
        )


class LeaseLostError(RetryableError):
    """The lease is no longer ours; whatever was planned under it must not be committed."""

    def __init__(self, resource: str, generation: int) -> None:
        super().__init__(f"{resource}: lease generation {generation} was lost; the next cycle takes over")


class CommitRefusedError(RetryableError):
    """The table did not take the commit, because another writer was there first; nothing changed."""


class LateErrorsError(CommitRefusedError):
    """An error table has rows of a topic that were added since they were looked for."""

    def __init__(self, topic: str, table: str) -> None:
        super().__init__(
            f"{topic}: another worker has added error rows to {table} meanwhile; the next cycle tries again"
        )


class CommitUnknownError(RetryableError):
    """A commit was sent and its result is not known; the next cycle looks for its batch id and decides."""


class UsageError(PermanentError):
    """What the user gave cannot be used as it is."""


class InvalidPathError(UsageError):
    """A JSON path that cannot be read."""

    def __init__(self, path: str) -> None:
        super().__init__(f'{path!r} is not a JSON path; write it like $.order.id or $["a.b"].c')


class InvalidTopicError(UsageError):
    """A topic name that gives no table of its own."""


class UnknownTopicError(UsageError):
    """A topic that was never added."""

    def __init__(self, topic: str) -> None:
        remedy = f"add it with: leanops topics add {topic}" if topic else "name one of: leanops topics list"
        super().__init__(f"topic {topic!r} is not registered; {remedy}")


class TopicPausedError(UsageError):
    """A topic somebody paused: its tables are left alone."""

    def __init__(self, topic: str, reason: str | None) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(f"{topic} is paused{why}; resume it first: leanops topics resume {topic}")


class InvalidSchemaError(UsageError):
    """A schema file with problems, each with its place in the file."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        shown = [str(problem) for problem in problems[:_PROBLEMS_SHOWN]]
        more = len(problems) - len(shown)
        shown += [f"and {more:,} more; see them with: leanops schema lint FILE"] if more else []
        super().__init__(f"{source}: {'; '.join(shown)}")
        self.problems = tuple(problems)


class FileRefusedError(PermanentError):
    """One file cannot be read or written, while others can: what needs it fails, and nothing else."""


class PartlySentError(PermanentError):
    """Of messages sent at once, some will not be taken; all that are not named here were."""

    def __init__(self, refused: Mapping[int, str], queues: Collection[str] = (), again: Sequence[int] = ()) -> None:
        super().__init__(next(iter(refused.values())))
        self.refused = refused
        """Positions, and why."""
        self.queues = queues
        """Those of the refused messages' queues that take none at all."""
        self.again = again
        """Positions that may be sent again."""


class UnbalancedBatchError(PermanentError):
    """Counts that do not add up: before the commit nothing is written, after it the topic is parked."""


class OperationBlockedError(PermanentError):
    """An operation that built its tables and waits for a person before it puts them in place."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"{topic}: {reason}")
        self.reason = reason


class StaleOperationError(UsageError):
    """An operation that was written down and never begun, on tables that have changed since; it is dropped."""

    def __init__(self, topic: str, work: str) -> None:
        super().__init__(
            f"{topic}: its tables changed before the {work} started, so it was dropped; run the command again"
        )


class WrongKeyError(UsageError):
    """HMACs of two keys must not meet in one table: the same value would be sealed in two ways."""

    def __init__(self, topic: str, there: str, ours: str) -> None:
        super().__init__(
            f"{topic}: its tables are sealed with another HMAC key (check value {there}, and the key of this process "
            f"gives {ours}); set LEANOPS_PII_KEY to that key, or seal all rows again: leanops rebuild {topic} --new-key"
        )


class SpikeError(PermanentError):
    """More bad rows than the schema's policy lets pass; nothing was committed."""


class EmulationError(PermanentError):
    """An emulation that went another way than its story."""


class SourceRewrittenError(PermanentError):
    """The source was changed by something other than an append, a compaction or our retention."""


_FULL = errno.ENOSPC, errno.EDQUOT


def reason_of(failure: Exception, more: str = "see more of it with leanops --debug") -> str:
    """One line for an outcome. A foreign exception's text may quote data, so only its kind is shown."""
    if isinstance(failure, LeanOpsError):
        return str(failure)
    if isinstance(failure, OSError) and failure.errno in _FULL:
        return f"the disk is full ({os.strerror(failure.errno)}); make room, and the next try goes on from here"
    return f"{type(failure).__name__} from the engine; {more}"
