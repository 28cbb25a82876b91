"""Events into a topic's queue, and the wait until they are in RAW."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from leanops.domain.errors import DeliveryUnavailableError, LeanOpsError, QueueStoppedError, UsageError
from leanops.domain.event.lines import Event, event_from_line
from leanops.domain.event.names import queue_name
from leanops.domain.words import counted
from leanops.ports.delivery import MAX_RECORD_BYTES, Buffer
from leanops.ports.files import Files
from leanops.ports.queue import Queue
from leanops.usecases.ingest.pack import send_events
from leanops.usecases.ingest.parts import DeliveryPart, ProcessorPart
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import find_topic, list_topics
from leanops.usecases.workers import DELIVERY, PROCESSOR, heard_of

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
    """Send the events to the topic's queue; returns their number."""
    find_topic(platform, topic)
    return send_events(queue, files, platform.clock, (event.envelope(topic) for event in events), progress)


@dataclass(frozen=True)
class Landing:
    """What brings events from the queue to RAW when nobody else does."""

    platform: Platform
    buffer: Buffer
    processor: ProcessorPart
    delivery: DeliveryPart


def wait_until_landed(landing: Landing, topic: str) -> None:
    """Return when every event sent to the topic before now is in RAW or is a dead letter.

    Whatever part of the work no other process does is done here.
    """
    queues, name = landing.processor.queues, queue_name(topic)
    sent = landing.platform.now_ms()

    def is_queued() -> bool:
        depth = queues.queue.depth(name)
        if not depth.messages or (depth.oldest_ms is not None and depth.oldest_ms > sent):
            return False
        reason = queues.breakers.why_stopped(name)
        if reason:
            raise QueueStoppedError(topic, reason)
        return True

    _until(landing, is_queued, PROCESSOR, landing.processor.turn, landing.processor.problem)
    _flush(landing)


def _flush(landing: Landing) -> None:
    put, flush = landing.platform.now_ms(), partial(landing.delivery.turn, now=True)
    landing.buffer.hurry()
    _until(landing, lambda: landing.buffer.holds_before(put), DELIVERY, flush, landing.delivery.problem)


def land_waiting(landing: Landing, topics: Sequence[str] | None = None) -> Iterator[str]:
    """Bring what waits in the queues of these topics, or of all, and in the buffer to RAW; yields lines about it.

    A queue that is stopped or fails keeps its messages: the others do not wait for it.
    """
    waiting = landing.processor.queues.queue.depths()
    names = [topic.name for topic in list_topics(landing.platform) if topics is None or topic.name in topics]
    for topic in [name for name in names if queue_name(name) in waiting]:
        count = waiting[queue_name(topic)].messages
        yield f"{topic}: landing {counted(count, 'queued message')} in RAW first"
        try:
            wait_until_landed(landing, topic)
        except LeanOpsError as reason:
            yield f"{topic}: not landed: {str(reason).removeprefix(f'{topic}: ')}"
    if landing.buffer.holds_before(landing.platform.now_ms()):
        yield "landing the events of the delivery buffer in RAW first"
        _flush(landing)


def _until(
    landing: Landing,
    is_waiting: Callable[[], bool],
    part: str,
    turn: Callable[[], int],
    own_problem: Callable[[], str | None],
) -> None:
    """Wait while another process does the work, or do it; raises DeliveryUnavailableError if it fails."""
    while is_waiting():
        heard = heard_of(landing.platform.state, landing.platform.clock, part)
        done = 0 if heard.workers else turn()
        if problem := heard.problem or (None if heard.workers else own_problem()):
            raise DeliveryUnavailableError(f"the events wait, because {part} fails: {problem}")
        if not done:
            time.sleep(0.1)


def events_from_lines(
    platform: Platform, lines: Iterable[bytes], name: str, *, envelope: bool | None
) -> Iterator[Event]:
    """Events of a JSONL file: each line a payload, or an envelope around one. Blank lines are skipped.

    If `envelope` is None, each line is a payload, and one that is an envelope is refused.
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
    """Whether a line is a complete envelope; one that only looks like it is a payload."""
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
