"""When the next events of a soak are due, and when its next worker is killed."""

import re
import time
from collections.abc import Callable, Sequence
from random import Random

from leanops.domain.errors import UsageError

_DURATION = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
Now = Callable[[], float]


def seconds_of(text: str) -> int:
    """The seconds of `90s`, `30m` or `1h30m`; raises UsageError for anything else, and for zero."""
    match = _DURATION.fullmatch(text.strip())
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = hours * 3_600 + minutes * 60 + seconds
    if not total:
        raise UsageError(f"{text!r} is not a duration; write it as 90s, 30m or 1h30m")
    return total


class Pace:
    """A rate of events per second, for a number of seconds from now."""

    def __init__(self, rate: int, seconds: float, now: Now = time.monotonic) -> None:
        self.rate, self.seconds = rate, seconds
        self._now, self._started = now, now()

    @property
    def elapsed(self) -> float:
        return self._now() - self._started

    @property
    def is_over(self) -> bool:
        return self.elapsed >= self.seconds

    def owed(self, sent: int) -> int:
        """The number of events that are still to be sent by now; missed ones are made up for."""
        return int(min(self.elapsed, self.seconds) * self.rate) - sent


class Kills:
    """Picks a worker about every `every_s`; the seed decides when and which, and every worker has its turn."""

    def __init__(self, every_s: float, names: Sequence[str], seed: int, now: Now = time.monotonic) -> None:
        self._every_s, self._names, self._now = every_s, list(names), now
        self._random = Random(f"{seed}/kills")
        self._next = self._drawn()
        self._doomed: list[str] = []

    def due(self) -> str | None:
        """The worker to kill now, if it is time; a missed moment is not made up for."""
        if self._now() < self._next:
            return None
        self._next = self._drawn()
        self._doomed = self._doomed or self._random.sample(self._names, len(self._names))
        return self._doomed.pop()

    def _drawn(self) -> float:
        return self._now() + self._every_s * self._random.uniform(0.5, 1.5)
