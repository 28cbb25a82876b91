"""Events on their way into a queue: packed into messages, and by claim check where they are too large for one."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256

from leanops.domain.errors import QueueUnavailableError
from leanops.domain.event.envelope import Envelope, bodies, encoded
from leanops.domain.event.names import queue_name
from leanops.ports.clock import Clock
from leanops.ports.files import CLAIMS, Files
from leanops.ports.queue import Outgoing, Queue

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
