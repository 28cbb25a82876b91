"""The background parts in one process, until stopped."""

import os
import signal
import threading
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.output import say
from leanops.usecases import workers as parts

SAME_SIGNAL_S = 1.0


class PartName(StrEnum):
    """A background part, as the command line and `status` name it."""

    PROCESSOR = parts.PROCESSOR
    DELIVERY = parts.DELIVERY
    DEAD_LETTERS = parts.DEAD_LETTERS
    SCHEMAS = parts.SCHEMAS
    CYCLES = parts.CYCLES


Only = Annotated[list[PartName] | None, typer.Option("--only", help="Only this part; repeatable. All if left out.")]


def serve(only: Only = None) -> None:
    """Bring events to Curated until stopped: processor, delivery, dead letters, schema files, cycles."""
    wanted = only or list(PartName)
    with opened() as runtime:
        from leanops.runtimes.background import parts_of
        from leanops.usecases.workers import Worker
        from leanops.usecases.workers import serve as run

        stopping = threading.Event()
        _stop_on_signals(stopping)
        platform = runtime.platform
        workers = [
            Worker(part, platform.state, platform.clock, platform.owner, stopping, _log, explain=platform.explain)
            for part in parts_of(runtime, stopping, _log)
            if part.name in wanted
        ]
        say(f"serving {runtime.name}: {', '.join(worker.part.name for worker in workers)}; stop with Ctrl-C")
        run(workers, stopping)
    say("stopped")


def _log(part: str, text: str) -> None:
    say(f"{datetime.now(UTC):%H:%M:%S} {part:<12} {text}")


def _stop_on_signals(stopping: threading.Event) -> None:
    """The first signal lets every part finish its turn; a second one ends the process at once, and loses nothing."""
    first = float("inf")

    def stop(number: int, _frame: object) -> None:
        nonlocal first
        # The terminal and the parent process may both pass on the same Ctrl-C.
        if time.monotonic() > first + SAME_SIGNAL_S:
            os._exit(128 + number)
        first = min(first, time.monotonic())
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
