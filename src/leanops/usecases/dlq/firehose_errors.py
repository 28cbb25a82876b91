"""What Firehose could not deliver: each line of its error output becomes a dead letter."""

from collections.abc import Iterator

import msgspec

from leanops.domain.event.record import Unroutable
from leanops.domain.groups import in_groups
from leanops.ports.files import Objects
from leanops.usecases.ingest.archive import ChunkedArchive, DeadLetter, marker_of, unroutable

PART_BYTES = 4 << 20


class _Refused(msgspec.Struct, rename="camel"):
    """A line of Firehose's error output."""

    raw_data: bytes
    error_code: str = "no code"


_decoder = msgspec.json.Decoder(_Refused)


def archive_object(archive: ChunkedArchive, objects: Objects, key: str, identity: str) -> int | None:
    """Archive the lines that are left of an object; returns their number, or None if the object is gone.

    Raises RetryableError when time is up; the next call continues after the last whole chunk.
    """
    if archive.patience.persist(lambda: objects.part(key, 0, 1)) is None:
        return None
    marker = marker_of(identity)
    lines = (pair for pair in _lines(archive, objects, key, archive.position(marker)) if pair[0].strip())
    chunks = in_groups(lines, lambda pair: len(pair[0]), most=archive.chunk_size, most_bytes=PART_BYTES)
    return archive.archive_chunks(marker, (([dead_letter(line) for line, _ in some], some[-1][1]) for some in chunks))


def dead_letter(line: bytes) -> DeadLetter:
    """The record of a line of the error output, with the reason Firehose gives."""
    try:
        refused = _decoder.decode(line)
    except (ValueError, RecursionError):
        return unroutable(Unroutable(line, None, "is not a line of Firehose's error output"))
    reason = f"Firehose did not deliver it: {refused.error_code[:80]}; see its log"
    return unroutable(Unroutable(refused.raw_data, None, reason))


def _lines(archive: ChunkedArchive, objects: Objects, key: str, start: int) -> Iterator[tuple[bytes, int]]:
    """Every line from `start` on, with the position after it."""

    def part() -> bytes | None:
        return objects.part(key, position + len(rest), PART_BYTES)

    position, rest = start, b""
    while data := archive.patience.persist(part):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            position += len(line) + 1
            yield line, position
    if rest:
        yield rest, position + len(rest)
