"""Background parts: each runs in its own thread, is retried when it fails, and reports to the state store."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from leanops.domain.errors import PartEndedError, reason_of
from leanops.ports.clock import Clock, millis
from leanops.ports.state import GONE_MS, SILENT_MS, WORKERS, Row, StateStore

PROCESSOR, DELIVERY, CYCLES, DEAD_LETTERS, BRIDGE = "processor", "delivery", "cycles", "dead-letters", "bridge"
SCHEMAS = "schemas"

Tell = Callable[[str, str], None]
"""Called with a part and what it has done, in a line for people."""


def quiet(_part: str, _text: str) -> None:
    """Ignore a line."""


def harmless(tell: Tell) -> Tell:
    """The same function, but it never raises: a line that cannot be written is dropped."""

    def drop_failures(part: str, text: str) -> None:
        # A full disk is an OSError; Rich answers a reader that has gone with SystemExit.
        with suppress(Exception, SystemExit):
            tell(part, text)

    return drop_failures


@dataclass
class Doing:
    """What a part is doing and since when; written by the part, read by its heartbeat."""

    clock: Clock
    text: str | None = None
    since_ms: int = 0

    def __call__(self, text: str | None) -> None:
        """Set what is being done; repeating it keeps its start time."""
        if text != self.text:
            self.text, self.since_ms = text, millis(self.clock())


@dataclass(frozen=True)
class Part:
    """A background part: `turn` does some work and says how much; after none, or a failure, it pauses."""

    name: str
    turn: Callable[[], int]
    pause_s: float
    problem: Callable[[], str | None] = lambda: None
    """What is wrong although the last turn completed."""
    doing: Doing | None = None


@dataclass
class Worker:
    """One part at work in this process."""

    part: Part
    state: StateStore
    clock: Clock
    owner: str
    stopping: threading.Event
    tell: Tell = quiet
    done: int = 0
    failed: int = 0
    error: str | None = None
    explain: Callable[[Exception], str] = reason_of
    beat_s: float = 5.0
    longest_pause_s: float = 30.0
    _started: int = 0

    def run(self) -> None:
        """Run turns until stopped, with a heartbeat in a separate thread."""
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
        while True:
            # An unavailable state store is not a reason to stop; `status` shows this part as silent.
            with suppress(Exception):
                self.beat()
            if ended.wait(self.beat_s):
                return

    def _turn_after_turn(self) -> None:
        pause = self.part.pause_s
        while not self.stopping.is_set():
            try:
                did = self.part.turn()
            except Exception as failure:  # noqa: BLE001 - whatever it is, the part must not be gone for good
                self.failed += 1
                self.error = self.explain(failure)
                harmless(self.tell)(self.part.name, f"failed, and will be tried again: {self.error}")
                pause = min(self.longest_pause_s, 2 * max(pause, 0.5))
                self._rest()
                self.stopping.wait(pause)
                continue
            self.done += did
            self._rest()
            pause, self.error = self.part.pause_s, self.part.problem()
            if not did:
                self.stopping.wait(pause)

    def _rest(self) -> None:
        if self.part.doing:
            self.part.doing(None)

    def beat(self) -> None:
        """Report that the part is alive; raises what the state store raises."""
        self._started = self._started or millis(self.clock())
        stored = self.state.get(WORKERS, (self._name,))
        self.state.put(WORKERS, self._row(), expected=stored.revision if stored else None)
        self.state.purge(WORKERS, "beat_at", millis(self.clock()) - GONE_MS)

    def forget(self) -> None:
        """Report that the part has ended."""
        with suppress(Exception):
            stored = self.state.get(WORKERS, (self._name,))
            if stored:
                self.state.delete(WORKERS, (self._name,), expected=stored.revision)

    @property
    def _name(self) -> str:
        return f"{self.owner}/{self.part.name}"

    def _row(self) -> Row:
        doing = self.part.doing
        return {
            "worker": self._name,
            "part": self.part.name,
            "started_at": self._started,
            "beat_at": millis(self.clock()),
            "done": self.done,
            "failed": self.failed,
            "error": self.error,
            "doing": doing.text if doing else None,
            "doing_since": doing.since_ms if doing and doing.text else None,
        }


def serve(workers: Sequence[Worker], stopping: threading.Event) -> None:
    """Run the workers until stopped, then let each finish its turn; raises PartEndedError if one ended early.

    A process that lives on without one of its parts would be restarted by nobody.
    """
    ended: list[PartEndedError] = []

    def run(worker: Worker) -> None:
        why = "its work came to an end"
        try:
            worker.run()
        except BaseException as failure:  # noqa: BLE001 - in a thread nobody else would hear of it
            why = reason_of(failure) if isinstance(failure, Exception) else type(failure).__name__
        if not stopping.is_set():
            ended.append(PartEndedError(worker.part.name, why))
            harmless(worker.tell)(worker.part.name, f"ended ({why}); the other parts finish what they do, then stop")
            stopping.set()

    threads = [threading.Thread(target=run, args=(worker,), name=worker.part.name) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        stopping.wait()
    finally:
        stopping.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if ended:
        raise ended[0]


@dataclass(frozen=True)
class Heard:
    """Recent reports of the processes that run a part."""

    workers: int
    problem: str | None


def heard_of(state: StateStore, clock: Clock, part: str) -> Heard:
    """How many processes run this part, and what is wrong if all of them have a problem."""
    now = millis(clock())
    rows = [stored.row for stored in state.rows(WORKERS) if stored.row["part"] == part]
    living = [row for row in rows if 0 <= now - int(row["beat_at"] or 0) <= SILENT_MS]
    problems = [str(row["error"]) for row in living if row["error"]]
    return Heard(len(living), problems[0] if problems and len(problems) == len(living) else None)
