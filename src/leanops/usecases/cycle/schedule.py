"""Cycles on a schedule, as a background part."""

import time

from leanops.domain.table.outcome import Outcome
from leanops.ports.state import IDEMPOTENCY_KEYS
from leanops.usecases.platform import Platform
from leanops.usecases.workers import CYCLES, Doing, Tell


class Schedule:
    """A cycle every `cycle_s` seconds, counted from start to start; the first at once."""

    def __init__(self, platform: Platform, cycle_s: float, tell: Tell, doing: Doing) -> None:
        self._platform, self._cycle_s, self._tell, self._doing = platform, cycle_s, tell, doing
        self._next = time.monotonic()

    def turn(self) -> int:
        """Run a cycle if its time has come; how many topics had work."""
        if time.monotonic() < self._next:
            return 0
        self._next = time.monotonic() + self._cycle_s
        self._doing("runs a cycle")
        from leanops.usecases.cycle.run import run_cycle

        self._platform.state.purge(IDEMPOTENCY_KEYS, "expires_at", self._platform.now_ms())
        # The schemas part resumes operations: one that takes hours delays no cycle.
        results = run_cycle(self._platform, finish=False)
        for result in results:
            if result.layers or result.failure or result.outcome is Outcome.LOCKED:
                self._tell(CYCLES, result.sentence())
        return sum(bool(result.layers) for result in results)
