"""The processor: what waits in a queue becomes records of the delivery stream. It judges envelopes, never payloads."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial

from leanops.domain.envelope import BadEnvelope, Envelope, encoded, envelopes_in
from leanops.domain.errors import (
    DeliveryUnavailableError,
    PermanentError,
    RetryableError,
    StateConflictError,
    reason_of,
)
from leanops.domain.failures import Rule
from leanops.domain.records import raw_record
from leanops.domain.topics import queue_name
from leanops.ports.clock import Clock, millis
from leanops.ports.delivery import MAX_RECORD_BYTES, Delivery
from leanops.ports.files import CLAIMS, Files, checked_name
from leanops.ports.queue import Queue, Receipt, Received
from leanops.ports.state import IDEMPOTENCY_KEYS, Row, StateStore
from leanops.usecases.dead_letters import DeadLetter, bury
from leanops.usecases.patience import Patience
from leanops.usecases.platform import no_step

VISIBILITY_S = 60
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
    idempotency_hours: int = 0
    """How long a message_id is remembered, so that a repeat is dropped; 0 leaves that to Standardized."""
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
    buried: int = 0


def repeat_key(queue: str, message_id: str) -> str:
    """Under which a delivered message is remembered."""
    return f"{queue}/{message_id}"


def _is_claim(name: str) -> bool:
    """Whether an envelope may ask for this file: any other would let a message read what is not its own."""
    try:
        return checked_name(name).startswith(CLAIMS)
    except PermanentError:
        return False


class _ClaimGoneError(Exception):
    """The file of a claim check is not there."""


def work(processor: Processor, queue: Queue, name: str, at_most: int) -> Ingested | None:
    """Receive once and deal with what came; None where nothing waited."""
    received = queue.receive(name, at_most, VISIBILITY_S)
    if not received:
        return None
    receipts = [message.receipt for message in received]

    def hold() -> None:
        # An outage is no fault of the messages: they stay in hand, and their receives are not used up.
        with suppress(RetryableError):
            queue.change_visibility(name, receipts, VISIBILITY_S)

    processor.step("after receive")
    try:
        result = ingest(processor, name, received, hold)
    except RetryableError:
        raise
    except Exception as failure:  # noqa: BLE001 - unknown: the messages come again, alone in the end, then are dead
        result = Ingested(failed=list(received), reasons=[processor.explain(failure)])
    processor.step("before delete")
    processor.patience.persist(lambda: queue.delete(name, result.done), hold)
    for message in result.failed:
        queue.change_visibility(name, [message.receipt], _backoff_s(message.receives))
    processor.step("after delete")
    return result


def _backoff_s(receives: int) -> float:
    return random.uniform(1, min(300, 5 * 2**receives))


def ingest(
    processor: Processor, queue: str, received: Sequence[Received], hold: Callable[[], None] = lambda: None
) -> Ingested:
    """Deliver the events of these messages; what is `done` then may be deleted, and nothing else."""
    result, batch = Ingested(), _Batch(processor, queue, hold)
    for message in received:
        try:
            batch.add_all(envelopes_in(message.body))
        except _ClaimGoneError as gone:
            result.failed.append(message)
            result.reasons.append(str(gone))
        else:
            result.done.append(message.receipt)
    persist = processor.patience.persist
    if processor.idempotency_hours:
        result.repeats = persist(batch.drop_repeats, hold)
    batch.bury()
    processor.step("before put")
    batch.deliver()
    processor.step("after put")
    if processor.idempotency_hours:
        persist(batch.remember, hold)
    result.events, result.buried = len(batch.records), len(batch.letters)
    return result


class _Batch:
    """The events of one receive on their way to the delivery stream."""

    def __init__(self, processor: Processor, queue: str, hold: Callable[[], None]) -> None:
        self.processor, self.queue, self.hold = processor, queue, hold
        self._held = time.monotonic()
        self.records: list[bytes] = []
        self.ids: list[str] = []
        self.letters: list[DeadLetter] = []
        self.stamp = millis(processor.clock())

    def add_all(self, envelopes: Sequence[Envelope | BadEnvelope]) -> None:
        """Note the events of one message, all of them or none."""
        records, letters = len(self.records), len(self.letters)
        try:
            for envelope in envelopes:
                self._add(envelope)
        except _ClaimGoneError:
            # The whole message will come again: what it held before must not go on without the rest.
            del self.records[records:], self.ids[records:], self.letters[letters:]
            raise

    def _add(self, envelope: Envelope | BadEnvelope) -> None:
        """Note an event as a record, or as a dead letter with its reason."""
        if isinstance(envelope, BadEnvelope):
            topic = self.processor.topic_of(self.queue)
            reason = f"the envelope cannot be understood: {envelope.reason}"
            self.letters.append(DeadLetter(topic, envelope.body, Rule.BAD_ENVELOPE, reason, envelope.message_id))
        elif _queue_name(envelope.topic) != self.queue:
            self._reject(envelope, Rule.BAD_ENVELOPE, f"it names another topic than that of its queue {self.queue}")
        elif envelope.payload is not None:
            self._accept(envelope, envelope.payload)
        else:
            self._add_bytes(envelope)

    def _add_bytes(self, envelope: Envelope) -> None:
        if envelope.claim is not None and not _is_claim(envelope.claim):
            self._reject(envelope, Rule.BAD_ENVELOPE, "its claim check names no file of claims")
            return
        data = envelope.data if envelope.claim is None else self._claimed(envelope.claim)
        if data is None:
            raise _ClaimGoneError(f"the file {envelope.claim} of a claim check is not there")
        try:
            self._accept(envelope, data.decode())
        except UnicodeDecodeError as wrong:
            self._reject(envelope, Rule.BAD_ENVELOPE, f"its payload is not UTF-8, at byte {wrong.start}")

    def _claimed(self, name: str) -> bytes | None:
        self._keep()
        return self.processor.patience.persist(lambda: self.processor.files.get(name), self.hold)

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

    def _reject(self, envelope: Envelope, rule: Rule, reason: str) -> None:
        topic = self.processor.topic_of(self.queue)
        letter = DeadLetter(topic, encoded(envelope), rule, reason, envelope.message_id, envelope.publish_time)
        self.letters.append(letter)

    def _keep(self) -> None:
        """Stay in possession of the messages where the work on them takes long."""
        if time.monotonic() - self._held > VISIBILITY_S / 3:
            self.hold()
            self._held = time.monotonic()

    def bury(self) -> None:
        """Archive what cannot go on."""
        processor = self.processor
        for letter in self.letters:
            self._keep()
            processor.step("before bury")
            noted = partial(bury, [letter], processor.files, processor.state, processor.clock)
            processor.patience.persist(noted, self.hold)
            processor.step("after bury")

    def deliver(self) -> None:
        """Put every record; of a put that took only a part, the rest again."""
        left = self.records

        def put() -> None:
            nonlocal left
            left = [left[position] for position in self.processor.delivery.put(left)]
            if left:
                raise DeliveryUnavailableError(f"the delivery stream did not take {len(left)} records; trying again")

        if left:
            self.processor.patience.persist(put, self.hold)

    def drop_repeats(self) -> int:
        """Leave out the events delivered before, and repeats among these; how many they were."""
        fresh: dict[str, bytes] = {}
        for name, record in zip(self.ids, self.records, strict=True):
            self._keep()
            if name not in fresh and not self._is_known(name):
                fresh[name] = record
        repeats = len(self.records) - len(fresh)
        self.ids, self.records = list(fresh), list(fresh.values())
        return repeats

    def _is_known(self, message_id: str) -> bool:
        stored = self.processor.state.get(IDEMPOTENCY_KEYS, (repeat_key(self.queue, message_id),))
        return stored is not None and int(stored.row["expires_at"] or 0) > self.stamp

    def remember(self) -> None:
        """Note what was delivered, so that a repeat is known."""
        expires = self.stamp + self.processor.idempotency_hours * HOUR_MS
        for name in self.ids:
            self._keep()
            key = repeat_key(self.queue, name)
            stored = self.processor.state.get(IDEMPOTENCY_KEYS, (key,))
            # Another worker may have noted the same repeat meanwhile.
            with suppress(StateConflictError):
                row: Row = {"idempotency_key": key, "expires_at": expires}
                self.processor.state.put(IDEMPOTENCY_KEYS, row, expected=stored.revision if stored else None)
