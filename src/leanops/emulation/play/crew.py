"""Worker processes of a home, which can be killed and restarted at any moment."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Self

from leanops.domain.errors import EmulationError

LOGS = "logs"
WATCHED = "from leanops.emulation.play.crew import end_with_parent; end_with_parent(0)\n"
POLL_S = 0.1


class Crew:
    """Workers by name, each a Python program and its arguments; all end with this process, however it ends."""

    def __init__(self, home: Path, programs: Mapping[str, Sequence[str]]) -> None:
        self._home, self._programs = home, programs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._pipe = list(os.pipe())
        self.kills: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start every worker, or none."""
        (self._home / LOGS).mkdir(exist_ok=True)
        try:
            for name in self._programs:
                self._start(name)
        except BaseException:
            self.close()
            raise

    def kill(self, name: str) -> None:
        """Kill a worker in the middle of whatever it does, and start it again."""
        self.check()
        self._end(name)
        self.kills[name] += 1
        self._start(name)

    def check(self) -> None:
        """Raise EmulationError if a worker has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise self._ended(name, process.returncode)

    def stop(self, patience_s: float, look: Callable[[], None] = lambda: None) -> None:
        """Let every worker finish its turn; one that takes too long is killed, and counted as killed."""
        self.check()
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + patience_s
        while any(process.poll() is None for process in self._running.values()) and time.monotonic() < deadline:
            look()
            time.sleep(POLL_S)
        codes = {name: process.poll() for name, process in self._running.items()}
        for name in codes:
            self._end(name)
        self.kills.update(name for name, code in codes.items() if code is None)
        for name, code in codes.items():
            # A worker that got the signal before it could handle it had not begun to work.
            if code not in (None, 0, -signal.SIGTERM):
                raise self._ended(name, code)

    def close(self) -> None:
        """Kill whatever still runs."""
        for name in list(self._running):
            self._end(name)
        while self._pipe:
            os.close(self._pipe.pop())

    def _start(self, name: str) -> None:
        program, *arguments = self._programs[name]
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                (sys.executable, "-P", "-c", WATCHED + program, *arguments),
                env=os.environ | {"LEANOPS_HOME": str(self._home)},
                stdin=self._pipe[0],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, name: str) -> None:
        process = self._running.pop(name)
        # Even if the worker has ended: its children may not have.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _ended(self, name: str, code: int | None) -> EmulationError:
        log = self._log(name)
        tail = " / ".join(log.read_text(errors="replace").splitlines()[-5:]) or "nothing"
        return EmulationError(f"the worker {name} ended by itself with {code}; the end of {log}: {tail}")

    def _log(self, name: str) -> Path:
        return self._home / LOGS / f"{name}.log"


def end_with_parent(pipe: int) -> None:
    """Kill this process and its children as soon as the other end of a pipe, which only the parent has, is closed."""
    # In a session of its own it gets no Ctrl-C from the terminal, and its group is itself and its children.
    if os.getsid(0) != os.getpid():
        os.setsid()

    def watch() -> None:
        # Whatever ends the parent, even SIGKILL, closes its end.
        wait([pipe])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
