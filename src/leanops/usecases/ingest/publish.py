"""Events into a topic's queue, and the wait until they are in RAW."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from leanops.domain.errors import DeliveryUnavailableError, LeanOpsError, QueueStoppedError, UsageError
from leanops.domain.event.lines import Event, event_from_line
from leanops.domain.event.names import queue_name
from leanops.ports.delivery import MAX_RECORD_BYTES, Buffer
from leanops.ports.files import Files
from leanops.ports.queue import Queue
from leanops.usecases.ingest.pack import messages, send_all
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import find_topic, list_topics
from leanops.usecases.workers import DELIVERY, PROCESSOR, heard_of

EVENTS_PER_SEND = 2_000
LONGEST_LINE = MAX_RECORD_BYTES - 10_000
"""With its envelope, a line still fits into a record."""
_BLANKS = " \t\x0b\f\r"


def publish(
    platform: Platform,
    queue: Queue,
    files: Files,
    topic: str,
    events: Iterable[Event],
    progress: Callable[[int], None] = lambda _count: None,
) -> int:
    """Send the events to the topic's queue; how many they were."""
    find_topic(platform, topic)
    published, rest = 0, iter(events)
    while chunk := [event.envelope(topic) for event in islice(rest, EVENTS_PER_SEND)]:
        send_all(queue, [message for message, _ in messages(queue, files, platform.clock, chunk)])
        published += len(chunk)
        progress(published)
    return published


@dataclass(frozen=True)
class Landing:
    """What brings events from the queue to RAW when nobody else does."""

    platform: Platform
    queue: Queue
    buffer: Buffer
    process: Callable[[], int]
    flush: Callable[[], int]
    stopped: Callable[[str], str | None]
    """Why a queue is not read, if it is not."""
    pause: Callable[[float], None] = time.sleep


def wait_until_landed(landing: Landing, topic: str) -> None:
    """Return when every event sent to the topic before now is in RAW or is a dead letter.

    Whatever part of the work no other process does is done here.
    """
    platform, name = landing.platform, queue_name(topic)
    sent = platform.now_ms()

    def is_queued() -> bool:
        depth = landing.queue.depth(name)
        if not depth.messages or (depth.oldest_ms is not None and depth.oldest_ms > sent):
            return False
        reason = landing.stopped(name)
        if reason:
            raise QueueStoppedError(topic, reason)
        return True

    _until(landing, is_queued, PROCESSOR, landing.process)
    _flush(landing)


def _flush(landing: Landing) -> None:
    put = landing.platform.now_ms()
    landing.buffer.hurry()
    _until(landing, lambda: landing.buffer.holds_before(put), DELIVERY, landing.flush)


def land_waiting(landing: Landing, topics: Sequence[str] | None = None) -> Iterator[str]:
    """Bring what waits in the queues of these topics, or of all, and in the buffer to RAW; says what it does.

    A queue that is stopped keeps its messages, and so does one that fails: the others do not wait for it.
    """
    waiting = landing.queue.depths()
    names = [topic.name for topic in list_topics(landing.platform) if topics is None or topic.name in topics]
    for topic in [name for name in names if queue_name(name) in waiting]:
        count = waiting[queue_name(topic)].messages
        yield f"{topic}: its queue holds {count:,} message{'s' if count != 1 else ''}; bringing them to RAW first"
        try:
            wait_until_landed(landing, topic)
        except LeanOpsError as held:
            yield f"{topic}: they stay there: {held}"
    if landing.buffer.holds_before(landing.platform.now_ms()):
        yield "the delivery buffer holds events; bringing them to RAW first"
        _flush(landing)


def _until(landing: Landing, is_waiting: Callable[[], bool], part: str, turn: Callable[[], int]) -> None:
    while is_waiting():
        heard = heard_of(landing.platform.state, landing.platform.clock, part)
        if heard.problem:
            raise DeliveryUnavailableError(f"the events wait, because {part} fails: {heard.problem}")
        if heard.workers or not turn():
            landing.pause(0.1)


def events_from_lines(
    platform: Platform, lines: Iterable[bytes], name: str, *, envelope: bool | None
) -> Iterator[Event]:
    """Events of a JSONL file: each line a payload, or an envelope around one. Blank lines are passed over.

    Where nobody said which (None), each is a payload, and one that would be an envelope is refused.
    """
    run = secrets.token_hex(6)
    now = platform.clock()
    for number, raw in enumerate(lines, start=1):
        text = _decoded(raw.rstrip(b"\r\n"), f"{name} line {number}")
        if not text.strip(_BLANKS):
            continue
        if len(raw) > LONGEST_LINE:
            raise UsageError(f"{name} line {number} has {len(raw):,} bytes; the delivery stream takes {LONGEST_LINE:,}")
        if envelope:
            yield event_from_line(text, f"{name} line {number}")
        elif envelope is None and _is_envelope(text):
            raise UsageError(
                f"{name} line {number} is an envelope; publish it with --envelope, "
                "or with --no-envelope if the line itself is the payload"
            )
        else:
            yield Event(f"{run}-{number}", now, text)


def _is_envelope(text: str) -> bool:
    """Whether a line is an envelope in every member; what only looks like one is a payload."""
    if not all(f'"{member}"' in text for member in ("message_id", "publish_time", "payload")):
        return False
    try:
        event_from_line(text, "")
    except UsageError:
        return False
    return True


def _decoded(raw: bytes, place: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as broken:
        raise UsageError(f"{place} is not UTF-8 at byte {broken.start}; convert the file first") from None
