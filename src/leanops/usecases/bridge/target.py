"""Where the bridge sends to: messages become envelopes in the queues of their topics, or dead letters."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leanops.domain.errors import PartlySentError, PermanentError, RetryableError
from leanops.domain.event.envelope import Envelope
from leanops.domain.failures import Rule
from leanops.ports.clock import Clock
from leanops.ports.files import Files
from leanops.ports.queue import Outgoing, Queue
from leanops.ports.state import StateStore
from leanops.usecases.bridge.inflight import Held, Stream
from leanops.usecases.ingest.archive import DeadLetter, archive
from leanops.usecases.ingest.pack import messages

NOT_ALL = "the queue did not take every message; trying those again"


def envelope_of(held: Held) -> Envelope:
    """The envelope of a message; its data as text if it is UTF-8, or in a file if an earlier try put it there."""
    if held.claimed:
        return held.claimed
    pulled, payload, data = held.pulled, None, None
    try:
        payload = pulled.data.decode()
    except UnicodeDecodeError:
        data = pulled.data
    attributes = dict(pulled.attributes) or None
    return Envelope(
        held.stream.topic,
        pulled.message_id,
        pulled.publish_time,
        payload=payload,
        data=data,
        idempotency_key=attributes.get("idempotency_key") if attributes else None,
        attributes=attributes,
    )


@dataclass
class Sent:
    """The messages that a send did not put into the queue."""

    again: dict[Held, str] = field(default_factory=dict)
    """Messages to be sent again, and why."""
    refused: dict[Held, str] = field(default_factory=dict)
    """Messages that cannot be sent at present, and why."""
    closed: dict[Stream, str] = field(default_factory=dict)
    """Streams whose messages cannot be sent, and why: for example, the queue is missing."""
    archived: dict[Held, str] = field(default_factory=dict)
    """Messages that the queue will never take, and why; they are dead letters now."""


class _Part(NamedTuple):
    """A queue message, and the messages it carries."""

    message: Outgoing
    members: Sequence[Held]


@dataclass(frozen=True)
class Target:
    """Where the bridge sends to. It blocks, and is used by one thread."""

    queue: Queue
    files: Files
    state: StateStore
    clock: Clock
    events_per_message: int

    def send(self, batch: Sequence[Held]) -> Sent:
        """Put the batch into the queue; in one call, unless the queue refuses a message of it without naming it."""
        sent, parts = Sent(), list[_Part]()
        by_topic: dict[str, list[Held]] = defaultdict(list)
        for held in batch:
            by_topic[held.stream.topic].append(held)
        for members in by_topic.values():
            try:
                packed = list(self._packed(members))
            except RetryableError as away:
                # The file store is needed for large messages of this topic; the other topics are sent.
                sent.again.update(dict.fromkeys(members, str(away)))
            except PermanentError as refused:
                _close(sent, members, str(refused))
            else:
                parts += packed
        self._send([part for part in parts if self._fits(part, sent)], sent)
        return sent

    def _packed(self, members: Sequence[Held]) -> Iterator[_Part]:
        envelopes, start = (envelope_of(held) for held in members), 0
        for message, carried in messages(self.queue, self.files, self.clock, envelopes, self.events_per_message):
            part = members[start : start + len(carried)]
            if carried[0].claim:
                for held, envelope in zip(part, carried, strict=True):
                    held.claimed = envelope
            yield _Part(message, part)
            start += len(carried)

    def _fits(self, part: _Part, sent: Sent) -> bool:
        """Whether the queue can take it; a message that is too large even as a claim check is archived."""
        size, most = len(part.message.body), self.queue.max_bytes
        if size > most:
            self._archive(part.members, Rule.TOO_LARGE, f"{size} bytes are more than the queue's {most}", sent)
        return size <= most

    def _send(self, parts: Sequence[_Part], sent: Sent) -> None:
        alone: dict[int, str] = {}
        taken: set[str] = set()
        for positions, answer in self._answers(parts, range(len(parts))):
            if isinstance(answer, PartlySentError):
                self._sort_out([parts[at] for at in positions], answer, sent)
            elif isinstance(answer, RetryableError):
                for at in positions:
                    sent.again.update(dict.fromkeys(parts[at].members, str(answer)))
            elif isinstance(answer, PermanentError):
                alone |= {at: str(answer) for at in positions}
            else:
                taken |= {parts[at].message.queue for at in positions}
        for at, reason in alone.items():
            # If its queue took another message, this one is at fault; else it may be the queue, and none is given up.
            if parts[at].message.queue in taken:
                self._archive(parts[at].members, Rule.BAD_ENVELOPE, reason, sent)
            else:
                _close(sent, parts[at].members, reason)

    def _answers(
        self, parts: Sequence[_Part], positions: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], PermanentError | RetryableError | None]]:
        """What the queue answers for these: for all at once, or for each half if it refuses some."""
        if not positions:
            return
        try:
            left = self.queue.send([parts[at].message for at in positions])
        except (PartlySentError, RetryableError) as failed:
            yield positions, failed
        except PermanentError as refused:
            if len(positions) == 1:
                yield positions, refused
                return
            middle = len(positions) // 2
            yield from self._answers(parts, positions[:middle])
            yield from self._answers(parts, positions[middle:])
        else:
            again = {positions[at] for at in left}
            yield sorted(again), RetryableError(NOT_ALL)
            yield [at for at in positions if at not in again], None

    def _sort_out(self, parts: Sequence[_Part], partly: PartlySentError, sent: Sent) -> None:
        for at in partly.again:
            sent.again.update(dict.fromkeys(parts[at].members, NOT_ALL))
        for at, reason in partly.refused.items():
            message, members = parts[at]
            if message.queue in partly.queues:
                _close(sent, members, reason)
            else:
                self._archive(members, Rule.BAD_ENVELOPE, reason, sent)

    def _archive(self, members: Sequence[Held], rule: Rule, reason: str, sent: Sent) -> None:
        """Archive messages as they would have been sent; if that fails they stay in flight or are given back."""
        for held in members:
            dead_letter = DeadLetter.of(held.stream.topic, envelope_of(held), rule, reason)
            try:
                archive([dead_letter], self.files, self.state, self.clock)
            except RetryableError as away:
                sent.again[held] = str(away)
            except PermanentError as refused:
                _close(sent, [held], str(refused))
            else:
                sent.archived[held] = reason


def _close(sent: Sent, members: Sequence[Held], reason: str) -> None:
    sent.refused.update(dict.fromkeys(members, reason))
    sent.closed.update({held.stream: reason for held in members})
