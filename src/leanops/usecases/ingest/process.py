"""The processor: what waits in a queue becomes records of the delivery stream. It judges envelopes, never payloads."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial

from leanops.domain.errors import DeliveryUnavailableError, LeanOpsError, PermanentError, RetryableError, reason_of
from leanops.domain.event.envelope import BadEnvelope, Envelope, encoded
from leanops.domain.event.names import queue_name
from leanops.domain.event.record import raw_record
from leanops.domain.failures import Rule
from leanops.ports.clock import Clock, millis
from leanops.ports.delivery import MAX_RECORD_BYTES, Delivery
from leanops.ports.files import Files
from leanops.ports.queue import Queue, Receipt, Received
from leanops.ports.state import StateStore
from leanops.usecases.ingest.archive import DeadLetter, archive
from leanops.usecases.ingest.pack import Event, events_in, is_claim
from leanops.usecases.ingest.repeats import known, remember
from leanops.usecases.ingest.room import IngestRules
from leanops.usecases.platform import no_step
from leanops.usecases.retry import Patience

VISIBILITY_S = 60
PORTION_BYTES = 4 << 20
HOUR_MS = 3_600_000
_queue_name = lru_cache(maxsize=4_096)(queue_name)


@dataclass(frozen=True)
class Processor:
    """What the processor works with."""

    delivery: Delivery
    files: Files
    state: StateStore
    clock: Clock
    topic_of: Callable[[str], str]
    """The topic of a queue."""
    rules: IngestRules = field(default_factory=IngestRules)
    patience: Patience = field(default_factory=Patience)
    step: Callable[[str], None] = no_step
    explain: Callable[[Exception], str] = reason_of


@dataclass
class Ingested:
    """What became of the messages of one receive."""

    done: list[Receipt] = field(default_factory=list)
    failed: list[Received] = field(default_factory=list)
    """They come back, and after some receives are dead letters."""
    reasons: list[str] = field(default_factory=list)
    events: int = 0
    repeats: int = 0
    archived: int = 0
    forgotten: int = 0
    """Delivered, but not remembered: a repeat of them will be delivered, too."""

    def left_of(self, received: Sequence[Received]) -> list[Received]:
        """Those of the messages that are not done."""
        done = set(self.done)
        return [message for message in received if message.receipt not in done]


class _ClaimGoneError(Exception):
    """The file of a claim check is not there, or cannot be read."""


def work(processor: Processor, queue: Queue, name: str, at_most: int) -> Ingested | None:
    """Receive once and deal with what came; None where nothing waited."""
    received = queue.receive(name, at_most, VISIBILITY_S)
    if not received:
        return None
    receipts = [message.receipt for message in received]

    def hold() -> None:
        # An outage is no fault of the messages: they stay in flight, and their receives are not used up.
        with suppress(RetryableError):
            queue.change_visibility(name, receipts, VISIBILITY_S)

    processor.step("after receive")
    result = Ingested()
    try:
        ingest(processor, name, received, hold, result)
    except RetryableError:
        # Patience is at an end. The receive was no try of the messages, so it does not count where that can be.
        with suppress(RetryableError):
            queue.delete(name, result.done)
            queue.give_back(name, [message.receipt for message in result.left_of(received)])
        raise
    except Exception as failure:  # noqa: BLE001 - unknown: the messages come again, alone in the end, then are dead
        result.failed = result.left_of(received)
        result.reasons.append(processor.explain(failure))
    processor.step("before delete")
    processor.patience.persist(lambda: queue.delete(name, result.done), hold)
    for message in result.failed:
        queue.change_visibility(name, [message.receipt], _backoff_s(message.receives))
    processor.step("after delete")
    return result


def _backoff_s(receives: int) -> float:
    return random.uniform(1, min(300, 5 * 2**receives))


def ingest(
    processor: Processor,
    queue: str,
    received: Sequence[Received],
    hold: Callable[[], None] = lambda: None,
    into: Ingested | None = None,
) -> Ingested:
    """Deliver the events of these messages; what is `done` then may be deleted, and nothing else.

    They are put whenever a few MB have gathered; `into` tells the caller what was done by then if this raises.
    """
    result = Ingested() if into is None else into
    batch = _Batch(processor, queue, hold)
    lost: Received | None = None
    with closing(events_in(received, batch.fetch)) as events:
        for event in events:
            if event.message is lost:
                continue
            try:
                batch.add(event)
            except _ClaimGoneError as gone:
                lost = event.message
                result.failed.append(lost)
                result.reasons.append(str(gone))
            if batch.size >= PORTION_BYTES:
                batch.put(result)
    batch.put(result)
    return result


class _Batch:
    """The events of one receive on their way to the delivery stream, a portion at a time."""

    def __init__(self, processor: Processor, queue: str, hold: Callable[[], None]) -> None:
        self.processor, self.queue, self.hold = processor, queue, hold
        self._held, self._holding = time.monotonic(), threading.Lock()
        self.stamp = millis(processor.clock())
        self._begin()

    def _begin(self) -> None:
        self.records: list[bytes] = []
        self.ids: list[str] = []
        self.dead_letters: list[DeadLetter] = []
        self.done: list[Receipt] = []
        self.size = 0
        self._whole = (0, 0)

    def add(self, event: Event) -> None:
        """Note an event; of a message that must come again, what was not put yet is left out."""
        try:
            self._add(event)
        except _ClaimGoneError:
            records, dead_letters = self._whole
            del self.records[records:], self.ids[records:], self.dead_letters[dead_letters:]
            raise
        if event.is_last:
            self.done.append(event.message.receipt)
            self._whole = (len(self.records), len(self.dead_letters))

    def put(self, result: Ingested) -> None:
        """Deliver what has gathered, and begin another portion."""
        processor = self.processor
        if processor.rules.idempotency_hours:
            result.repeats += processor.patience.persist(self._drop_repeats, self.hold)
        self._archive()
        processor.step("before put")
        self._deliver()
        processor.step("after put")
        if processor.rules.idempotency_hours:
            result.forgotten += self._remember()
        result.events, result.archived = result.events + len(self.records), result.archived + len(self.dead_letters)
        result.done += self.done
        self._begin()

    def _add(self, event: Event) -> None:
        """Note an event as a record, or as a dead letter with its reason."""
        envelope = event.envelope
        if isinstance(envelope, BadEnvelope):
            topic = self.processor.topic_of(self.queue)
            reason = f"the envelope cannot be understood: {envelope.reason}"
            self._add_dead_letter(DeadLetter(topic, envelope.body, Rule.BAD_ENVELOPE, reason, envelope.message_id))
        elif _queue_name(envelope.topic) != self.queue:
            self._reject(envelope, Rule.BAD_ENVELOPE, f"it names another topic than that of its queue {self.queue}")
        elif envelope.payload is not None:
            self._accept(envelope, envelope.payload)
        else:
            self._add_bytes(envelope, event)

    def _add_bytes(self, envelope: Envelope, event: Event) -> None:
        if envelope.claim is not None and not is_claim(envelope.claim):
            self._reject(envelope, Rule.BAD_ENVELOPE, "its claim check names no file of claims")
            return
        data = envelope.data if envelope.claim is None else event.claimed()
        if data is None:
            raise _ClaimGoneError(f"the file {envelope.claim} of a claim check is not there")
        try:
            self._accept(envelope, data.decode())
        except UnicodeDecodeError as wrong:
            self._reject(envelope, Rule.BAD_ENVELOPE, f"its payload is not UTF-8, at byte {wrong.start}")

    def fetch(self, name: str) -> bytes | None:
        """The file of a claim check; several threads call this."""
        self._keep()
        try:
            return self.processor.patience.persist(lambda: self.processor.files.get(name), self._keep)
        except PermanentError as refused:
            raise _ClaimGoneError(str(refused)) from refused

    def _accept(self, envelope: Envelope, payload: str) -> None:
        record = raw_record(envelope, payload, envelope.ingestion_ts or self.stamp)
        if len(record) > MAX_RECORD_BYTES:
            where = f"; its bytes are in {envelope.claim}" if envelope.claim else ""
            self._reject(
                envelope, Rule.TOO_LARGE, f"{len(record)} bytes are more than the stream's {MAX_RECORD_BYTES}{where}"
            )
            return
        self.records.append(record)
        self.ids.append(envelope.message_id)
        self.size += len(record)

    def _reject(self, envelope: Envelope, rule: Rule, reason: str) -> None:
        topic = self.processor.topic_of(self.queue)
        dead_letter = DeadLetter(topic, encoded(envelope), rule, reason, envelope.message_id, envelope.publish_time)
        self._add_dead_letter(dead_letter)

    def _add_dead_letter(self, dead_letter: DeadLetter) -> None:
        self.dead_letters.append(dead_letter)
        self.size += len(dead_letter.body)

    def _keep(self) -> None:
        """Stay in possession of the messages where the work on them takes long."""
        with self._holding:
            if time.monotonic() - self._held > VISIBILITY_S / 3:
                self.hold()
                self._held = time.monotonic()

    def _archive(self) -> None:
        """Archive what cannot go on."""
        processor = self.processor
        for dead_letter in self.dead_letters:
            self._keep()
            processor.step("before archive")
            noted = partial(archive, [dead_letter], processor.files, processor.state, processor.clock)
            processor.patience.persist(noted, self.hold)
            processor.step("after archive")

    def _deliver(self) -> None:
        """Put every record; of a put that took only a part, the rest again."""
        left = self.records

        def put() -> None:
            nonlocal left
            left = [left[position] for position in self.processor.delivery.put(left)]
            if left:
                raise DeliveryUnavailableError(f"the delivery stream did not take {len(left)} records; trying again")

        if left:
            self.processor.patience.persist(put, self.hold)

    def _drop_repeats(self) -> int:
        """Leave out the events delivered before, and repeats among these; how many they were."""
        self._keep()
        before = known(self.processor.state, self.queue, self.ids, self.stamp)
        fresh: dict[str, bytes] = {}
        for name, record in zip(self.ids, self.records, strict=True):
            if name not in before:
                fresh.setdefault(name, record)
        repeats = len(self.records) - len(fresh)
        self.ids, self.records = list(fresh), list(fresh.values())
        return repeats

    def _remember(self) -> int:
        """Note what was delivered; where that fails, how many a repeat of would not be known.

        They are delivered: to fail their messages for it would bring the very repeats this is to prevent.
        """
        until = self.stamp + self.processor.rules.idempotency_hours * HOUR_MS
        noted = partial(remember, self.processor.state, self.queue, self.ids, until)
        try:
            self.processor.patience.persist(noted, self.hold)
        except LeanOpsError:
            return len(self.ids)
        return 0
