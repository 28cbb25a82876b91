"""Events straight into RAW: a row for every event, in appends of up to 100,000."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from leanops.domain.envelope import Event, event_from_line
from leanops.domain.errors import UsageError
from leanops.usecases.platform import Platform
from leanops.usecases.topics import find_topic

EVENTS_PER_APPEND = 100_000
_BLANKS = " \t\x0b\f\r"


def publish(
    platform: Platform, topic: str, events: Iterable[Event], progress: Callable[[int], None] = lambda _count: None
) -> int:
    """Append the events to the topic's RAW table; how many they were."""
    find_topic(platform, topic)
    table = platform.rules.databases.raw_table(topic)
    published = 0
    rest = iter(events)
    while chunk := [event.raw_row(topic) for event in islice(rest, EVENTS_PER_APPEND)]:
        platform.catalog.append(table, chunk)
        published += len(chunk)
        progress(published)
    return published


def events_from_lines(platform: Platform, lines: Iterable[bytes], name: str, *, envelope: bool) -> Iterator[Event]:
    """Events of a JSONL file: each line a payload, or an envelope around one. Blank lines are passed over."""
    run = secrets.token_hex(6)
    now = platform.clock()
    for number, raw in enumerate(lines, start=1):
        text = _decoded(raw.rstrip(b"\r\n"), f"{name} line {number}")
        if not text.strip(_BLANKS):
            continue
        if envelope:
            yield event_from_line(text, now, f"{name} line {number}")
        else:
            yield Event(f"{run}-{number}", now, text, platform.now_ms())


def _decoded(raw: bytes, place: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as broken:
        raise UsageError(f"{place} is not UTF-8 at byte {broken.start}; convert the file first") from None
