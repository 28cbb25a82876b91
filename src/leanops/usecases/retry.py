"""Retries through outages, with exponential backoff and full jitter, and claims renewed during long work."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from leanops.domain.errors import RetryableError

Answer = TypeVar("Answer")
LONGEST_WAIT_S = 15.0


@dataclass(frozen=True)
class Patience:
    """How long an outage is waited out, and how."""

    give_up: Callable[[], bool] = lambda: False
    sleep: Callable[[float], Any] = time.sleep
    longest_wait_s: float = LONGEST_WAIT_S
    on_wait: Callable[[BaseException], None] = lambda _outage: None
    """Called with the outage before every wait."""

    def within(self, seconds: float, now_s: Callable[[], float] = time.monotonic) -> "Patience":
        """The same patience for about this many seconds; 0 allows one attempt."""
        deadline = now_s() + seconds
        return replace(self, give_up=lambda: self.give_up() or now_s() >= deadline)

    def persist(self, work: Callable[[], Answer], hold: Callable[[], None] = lambda: None) -> Answer:
        """The result of the work; `hold` is called before every wait. Raises the last outage when it gives up."""

        def before_wait(tried: RetryCallState) -> None:
            if tried.outcome and (outage := tried.outcome.exception()):
                self.on_wait(outage)
            hold()

        retrying = Retrying(
            retry=retry_if_exception_type(RetryableError),
            wait=wait_random_exponential(multiplier=0.1, max=self.longest_wait_s),
            stop=lambda _: self.give_up(),
            sleep=self.sleep,
            before_sleep=before_wait,
            reraise=True,
        )
        answer: Answer = retrying(work)
        return answer


class Renewal:
    """Renews a claim when it is called and enough seconds have passed; threads may share it."""

    def __init__(self, renew: Callable[[], None], every_s: float) -> None:
        self._renew, self._every_s = renew, every_s
        self._renewed, self._lock = time.monotonic(), threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if time.monotonic() - self._renewed > self._every_s:
                self._renew()
                self._renewed = time.monotonic()
