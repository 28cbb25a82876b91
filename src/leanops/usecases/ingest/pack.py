"""Events packed into queue messages and unpacked again; one that is too large for a message goes by claim check."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from leanops.domain.errors import PermanentError, QueueUnavailableError
from leanops.domain.event.envelope import BadEnvelope, Envelope, bodies, encoded, envelopes_in
from leanops.domain.event.names import queue_name
from leanops.ports.clock import Clock
from leanops.ports.files import CLAIMS, Files, checked_name
from leanops.ports.queue import Outgoing, Queue, Received

_queue_name = lru_cache(maxsize=4_096)(queue_name)


def messages(
    queue: Queue, files: Files, clock: Clock, envelopes: Iterable[Envelope], events: int = 1
) -> Iterator[tuple[Outgoing, list[Envelope]]]:
    """Queue messages of up to so many events of one topic, each with the envelopes it carries, in order.

    One that would be too large even as a claim check comes as it is, and leaves no file.
    """
    for body, members in bodies(envelopes, events, queue.max_bytes):
        topic = _queue_name(members[0].topic)
        if len(body) > queue.max_bytes and members[0].claim is None:
            claimed = _claimed(clock, members[0])
            small = encoded(claimed)
            if len(small) <= queue.max_bytes:
                # The file is there before anyone can ask for it.
                files.put(str(claimed.claim), _bytes_of(members[0]))
                yield Outgoing(topic, small), [claimed]
                continue
        yield Outgoing(topic, body), members


def send_all(queue: Queue, outgoing: Sequence[Outgoing], tries: int = 5) -> None:
    """Send them all; raises QueueUnavailableError where the queue keeps refusing some."""
    left = list(outgoing)
    for _ in range(tries):
        left = [left[position] for position in queue.send(left)]
        if not left:
            return
    raise QueueUnavailableError(f"the queue did not take {len(left)} of {len(outgoing)} messages; try again later")


def _bytes_of(envelope: Envelope) -> bytes:
    return envelope.payload.encode() if envelope.payload is not None else envelope.data or b""


def _claimed(clock: Clock, envelope: Envelope) -> Envelope:
    """The envelope as it is with its bytes in a file."""
    identity = sha256(f"{envelope.topic}\n{envelope.message_id}".encode()).hexdigest()[:32]
    name = f"{CLAIMS}{clock():%Y-%m-%d}/{queue_name(envelope.topic)}/{identity}"
    return Envelope(
        envelope.topic,
        envelope.message_id,
        envelope.publish_time,
        claim=name,
        idempotency_key=envelope.idempotency_key,
        attributes=envelope.attributes,
        ingestion_ts=envelope.ingestion_ts,
    )


FETCHES = 4
"""Files fetched at once; with the portion that is gathered they are all a receive keeps in memory."""

Fetch: TypeAlias = Callable[[str], bytes | None]


class Event(NamedTuple):
    """An event, the message it came in, and the file of its claim check where it has one."""

    message: Received
    envelope: Envelope | BadEnvelope
    is_last: bool
    """No further event of its message follows."""
    fetching: "Future[bytes | None] | None"

    def claimed(self) -> bytes | None:
        """The bytes of the file; None where it is not there. Raises what the fetch raised."""
        return self.fetching.result() if self.fetching else None


def is_claim(name: str) -> bool:
    """Whether an envelope may ask for this file: any other would let a message read what is not its own."""
    try:
        return checked_name(name).startswith(CLAIMS)
    except PermanentError:
        return False


def events_in(received: Iterable[Received], fetch: Fetch) -> Generator[Event]:
    """Every event in order, never more than FETCHES files ahead of the one that is looked at."""
    waiting: deque[Event] = deque()
    pool = ThreadPoolExecutor(FETCHES, thread_name_prefix="claims")
    try:
        for message, envelope, is_last in _opened(received):
            waiting.append(Event(message, envelope, is_last, _begun(pool, envelope, fetch)))
            while waiting and (waiting[0].fetching is None or len(waiting) > FETCHES):
                yield waiting.popleft()
        yield from waiting
    finally:
        pool.shutdown(cancel_futures=True)


def _opened(received: Iterable[Received]) -> Iterator[tuple[Received, Envelope | BadEnvelope, bool]]:
    for message in received:
        *others, last = envelopes_in(message.body)
        yield from ((message, envelope, False) for envelope in others)
        yield message, last, True


def _begun(pool: ThreadPoolExecutor, envelope: Envelope | BadEnvelope, fetch: Fetch) -> "Future[bytes | None] | None":
    if isinstance(envelope, BadEnvelope) or envelope.claim is None or not is_claim(envelope.claim):
        return None
    return pool.submit(fetch, envelope.claim)
