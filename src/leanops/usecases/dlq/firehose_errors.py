"""What Firehose could not deliver: each line of its error output becomes a dead letter."""

from collections.abc import Iterator

import msgspec

from leanops.domain.event.record import Unroutable
from leanops.ports.files import Objects
from leanops.usecases.ingest.archive import DeadLetter, unroutable
from leanops.usecases.ingest.archive_chunks import ChunkedArchive, marker_of

PART_BYTES = 4 << 20


class _Undelivered(msgspec.Struct, rename="camel"):
    """A line of Firehose's error output."""

    raw_data: bytes
    error_code: str = "no code"


_undelivered = msgspec.json.Decoder(_Undelivered)


def archive_object(archive: ChunkedArchive, objects: Objects, key: str, identity: str) -> int | None:
    """Archive the lines that are left of an object; how many there were, None if it is gone.

    Raises RetryableError when time is up; the next call continues after the last whole chunk.
    """
    if archive.patience.persist(lambda: objects.part(key, 0, 1)) is None:
        return None
    marker = marker_of(identity)
    chunks = _chunks(archive, objects, key, archive.position(marker))
    return archive.archive_chunks(marker, (([dead_letter(line) for line in lines], end) for lines, end in chunks))


def dead_letter(line: bytes) -> DeadLetter:
    """The record of a line of the error output, with the reason Firehose gives."""
    try:
        found = _undelivered.decode(line)
    except (ValueError, RecursionError):
        return unroutable(Unroutable(line, None, "is not a line of Firehose's error output"))
    reason = f"Firehose did not deliver it: {found.error_code[:80]}; see its log"
    return unroutable(Unroutable(found.raw_data, None, reason))


def _chunks(archive: ChunkedArchive, objects: Objects, key: str, start: int) -> Iterator[tuple[list[bytes], int]]:
    """Chunks of lines, bounded in number and bytes, each with the position after it."""
    lines: list[bytes] = []
    size, end = 0, start
    for line, end in _lines(archive, objects, key, start):
        if line.strip():
            lines.append(line)
            size += len(line)
        if len(lines) == archive.chunk_size or size > PART_BYTES:
            yield lines, end
            lines, size = [], 0
    if lines:
        yield lines, end


def _lines(archive: ChunkedArchive, objects: Objects, key: str, start: int) -> Iterator[tuple[bytes, int]]:
    """Every line from `start` on, with the position after it."""

    def part() -> bytes | None:
        return objects.part(key, position + len(rest), PART_BYTES)

    position, rest = start, b""
    while found := archive.patience.persist(part):
        *whole, rest = (rest + found).split(b"\n")
        for line in whole:
            position += len(line) + 1
            yield line, position
    if rest:
        yield rest, position + len(rest)
