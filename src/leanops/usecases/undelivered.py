"""The error output of a delivery stream: objects of lines, buried chunk by chunk over as many calls as it takes."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256

from leanops.domain.errors import RetryableError
from leanops.ports.clock import Clock
from leanops.ports.files import Files
from leanops.ports.objects import Objects
from leanops.ports.state import StateStore
from leanops.usecases.dead_letters import DeadLetter, bury
from leanops.usecases.patience import Patience

PROGRESS = "dlq/progress/"
"""How far each object is buried; a chunk is done before its end is written here."""
PART_BYTES = 4 << 20
CHUNK_LINES = 500
THREADS = 16


@dataclass(frozen=True)
class Burial:
    """What is needed to bury the lines of objects."""

    files: Files
    state: StateStore
    clock: Clock
    letter_of: Callable[[bytes], DeadLetter]
    patience: Patience = field(default_factory=Patience)
    chunk_lines: int = CHUNK_LINES

    def bury(self, line: bytes) -> None:
        """One line, once however often it comes."""
        self.patience.persist(lambda: bury([self.letter_of(line)], self.files, self.state, self.clock))


def bury_object(burial: Burial, objects: Objects, key: str, identity: str) -> int | None:
    """Bury what is left of an object; how many lines they were, None where it is gone.

    Where patience is over it raises RetryableError, and the next call goes on behind the last whole chunk.
    """
    persist, marker = burial.patience.persist, PROGRESS + sha256(identity.encode()).hexdigest()
    if persist(lambda: objects.part(key, 0, 1)) is None:
        return None
    start, buried = int(persist(lambda: burial.files.get(marker)) or 0), 0
    with ThreadPoolExecutor(THREADS, thread_name_prefix="bury") as pool:
        for lines, end in _chunks(burial, objects, key, start):
            # At least one chunk a call, so that it ends however little time a call has.
            if buried and burial.patience.give_up():
                raise RetryableError(f"{buried} records are put aside; the rest follows when the event comes again")
            list(pool.map(burial.bury, lines))
            _note(burial, marker, end)
            buried += len(lines)
    return buried


def _note(burial: Burial, marker: str, end: int) -> None:
    burial.patience.persist(lambda: burial.files.put(marker, str(end).encode()))


def _chunks(burial: Burial, objects: Objects, key: str, start: int) -> Iterator[tuple[list[bytes], int]]:
    """The lines from here, so many and so large together as are buried at once, with the position behind them."""
    lines: list[bytes] = []
    size, end = 0, start
    for line, end in _lines(burial, objects, key, start):
        if line.strip():
            lines.append(line)
            size += len(line)
        if len(lines) == burial.chunk_lines or size > PART_BYTES:
            yield lines, end
            lines, size = [], 0
    if lines:
        yield lines, end


def _lines(burial: Burial, objects: Objects, key: str, start: int) -> Iterator[tuple[bytes, int]]:
    """Every line from here, with the position behind it."""

    def part() -> bytes | None:
        return objects.part(key, position + len(rest), PART_BYTES)

    position, rest = start, b""
    while found := burial.patience.persist(part):
        *whole, rest = (rest + found).split(b"\n")
        for line in whole:
            position += len(line) + 1
            yield line, position
    if rest:
        yield rest, position + len(rest)
