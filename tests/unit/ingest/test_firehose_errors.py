"""The error output is archived line by line, whole lines and each at least once, however it is read and interrupted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from leanops.domain.errors import FilesUnavailableError, RetryableError
from leanops.domain.failures import Rule
from leanops.ports.state import ERROR_TRACKER
from leanops.usecases.dlq.firehose_errors import archive_object
from leanops.usecases.ingest.archive import PROGRESS, ChunkedArchive, DeadLetter
from leanops.usecases.retry import Patience
from tests.support.hub import Hub, hub_in

LINES = [b"one", b"", b"  ", b"x" * 300, "zwei é".encode(), b"\xff\x00", b"one", b"last, without an end"]


@dataclass
class Slow:
    """A bucket with one object that gives a few bytes at a time and fails at some reads."""

    data: bytes
    at_once: int = 1_000_000
    fails_at: set[int] = field(default_factory=set)
    reads: int = 0

    def part(self, _key: str, start: int, size: int) -> bytes | None:
        self.reads += 1
        if self.reads in self.fails_at:
            raise FilesUnavailableError("S3 does not answer; try again")
        return self.data[start : start + min(size, self.at_once)]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_in(tmp_path) as found:
        yield found


def archive(hub: Hub, chunk_size: int, *, has_time: bool = True) -> ChunkedArchive:
    state, clock = hub.platform.state, hub.platform.clock
    patience = Patience(lambda: not has_time, lambda _seconds: None)
    return ChunkedArchive(hub.files, state, clock, patience, chunk_size)


def dead_letter(line: bytes) -> DeadLetter:
    return DeadLetter("orders", line, Rule.UNROUTABLE, "a test")


def archived(hub: Hub) -> set[bytes]:
    rows = [stored.row for stored in hub.platform.state.rows(ERROR_TRACKER)]
    return {hub.files.get(str(row["source"])) or b"" for row in rows}


@pytest.mark.parametrize("at_once", [1, 7, 100, 1_000_000])
@pytest.mark.parametrize("chunk_size", [1, 2, 500])
def test_every_line_that_says_something_is_archived_whole(hub: Hub, at_once: int, chunk_size: int) -> None:
    objects = Slow(b"\n".join(LINES), at_once, fails_at={2, 3, 5})

    assert archive_object(archive(hub, chunk_size), objects, "key", "id") == 6
    assert archived(hub) == {line for line in LINES if line.strip()}


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_with_no_time_at_all_each_call_buries_a_chunk_until_all_are(hub: Hub, end: bytes) -> None:
    lines = [b"line %d" % number for number in range(25)]
    objects = Slow(b"\n".join(lines) + end, at_once=30)

    for done in (10, 20):
        with pytest.raises(RetryableError, match="10 records are archived"):
            archive_object(archive(hub, 10, has_time=False), objects, "key", "id")
        assert archived(hub) == set(lines[:done])
    assert archive_object(archive(hub, 10, has_time=False), objects, "key", "id") == 5
    assert archived(hub) == set(lines)
    assert archive_object(archive(hub, 10), objects, "key", "id") == 0


def test_a_crash_before_the_progress_is_noted_buries_a_chunk_again_and_no_line_twice(hub: Hub) -> None:
    lines = [b"line %d" % number for number in range(8)]
    objects = Slow(b"\n".join(lines))
    archive_object(archive(hub, 4), objects, "key", "id")
    [marker] = hub.files.names(PROGRESS)
    hub.files.put(marker, b"%d" % len(b"\n".join(lines[:4]) + b"\n"))

    assert archive_object(archive(hub, 4), objects, "key", "id") == 4
    assert len(list(hub.platform.state.rows(ERROR_TRACKER))) == 8


def test_an_empty_object_is_archived_at_once(hub: Hub) -> None:
    assert archive_object(archive(hub, 4), Slow(b""), "key", "id") == 0


def test_a_message_is_archived_over_several_calls_and_each_event_once(hub: Hub) -> None:
    bodies = [b"event %d" % number for number in range(25)]
    dead_letters = [dead_letter(body) for body in bodies]

    for done in (10, 20):
        with pytest.raises(RetryableError, match="10 records are archived"):
            archive(hub, 10, has_time=False).archive_message("orders/id-1", dead_letters)
        assert archived(hub) == set(bodies[:done])
    assert archive(hub, 10, has_time=False).archive_message("orders/id-1", dead_letters) == 5
    assert archived(hub) == set(bodies)


def test_a_message_of_one_chunk_leaves_no_marker(hub: Hub) -> None:
    assert archive(hub, 10).archive_message("orders/id-1", [dead_letter(b"one"), dead_letter(b"two")]) == 2
    assert list(hub.files.names(PROGRESS)) == []
