"""The processor: queue messages become records of the delivery stream. It judges envelopes, never payloads."""

import random
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial

from leanops.domain.errors import DeliveryUnavailableError, LeanOpsError, PermanentError, RetryableError, reason_of
from leanops.domain.event.envelope import BadEnvelope, Envelope
from leanops.domain.event.names import queue_name
from leanops.domain.event.record import raw_record
from leanops.domain.failures import Rule
from leanops.domain.words import counted
from leanops.ports.clock import Clock, millis
from leanops.ports.delivery import MAX_RECORD_BYTES, Delivery
from leanops.ports.files import Files
from leanops.ports.queue import Queue, Receipt, Received
from leanops.ports.state import IDEMPOTENCY_KEYS, Key, Row, StateStore
from leanops.usecases.ingest.archive import DeadLetter, archive
from leanops.usecases.ingest.pack import Event, events_in, is_claim
from leanops.usecases.ingest.room import IngestRules
from leanops.usecases.platform import no_step
from leanops.usecases.retry import Patience, Renewal

VISIBILITY_S = 60
PORTION_BYTES = 4 << 20
HOUR_MS = 3_600_000


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
    """They are received again, and after some receives they are dead letters."""
    reasons: list[str] = field(default_factory=list)
    events: int = 0
    repeats: int = 0
    archived: int = 0
    forgotten: int = 0
    """Delivered but not remembered: their repeats will be delivered, too."""

    def left_of(self, received: Sequence[Received]) -> list[Received]:
        """The messages that are not done."""
        done = set(self.done)
        return [message for message in received if message.receipt not in done]


class _ClaimGoneError(Exception):
    """The file of a claim check is missing or cannot be read."""


def work(processor: Processor, queue: Queue, name: str, at_most: int) -> Ingested | None:
    """Receive once and process the messages; None if there were none."""
    received = queue.receive(name, at_most, VISIBILITY_S)
    if not received:
        return None
    receipts = [message.receipt for message in received]

    def hold() -> None:
        # An outage is not the fault of the messages: they stay in flight, and their receives are not used up.
        with suppress(RetryableError):
            queue.change_visibility(name, receipts, VISIBILITY_S)

    processor.step("after receive")
    result = Ingested()
    try:
        ingest(processor, name, received, result, hold)
    except RetryableError:
        # Patience has run out. The messages were not tried, so the receive is taken back where the queue can.
        with suppress(RetryableError):
            queue.delete(name, result.done)
            queue.give_back(name, [message.receipt for message in result.left_of(received)])
        raise
    except Exception as failure:  # noqa: BLE001 - unknown: the messages are received again, then are dead letters
        result.failed = result.left_of(received)
        result.reasons.append(processor.explain(failure))
    processor.step("before delete")
    processor.patience.persist(lambda: queue.delete(name, result.done), hold)
    for message in result.failed:
        backoff_s = random.uniform(1, min(300, 5 * 2**message.receives))
        queue.change_visibility(name, [message.receipt], backoff_s)
    processor.step("after delete")
    return result


def ingest(
    processor: Processor,
    queue: str,
    received: Sequence[Received],
    result: Ingested,
    hold: Callable[[], None] = lambda: None,
) -> None:
    """Deliver the events of these messages; those that are `done` in the result may be deleted, and no others.

    A portion is put whenever a few MB have gathered, so the result counts even if this raises.
    """
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


def repeat_key(queue: str, message_id: str) -> str:
    """The key under which a delivered message is remembered, so that a repeat can be dropped."""
    return f"{queue}/{message_id}"


class _Batch:
    """The events of one receive on their way to the delivery stream, a portion at a time."""

    def __init__(self, processor: Processor, queue: str, hold: Callable[[], None]) -> None:
        self.processor, self.queue, self.hold = processor, queue, hold
        self.keep = Renewal(hold, VISIBILITY_S / 3)
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
        """Add an event; if its message has to be received again, its events that are not put yet are removed."""
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
        """Deliver the portion, and begin another."""
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
        """Add an event as a record, or as a dead letter with its reason."""
        envelope = event.envelope
        if isinstance(envelope, BadEnvelope):
            self._reject(envelope, Rule.BAD_ENVELOPE, f"the envelope cannot be understood: {envelope.reason}")
        elif queue_name(envelope.topic) != self.queue:
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
        self.keep()
        try:
            return self.processor.patience.persist(lambda: self.processor.files.get(name), self.keep)
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

    def _reject(self, envelope: Envelope | BadEnvelope, rule: Rule, reason: str) -> None:
        dead_letter = DeadLetter.of(self.processor.topic_of(self.queue), envelope, rule, reason)
        self.dead_letters.append(dead_letter)
        self.size += len(dead_letter.body)

    def _archive(self) -> None:
        """Archive the dead letters."""
        processor = self.processor
        for dead_letter in self.dead_letters:
            self.keep()
            processor.step("before archive")
            noted = partial(archive, [dead_letter], processor.files, processor.state, processor.clock)
            processor.patience.persist(noted, self.hold)
            processor.step("after archive")

    def _deliver(self) -> None:
        """Put every record; if a put takes only some, put the rest again."""
        left = self.records

        def put() -> None:
            nonlocal left
            left = [left[position] for position in self.processor.delivery.put(left)]
            if left:
                records = counted(len(left), "record")
                raise DeliveryUnavailableError(f"the delivery stream did not accept {records}; trying again")

        if left:
            self.processor.patience.persist(put, self.hold)

    def _drop_repeats(self) -> int:
        """Leave out events that were delivered before, and repeats among these; returns their number."""
        self.keep()
        keys: dict[Key, str] = {(repeat_key(self.queue, name),): name for name in self.ids}
        stored = self.processor.state.get_many(IDEMPOTENCY_KEYS, list(keys))
        before = {keys[key] for key, key_row in stored.items() if int(key_row.row["expires_at"] or 0) > self.stamp}
        fresh: dict[str, bytes] = {}
        for name, record in zip(self.ids, self.records, strict=True):
            if name not in before:
                fresh.setdefault(name, record)
        repeats = len(self.records) - len(fresh)
        self.ids, self.records = list(fresh), list(fresh.values())
        return repeats

    def _remember(self) -> int:
        """Remember what was delivered; if that fails, returns the number of events that are forgotten.

        They are delivered: failing their messages would cause the very repeats this prevents.
        """
        until = self.stamp + self.processor.rules.idempotency_hours * HOUR_MS
        rows: list[Row] = [{"idempotency_key": repeat_key(self.queue, name), "expires_at": until} for name in self.ids]
        try:
            self.processor.patience.persist(partial(self.processor.state.put_many, IDEMPOTENCY_KEYS, rows), self.hold)
        except LeanOpsError:
            return len(self.ids)
        return 0
