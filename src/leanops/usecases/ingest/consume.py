"""Messages that a platform hands over: an outage costs them nothing, a bad one fails alone and is archived in the end.

Where Lambda receives, every receive counts, in an outage as well. So the queue gives a message up late
(PLATFORM_RECEIVES), an outage stops consumption at once, and failures of a message's own are counted here.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from leanops.domain.breaker import Breaker
from leanops.domain.errors import InfrastructureError, LeanOpsError, RetryableError, reason_of
from leanops.ports.clock import millis
from leanops.ports.queue import MAX_RECEIVES, RETENTION_MS, Received
from leanops.ports.state import MESSAGE_FAILURES, Row
from leanops.usecases.ingest.archive import exceeded
from leanops.usecases.ingest.archive_chunks import ChunkedArchive
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.ingest.process import Ingested, Processor, ingest

OWN_FAILURES = MAX_RECEIVES
OUTAGES = (RetryableError, InfrastructureError)
"""What no message is to blame for."""


@dataclass
class Consumed(Ingested):
    """What became of the messages, and of the breaker."""

    again: list[Received] = field(default_factory=list)
    """They return to their queue."""
    outage: str | None = None
    breaker: Breaker | None = None
    """None where it could not be told."""


def consume(processor: Processor, breakers: Breakers, queue: str, messages: Sequence[Received]) -> Consumed:
    """Deliver what the breaker lets through; what comes `again` is to be answered for, the rest may be deleted."""
    found = Consumed()
    try:
        _ingest(processor, queue, messages[: _allowed(breakers, queue, len(messages))], found)
    except OUTAGES as outage:
        found.outage = str(outage)
    failed = len(found.failed) + found.archived
    _archive_hopeless(processor, queue, found)
    found.again = found.left_of(messages)
    # One that cannot be told is no reason to deliver these messages again.
    with suppress(LeanOpsError):
        if found.outage is not None:
            found.breaker = breakers.outage(queue, found.outage)
        else:
            found.breaker = breakers.report(queue, found.events + found.repeats, failed)
    return found


def _allowed(breakers: Breakers, queue: str, messages: int) -> int:
    """How many may be tried; a breaker that cannot be asked stops nothing."""
    try:
        return breakers.may_receive(queue, messages)
    except LeanOpsError:
        return messages


def _ingest(processor: Processor, queue: str, messages: Sequence[Received], found: Consumed) -> None:
    """Ingest them together; where that fails, half by half, until what fails is one message alone."""
    try:
        ingest(processor, queue, messages, into=found)
    except OUTAGES:
        raise
    except Exception as failure:  # noqa: BLE001 - unknown: the message that causes it must fail alone
        failed = {message.receipt for message in found.failed}
        left = [message for message in found.left_of(messages) if message.receipt not in failed]
        if len(left) == 1:
            found.failed += left
            found.reasons.append(reason_of(failure))
            return
        for half in (left[: len(left) // 2], left[len(left) // 2 :]):
            if not processor.patience.give_up():
                _ingest(processor, queue, half, found)


def _archive_hopeless(processor: Processor, queue: str, found: Consumed) -> None:
    """Count the failures; a message with too many becomes dead letters, and is done."""
    for message, reason in zip(found.failed, found.reasons, strict=True):
        # Where that fails, for whatever reason, the message comes again and is counted or archived then.
        with suppress(Exception):
            failures = _counted(processor, f"{queue}/{message.receipt}")
            if failures >= OWN_FAILURES:
                found.archived += _archived(processor, queue, message, f"it failed {failures} times: {reason}")
                found.done.append(message.receipt)


def _counted(processor: Processor, message: str) -> int:
    """How often the message failed, this time included."""
    stored = processor.state.get(MESSAGE_FAILURES, (message,))
    failures = 1 + int(stored.row["failures"] or 0) if stored else 1
    until = millis(processor.clock()) + RETENTION_MS
    row: Row = {"message": message, "failures": failures, "expires_at": until}
    processor.state.put(MESSAGE_FAILURES, row, expected=stored.revision if stored else None)
    return failures


def _archived(processor: Processor, queue: str, message: Received, reason: str) -> int:
    archive = ChunkedArchive(processor.files, processor.state, processor.clock, processor.patience)
    dead_letters = exceeded(processor.topic_of(queue), message, reason)
    return archive.archive_message(f"{queue}/{message.receipt}", dead_letters)
