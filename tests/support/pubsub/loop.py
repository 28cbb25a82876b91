"""An event loop that waits for nothing but threads and sockets: where only timers are left, its clock jumps ahead."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Impatient(selectors.DefaultSelector):
    """A selector that adds up how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        self.skipped_s += 0 if ready else timeout
        return ready


class _Jumping(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.impatient = _Impatient()
        super().__init__(self.impatient)

    def time(self) -> float:
        return super().time() + self.impatient.skipped_s


def run_without_waiting(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's work in a loop whose timers take no time; it must not need a thread."""
    with asyncio.Runner(loop_factory=_Jumping) as runner:
        runner.run(work())
