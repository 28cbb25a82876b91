"""Events packed into queue messages and unpacked again; one that is too large for a message goes by claim check."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from itertools import islice
from typing import NamedTuple, TypeAlias

import msgspec

from leanops.domain.errors import PermanentError, QueueUnavailableError
from leanops.domain.event.envelope import BadEnvelope, Envelope, bodies, encoded, envelopes_in
from leanops.domain.event.names import queue_name
from leanops.domain.words import counted
from leanops.ports.clock import Clock
from leanops.ports.files import CLAIMS, Files, checked_name
from leanops.ports.queue import Outgoing, Queue, Received

EVENTS_PER_SEND = 2_000
TRIES = 5
FETCHES = 4
"""Files fetched at once; with the portion that is gathered they are all a receive keeps in memory."""
Fetch: TypeAlias = Callable[[str], bytes | None]


def messages(
    queue: Queue, files: Files, clock: Clock, envelopes: Iterable[Envelope], events: int = 1
) -> Iterator[tuple[Outgoing, list[Envelope]]]:
    """Queue messages of up to N events of one topic, each with the envelopes it carries, in order.

    An event that is too large even as a claim check stays as it is, and leaves no file.
    """
    for body, members in bodies(envelopes, events, queue.max_bytes):
        name = queue_name(members[0].topic)
        if len(body) > queue.max_bytes and members[0].claim is None:
            claimed = _claimed(clock, members[0])
            small = encoded(claimed)
            if len(small) <= queue.max_bytes:
                # The file is there before anyone can ask for it.
                data = members[0].data if members[0].payload is None else members[0].payload.encode()
                files.put(str(claimed.claim), data or b"")
                yield Outgoing(name, small), [claimed]
                continue
        yield Outgoing(name, body), members


def send_events(
    queue: Queue,
    files: Files,
    clock: Clock,
    envelopes: Iterable[Envelope],
    progress: Callable[[int], None] = lambda _count: None,
) -> int:
    """Send the events; returns their number. Raises QueueUnavailableError if the queue keeps refusing some."""
    sent, rest = 0, iter(envelopes)
    while chunk := list(islice(rest, EVENTS_PER_SEND)):
        outgoing = [message for message, _ in messages(queue, files, clock, chunk)]
        if left := send_patiently(queue, outgoing):
            raise QueueUnavailableError(
                f"the queue did not accept {len(left)} of {counted(len(outgoing), 'message')}; try again later"
            )
        sent += len(chunk)
        progress(sent)
    return sent


def send_patiently(queue: Queue, outgoing: Sequence[Outgoing]) -> list[int]:
    """Send messages, again if the queue refuses some; returns the positions of those it keeps refusing."""
    left = list(range(len(outgoing)))
    for _ in range(TRIES):
        left = [left[position] for position in queue.send([outgoing[at] for at in left])]
        if not left:
            break
    return left


def _claimed(clock: Clock, envelope: Envelope) -> Envelope:
    """The envelope with its bytes in a file."""
    identity = sha256(f"{envelope.topic}\n{envelope.message_id}".encode()).hexdigest()[:32]
    name = f"{CLAIMS}{clock():%Y-%m-%d}/{queue_name(envelope.topic)}/{identity}"
    return msgspec.structs.replace(envelope, payload=None, data=None, claim=name)


class Event(NamedTuple):
    """An event, the message that carried it, and the file of its claim check if it has one."""

    message: Received
    envelope: Envelope | BadEnvelope
    is_last: bool
    """It is the last event of its message."""
    fetching: "Future[bytes | None] | None"

    def claimed(self) -> bytes | None:
        """The bytes of the file, or None if it is missing. Raises what the fetch raised."""
        return self.fetching.result() if self.fetching else None


def is_claim(name: str) -> bool:
    """Whether an envelope may name this file: with any other, a message could read what is not its own."""
    try:
        return checked_name(name).startswith(CLAIMS)
    except PermanentError:
        return False


def events_in(received: Iterable[Received], fetch: Fetch) -> Generator[Event]:
    """Every event in order; at most FETCHES files are fetched ahead."""
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
