"""Background parts: each in a thread of its own, tried again when it fails, and telling the state store how it is."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from leanops.domain.errors import RetryableError, reason_of
from leanops.ports.clock import Clock, millis
from leanops.ports.state import WORKERS, Row, StateStore

PROCESSOR, DELIVERY, CYCLES, DEAD_LETTERS, BRIDGE = "processor", "delivery", "cycles", "dead-letters", "bridge"
BEAT_S = 5.0
ALIVE_MS = 30_000
FORGOTTEN_MS = 86_400_000
LONGEST_PAUSE_S = 30.0


Tell = Callable[[str, str], None]
"""Told which part has done what, in a line for people."""


@dataclass(frozen=True)
class Part:
    """A background part: `turn` does some work and says how much; after none, or a failure, it pauses."""

    name: str
    turn: Callable[[], int]
    pause_s: float


@dataclass
class Worker:
    """One part at work in this process."""

    part: Part
    state: StateStore
    clock: Clock
    owner: str
    stopping: threading.Event
    tell: Tell = lambda _part, _text: None
    done: int = 0
    failed: int = 0
    error: str | None = None
    _started: int = 0
    _beaten: float = field(default=float("-inf"))

    def run(self) -> None:
        """Turn after turn until it is told to stop."""
        pause = self.part.pause_s
        while not self.stopping.is_set():
            self.beat()
            try:
                did = self.part.turn()
            except Exception as failure:  # noqa: BLE001 - whatever it is, the part must not be gone for good
                self.failed += 1
                self.error = reason_of(failure)
                self.tell(self.part.name, f"failed, and will be tried again: {self.error}")
                pause = min(LONGEST_PAUSE_S, 2 * max(pause, 0.5))
                self.stopping.wait(pause)
                continue
            self.done += did
            pause, self.error = self.part.pause_s, None
            if not did:
                self.stopping.wait(pause)
        self.forget()

    def beat(self) -> None:
        """Say that it is alive, every few seconds."""
        if time.monotonic() - self._beaten < BEAT_S:
            return
        self._beaten = time.monotonic()
        self._started = self._started or millis(self.clock())
        # A state store that is away is no reason to stop; whoever looks will find this part silent.
        with suppress(RetryableError):
            stored = self.state.get(WORKERS, (self._name,))
            self.state.put(WORKERS, self._row(), expected=stored.revision if stored else None)
            self.state.purge(WORKERS, "beat_at", millis(self.clock()) - FORGOTTEN_MS)

    def forget(self) -> None:
        """Say that it has ended."""
        with suppress(RetryableError):
            stored = self.state.get(WORKERS, (self._name,))
            if stored:
                self.state.delete(WORKERS, (self._name,), expected=stored.revision)

    @property
    def _name(self) -> str:
        return f"{self.owner}/{self.part.name}"

    def _row(self) -> Row:
        return {
            "worker": self._name,
            "part": self.part.name,
            "started_at": self._started,
            "beat_at": millis(self.clock()),
            "done": self.done,
            "failed": self.failed,
            "error": self.error,
        }


def serve(workers: Sequence[Worker], stopping: threading.Event) -> None:
    """Run the workers until told to stop, then let each finish its turn."""
    threads = [threading.Thread(target=worker.run, name=worker.part.name) for worker in workers]
    for thread in threads:
        thread.start()
    stopping.wait()
    for thread in threads:
        thread.join()


def alive(state: StateStore, clock: Clock, part: str) -> bool:
    """Whether some process does this part's work."""
    since = millis(clock()) - ALIVE_MS
    return any(row.row["part"] == part and int(row.row["beat_at"] or 0) >= since for row in state.rows(WORKERS))
