"""Events of queue messages with the files of their claim checks, fetched by a few threads just ahead of their turn."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

from leanops.domain.errors import PermanentError
from leanops.domain.event.envelope import BadEnvelope, Envelope, envelopes_in
from leanops.ports.files import CLAIMS, checked_name
from leanops.ports.queue import Received

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
