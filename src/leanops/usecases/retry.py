"""Retries through outages, with exponential backoff and full jitter, until told to stop."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from leanops.domain.errors import RetryableError

Answer = TypeVar("Answer")
LONGEST_WAIT_S = 15.0


@dataclass(frozen=True)
class Patience:
    """How long an outage is waited out, and how."""

    give_up: Callable[[], bool] = lambda: False
    sleep: Callable[[float], object] = time.sleep
    longest_wait_s: float = LONGEST_WAIT_S
    on_wait: Callable[[BaseException], None] = lambda _outage: None
    """Told of the outage before every wait."""

    def within(self, seconds: float, now_s: Callable[[], float] = time.monotonic) -> "Patience":
        """The same patience for about this many seconds; 0 allows one attempt."""
        deadline = now_s() + seconds
        return replace(self, give_up=lambda: self.give_up() or now_s() >= deadline)

    def persist(self, work: Callable[[], Answer], hold: Callable[[], None] = lambda: None) -> Answer:
        """The result of the work; `hold` is called before every wait. Raises the last outage when it gives up."""
        retrying = Retrying(
            retry=retry_if_exception_type(RetryableError),
            wait=wait_random_exponential(multiplier=0.1, max=self.longest_wait_s),
            stop=lambda _: self.give_up(),
            sleep=self._sleep,
            before_sleep=lambda tried: self._before_wait(tried, hold),
            reraise=True,
        )
        answer: Answer = retrying(work)
        return answer

    def _before_wait(self, tried: RetryCallState, hold: Callable[[], None]) -> None:
        outage = tried.outcome.exception() if tried.outcome else None
        if outage:
            self.on_wait(outage)
        hold()

    def _sleep(self, seconds: float) -> None:
        self.sleep(seconds)
