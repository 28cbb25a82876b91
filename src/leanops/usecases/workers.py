"""Background parts: each in a thread of its own, tried again when it fails, and telling the state store how it is."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from leanops.domain.errors import LeanOpsError, reason_of
from leanops.ports.clock import Clock, millis
from leanops.ports.state import WORKERS, Row, StateStore

PROCESSOR, DELIVERY, CYCLES, DEAD_LETTERS, BRIDGE = "processor", "delivery", "cycles", "dead-letters", "bridge"
SCHEMAS = "schemas"
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
    problem: Callable[[], str | None] = lambda: None
    """What is wrong though the last turn came to its end."""


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
    explain: Callable[[Exception], str] = reason_of
    _started: int = 0

    def run(self) -> None:
        """Turn after turn until it is told to stop; a thread of its own says meanwhile that it is alive."""
        ended = threading.Event()
        heart = threading.Thread(target=self._beat_until, args=(ended,), name=f"{self.part.name}-beats", daemon=True)
        heart.start()
        try:
            self._turn_after_turn()
        finally:
            ended.set()
            heart.join()
            self.forget()

    def _beat_until(self, ended: threading.Event) -> None:
        self.beat()
        while not ended.wait(BEAT_S):
            self.beat()

    def _turn_after_turn(self) -> None:
        pause = self.part.pause_s
        while not self.stopping.is_set():
            try:
                did = self.part.turn()
            except Exception as failure:  # noqa: BLE001 - whatever it is, the part must not be gone for good
                self.failed += 1
                self.error = self.explain(failure)
                self.tell(self.part.name, f"failed, and will be tried again: {self.error}")
                pause = min(LONGEST_PAUSE_S, 2 * max(pause, 0.5))
                self.stopping.wait(pause)
                continue
            self.done += did
            pause, self.error = self.part.pause_s, self.part.problem()
            if not did:
                self.stopping.wait(pause)

    def beat(self) -> None:
        """Say that it is alive."""
        self._started = self._started or millis(self.clock())
        # A state store that is away is no reason to stop; whoever looks will find this part silent.
        with suppress(LeanOpsError):
            stored = self.state.get(WORKERS, (self._name,))
            self.state.put(WORKERS, self._row(), expected=stored.revision if stored else None)
            self.state.purge(WORKERS, "beat_at", millis(self.clock()) - FORGOTTEN_MS)

    def forget(self) -> None:
        """Say that it has ended."""
        with suppress(LeanOpsError):
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


@dataclass(frozen=True)
class Heard:
    """What was heard lately of the processes that do a part's work."""

    workers: int
    problem: str | None


def heard_of(state: StateStore, clock: Clock, part: str) -> Heard:
    """How many processes do this part's work, and what is wrong if something is wrong with all of them."""
    now = millis(clock())
    rows = [found.row for found in state.rows(WORKERS) if found.row["part"] == part]
    living = [row for row in rows if 0 <= now - int(row["beat_at"] or 0) <= ALIVE_MS]
    problems = [str(row["error"]) for row in living if row["error"]]
    return Heard(len(living), problems[0] if problems and len(problems) == len(living) else None)
