"""A process that was started by another one, and must not stay when that one is gone."""

import gc
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import parent_process


def when_gone(do: Callable[[], object]) -> None:
    """Do something as soon as the process that started this one has ended, however it did."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        do()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def begin_making() -> None:
    """What a process that makes events does first."""
    # A terminal sends Ctrl-C to every process; the emulation decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Events are many and hold no cycles: collecting them is a fifth of the work.
    gc.disable()
    when_gone(lambda: os._exit(1))
