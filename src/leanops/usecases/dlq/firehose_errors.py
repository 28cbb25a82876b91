"""What comes as a whole and is buried piece by piece, over as many calls as it takes: error output, queue messages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256

from leanops.domain.errors import RetryableError
from leanops.ports.clock import Clock
from leanops.ports.files import Files
from leanops.ports.objects import Objects
from leanops.ports.state import StateStore
from leanops.usecases.ingest.archive import DeadLetter, bury
from leanops.usecases.retry import Patience

PROGRESS = "dlq/progress/"
"""How far each object or message is buried; a chunk is done before its end is written here."""
PART_BYTES = 4 << 20
CHUNK_LETTERS = 500
THREADS = 16


@dataclass(frozen=True)
class Burial:
    """What is needed to bury what comes as objects or messages."""

    files: Files
    state: StateStore
    clock: Clock
    patience: Patience = field(default_factory=Patience)
    chunk_letters: int = CHUNK_LETTERS

    def bury(self, letter: DeadLetter) -> None:
        """One letter, once however often it comes."""
        self.patience.persist(lambda: bury([letter], self.files, self.state, self.clock))


def bury_object(
    burial: Burial, objects: Objects, key: str, identity: str, letter_of: Callable[[bytes], DeadLetter]
) -> int | None:
    """Bury the lines that are left of an object; how many they were, None where it is gone.

    Where patience is over it raises RetryableError, and the next call goes on behind the last whole chunk.
    """
    if burial.patience.persist(lambda: objects.part(key, 0, 1)) is None:
        return None
    marker = _marker(identity)
    chunks = _chunks(burial, objects, key, _position(burial, marker))
    return _bury(burial, marker, (([letter_of(line) for line in lines], end) for lines, end in chunks))


def bury_message(burial: Burial, identity: str, letters: Sequence[DeadLetter]) -> int:
    """Bury the events that are left of a message; how many they were. It raises and goes on as for an object.

    A message of one chunk needs no marker: it is deleted, or comes again as a whole.
    """
    size = burial.chunk_letters
    if len(letters) <= size:
        return _bury(burial, None, [(letters, len(letters))])
    marker = _marker(identity)
    starts = range(_position(burial, marker), len(letters), size)
    return _bury(burial, marker, ((letters[start : start + size], start + size) for start in starts))


def _bury(burial: Burial, marker: str | None, chunks: Iterable[tuple[Sequence[DeadLetter], int]]) -> int:
    buried = 0
    with ThreadPoolExecutor(THREADS, thread_name_prefix="bury") as pool:
        for letters, end in chunks:
            # At least one chunk a call, so that it ends however little time a call has.
            if buried and burial.patience.give_up():
                raise RetryableError(f"{buried} records are put aside; the rest follows when the event comes again")
            list(pool.map(burial.bury, letters))
            if marker:
                _note(burial, marker, end)
            buried += len(letters)
    return buried


def _marker(identity: str) -> str:
    return PROGRESS + sha256(identity.encode()).hexdigest()


def _position(burial: Burial, marker: str) -> int:
    return int(burial.patience.persist(lambda: burial.files.get(marker)) or 0)


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
        if len(lines) == burial.chunk_letters or size > PART_BYTES:
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
