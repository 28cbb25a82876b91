"""Worker processes of a home that can be killed at any moment, and none of which outlives this process."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from leanops.domain.errors import EmulationError
from leanops.emulation.play.guard import kill_group

LOGS = "logs"
GUARD = (sys.executable, "-P", "-m", "leanops.emulation.play.guard")
WHEN_TOLD = ("sh", "-c", 'read -r _ && exec "$@" </dev/null', "worker")
"""Begins only once the guard knows of it; if nobody is left to say so, never."""
LOOK_AGAIN_S = 0.1
Process = subprocess.Popen[bytes]


class Crew:
    """Each worker in a session of its own: a Ctrl-C is not theirs, and a kill takes their children too."""

    def __init__(self, home: Path, commands: Mapping[str, Sequence[str]]) -> None:
        self._home, self._commands = home, commands
        self._running: dict[str, Process] = {}
        self.kills: Counter[str] = Counter()
        # Whatever ends this process, even a kill, also closes the pipe the guard reads from.
        self._guard = subprocess.Popen(GUARD, stdin=subprocess.PIPE, start_new_session=True)

    def __enter__(self) -> Self:
        (self._home / LOGS).mkdir(exist_ok=True)
        try:
            for name in self._commands:
                self._start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def kill(self, name: str) -> None:
        """Kill a worker in the middle of whatever it does, and start it anew."""
        self.check()
        self._end(name)
        self.kills[name] += 1
        self._start(name)

    def check(self) -> None:
        """Raise EmulationError where a worker has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise EmulationError(self._ended(name, process.returncode))

    def stop(self, patience_s: float, look: Callable[[], None] = lambda: None) -> None:
        """Let every worker finish its turn; one that takes too long is killed, and counted as that."""
        self.check()
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + patience_s
        while any(process.poll() is None for process in self._running.values()) and time.monotonic() < deadline:
            look()
            time.sleep(LOOK_AGAIN_S)
        ended = {name: process.poll() for name, process in self._running.items()}
        for name in ended:
            self._end(name)
        self.kills.update(name for name, code in ended.items() if code is None)
        for name, code in ended.items():
            # One that was asked before it could listen had not begun.
            if code not in (None, 0, -signal.SIGTERM):
                raise EmulationError(self._ended(name, code))

    def close(self) -> None:
        """Kill whatever still runs."""
        for name in list(self._running):
            self._end(name)
        with suppress(BrokenPipeError):
            self._guard.communicate()

    def _start(self, name: str) -> None:
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                (*WHEN_TOLD, *self._commands[name]),
                env=os.environ | {"LEANOPS_HOME": str(self._home)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running[name] = process
        self._tell(f"+{process.pid}")
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as told:
            told.write(b"go\n")

    def _end(self, name: str) -> None:
        process = self._running.pop(name)
        # Also when it has ended: a child of its may not have.
        kill_group(process.pid)
        process.wait()
        self._tell(f"-{process.pid}")

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{line}\n".encode())
        self._guard.stdin.flush()

    def _ended(self, name: str, code: int | None) -> str:
        log = self._log(name)
        return f"the worker {name} ended by itself with {code}; the end of {log}: {_tail(log)}"

    def _log(self, name: str) -> Path:
        return self._home / LOGS / f"{name}.log"


def _tail(log: Path, lines: int = 5) -> str:
    return " / ".join(log.read_text(errors="replace").splitlines()[-lines:]) or "nothing"
