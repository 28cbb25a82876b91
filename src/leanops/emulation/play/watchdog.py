"""The watchdog of every process an emulation starts: a process does not outlive the one that started it."""

import os
import signal
import threading
from multiprocessing.connection import wait


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
