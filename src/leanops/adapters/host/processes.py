"""The processes of this host, identified by the boot, the process namespace, the number and the time of their start."""

import hashlib
import os
import socket
from functools import cached_property
from pathlib import Path


class HostProcesses:
    """Marks like 4f1c09ab-4711-88123: the host, the number, and the start, which guards against a number used again.

    The host is a hash of its name, its boot and its process namespace, so that neither a container of the same
    name nor the same machine after a restart is mistaken for it. Where there is no /proc there are no marks.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    @cached_property
    def mark(self) -> str:
        """The mark of this process; empty where the host offers none."""
        start = self._start(os.getpid())
        return f"{self._host}-{os.getpid()}-{start}" if self._host and start else ""

    def has_ended(self, mark: str) -> bool:
        """Whether the process of this mark has certainly ended. In doubt, and on another host, it has not."""
        parts = mark.split("-")
        if len(parts) != 3 or not self._host or parts[0] != self._host or not parts[1].isdecimal():
            return False
        number, start = int(parts[1]), self._start(int(parts[1]))
        return not _is_there(number) if start is None else start != parts[2]

    @cached_property
    def _host(self) -> str:
        try:
            boot = (self._proc / "sys/kernel/random/boot_id").read_text().strip()
            namespace = (self._proc / "self/ns/pid").readlink()
        except OSError:
            return ""
        return hashlib.sha256(f"{socket.gethostname()} {boot} {namespace}".encode()).hexdigest()[:16]

    def _start(self, number: int) -> str | None:
        """When a process started, in ticks since the boot; "" if it has ended unreaped, None if unknown."""
        try:
            text = (self._proc / str(number) / "stat").read_text()
        except OSError:
            return None
        # The name, in parentheses, may hold anything; the state is the first word after it, the start the twentieth.
        words = text.rpartition(")")[2].split()
        return "" if words[0] in "ZX" else words[19]


def _is_there(number: int) -> bool:
    """Whether there is a process of this number, though /proc may hide those of other users."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
