"""Dead letters that come in bulk, archived chunk by chunk over as many calls as it takes."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256

from leanops.domain.errors import RetryableError
from leanops.ports.clock import Clock
from leanops.ports.files import Files
from leanops.ports.state import StateStore
from leanops.usecases.ingest.archive import DeadLetter, archive
from leanops.usecases.retry import Patience

PROGRESS = "dlq/progress/"
"""How much of each source is archived; a chunk is archived before its end is written here."""
CHUNK_SIZE = 500
THREADS = 16


@dataclass(frozen=True)
class ChunkedArchive:
    """The archive of dead letters for sources that a single call may not finish."""

    files: Files
    state: StateStore
    clock: Clock
    patience: Patience = field(default_factory=Patience)
    chunk_size: int = CHUNK_SIZE

    def archive_message(self, identity: str, dead_letters: Sequence[DeadLetter]) -> int:
        """Archive the events that are left of a message; how many there were.

        Raises RetryableError when time is up; the next call continues after the last whole chunk. A message of one
        chunk needs no marker: it is deleted, or comes again as a whole.
        """
        size = self.chunk_size
        if len(dead_letters) <= size:
            return self.archive_chunks(None, [(dead_letters, len(dead_letters))])
        marker = marker_of(identity)
        starts = range(self.position(marker), len(dead_letters), size)
        return self.archive_chunks(marker, ((dead_letters[start : start + size], start + size) for start in starts))

    def archive_chunks(self, marker: str | None, chunks: Iterable[tuple[Sequence[DeadLetter], int]]) -> int:
        """Archive each chunk and write its end to the marker; how many dead letters there were."""
        archived = 0
        with ThreadPoolExecutor(THREADS, thread_name_prefix="archive") as pool:
            for dead_letters, end in chunks:
                # At least one chunk a call, so that the last one is reached however little time a call has.
                if archived and self.patience.give_up():
                    raise RetryableError(f"{archived} records are archived; the next call continues")
                list(pool.map(self._archive, dead_letters))
                if marker:
                    self._note(marker, end)
                archived += len(dead_letters)
        return archived

    def position(self, marker: str) -> int:
        """Where to continue."""
        return int(self.patience.persist(lambda: self.files.get(marker)) or 0)

    def _note(self, marker: str, end: int) -> None:
        self.patience.persist(lambda: self.files.put(marker, str(end).encode()))

    def _archive(self, dead_letter: DeadLetter) -> None:
        self.patience.persist(lambda: archive([dead_letter], self.files, self.state, self.clock))


def marker_of(identity: str) -> str:
    """The file that says how much of a source is archived."""
    return PROGRESS + sha256(identity.encode()).hexdigest()
