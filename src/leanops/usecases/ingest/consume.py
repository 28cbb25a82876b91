"""Messages that a platform hands over: an outage costs them nothing, a bad one fails alone and is archived at last.

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
from leanops.usecases.ingest.archive import ChunkedArchive, exceeded
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.ingest.process import Ingested, Processor, ingest

OWN_FAILURES = MAX_RECEIVES
OUTAGES = (RetryableError, InfrastructureError)
"""Failures that are not the fault of any message."""


@dataclass
class Consumed(Ingested):
    """What became of the messages, and of the breaker."""

    again: list[Received] = field(default_factory=list)
    """They return to their queue."""
    outage: str | None = None
    breaker: Breaker | None = None
    """None if it could not be updated."""


def consume(processor: Processor, breakers: Breakers, queue: str, messages: Sequence[Received]) -> Consumed:
    """Deliver what the breaker lets through; the messages in `again` return to their queue, the rest may be deleted."""
    consumed = Consumed()
    try:
        _ingest(processor, queue, messages[: _allowed(breakers, queue, len(messages))], consumed)
    except OUTAGES as outage:
        consumed.outage = str(outage)
    failed = len(consumed.failed) + consumed.archived
    _archive_hopeless(processor, queue, consumed)
    consumed.again = consumed.left_of(messages)
    # A breaker that cannot be updated is not a reason to deliver these messages again.
    with suppress(LeanOpsError):
        if consumed.outage is not None:
            consumed.breaker = breakers.outage(queue, consumed.outage)
        else:
            consumed.breaker = breakers.report(queue, consumed.events + consumed.repeats, failed)
    return consumed


def _allowed(breakers: Breakers, queue: str, messages: int) -> int:
    """The number of messages that may be tried; a breaker that cannot be read stops nothing."""
    try:
        return breakers.may_receive(queue, messages)
    except LeanOpsError:
        return messages


def _ingest(processor: Processor, queue: str, messages: Sequence[Received], consumed: Consumed) -> None:
    """Ingest messages together; if that fails, half by half, until one message fails alone."""
    try:
        ingest(processor, queue, messages, consumed)
    except OUTAGES:
        raise
    except Exception as failure:  # noqa: BLE001 - unknown: the message that causes it must fail alone
        failed = {message.receipt for message in consumed.failed}
        left = [message for message in consumed.left_of(messages) if message.receipt not in failed]
        if len(left) == 1:
            consumed.failed += left
            consumed.reasons.append(reason_of(failure))
            return
        for half in (left[: len(left) // 2], left[len(left) // 2 :]):
            if not processor.patience.give_up():
                _ingest(processor, queue, half, consumed)


def _archive_hopeless(processor: Processor, queue: str, consumed: Consumed) -> None:
    """Count the failures; a message with too many becomes dead letters, and is done."""
    archive = ChunkedArchive(processor.files, processor.state, processor.clock, processor.patience)
    for message, reason in zip(consumed.failed, consumed.reasons, strict=True):
        # If that fails, for whatever reason, the message is received again and counted or archived then.
        with suppress(Exception):
            name = f"{queue}/{message.receipt}"
            failures = _counted(processor, name)
            if failures >= OWN_FAILURES:
                dead_letters = exceeded(processor.topic_of(queue), message, f"it failed {failures} times: {reason}")
                consumed.archived += archive.archive_message(name, dead_letters)
                consumed.done.append(message.receipt)


def _counted(processor: Processor, message: str) -> int:
    """How often the message failed, this time included."""
    stored = processor.state.get(MESSAGE_FAILURES, (message,))
    failures = 1 + int(stored.row["failures"] or 0) if stored else 1
    until = millis(processor.clock()) + RETENTION_MS
    row: Row = {"message": message, "failures": failures, "expires_at": until}
    processor.state.put(MESSAGE_FAILURES, row, expected=stored.revision if stored else None)
    return failures
