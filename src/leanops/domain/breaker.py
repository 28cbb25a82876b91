"""The circuit breaker of a queue: counts failures over a window, stops consumption, and lets one probe through."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

ANYONE = "*"
"""The holder of a probe that every worker may answer for, where a switch and not a worker begins it."""


class State(StrEnum):
    """Whether a queue is consumed."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True)
class BreakerRules:
    """When a breaker opens, and how it closes again."""

    error_rate: Annotated[float, Gt(0), Le(1), "Share of failing events that stops a topic; 0.05 is strict."] = 0.5
    min_events: Annotated[int, Ge(1), "Events a window needs before its error rate counts."] = 20
    window_s: Annotated[int, Ge(1), "Seconds over which the error rate is measured."] = 60
    pause_s: Annotated[int, Ge(1), "Seconds a topic stays stopped before a probe."] = 60
    probe_messages: int = 10


@dataclass(frozen=True)
class Breaker:
    """One queue's breaker; times are epoch milliseconds."""

    state: State = State.CLOSED
    reason: str | None = None
    window_start: int = 0
    succeeded: int = 0
    failed: int = 0
    changed_at: int = 0
    forced: bool = False
    """Opened by hand: it stays so until it is closed by hand."""
    probe: str | None = None
    """Who probes."""
    probe_until: int = 0

    def is_counting(self, rules: BreakerRules, now: int) -> bool:
        """Whether a window with failures is open, so that successes matter."""
        return self.state is State.CLOSED and self.failed > 0 and 0 <= now - self.window_start < rules.window_s * 1000

    def counted(self, rules: BreakerRules, now: int, succeeded: int, failed: int) -> "Breaker":
        """After a receive: in the open window, or in a new one that begins here."""
        if self.state is not State.CLOSED:
            return self
        going_on = self if self.is_counting(rules, now) else replace(self, window_start=now, succeeded=0, failed=0)
        after = replace(going_on, succeeded=going_on.succeeded + succeeded, failed=going_on.failed + failed)
        events = after.succeeded + after.failed
        if events < rules.min_events or after.failed <= rules.error_rate * events:
            return after
        reason = f"{after.failed:,} of {events:,} events failed within {rules.window_s} s"
        return replace(after, state=State.OPEN, reason=reason, changed_at=now)

    def stopped(self, reason: str, now: int) -> "Breaker":
        """After an outage: open at once, however few events met it; a probe that met one has failed."""
        if self.state is State.OPEN:
            return self
        return replace(self, state=State.OPEN, reason=reason, changed_at=now, probe=None, probe_until=0)

    def may_be_probed(self, rules: BreakerRules, now: int) -> bool:
        """Whether the pause is over, or a probe was started and never finished."""
        if self.state is State.HALF_OPEN:
            return not now < self.probe_until <= now + rules.pause_s * 1000
        # A change later than now came before the clock was set back.
        return self.state is State.OPEN and not self.forced and not 0 <= now - self.changed_at < rules.pause_s * 1000

    def probed_by(self, worker: str, rules: BreakerRules, now: int) -> "Breaker":
        """With the one probe in this worker's hands."""
        return replace(self, state=State.HALF_OPEN, probe=worker, probe_until=now + rules.pause_s * 1000)

    def is_probe_of(self, worker: str) -> bool:
        return self.state is State.HALF_OPEN and self.probe in (worker, ANYONE)

    def answered(self, rules: BreakerRules, now: int, succeeded: int, failed: int) -> "Breaker":
        """After a probe: closed, or open for another pause; a probe without messages decides nothing."""
        if succeeded + failed == 0:
            return self
        if failed <= rules.error_rate * (succeeded + failed):
            return Breaker(changed_at=now)
        reason = f"{failed:,} of {succeeded + failed:,} events of a probe failed"
        return self.stopped(reason, now)


def opened_by_hand(reason: str | None, now: int) -> Breaker:
    """Open until it is closed by hand."""
    return Breaker(State.OPEN, reason or "opened by hand", changed_at=now, forced=True)


def closed_by_hand(now: int) -> Breaker:
    """Closed, and its failures forgotten."""
    return Breaker(changed_at=now)


def breaker_of(row: Mapping[str, Any]) -> Breaker:
    """The breaker in a row of the state store; a column without a value has its default."""
    known = {field.name: row[field.name] for field in fields(Breaker) if row[field.name] is not None}
    return Breaker(**{**known, "state": State(row["state"] or State.CLOSED)})
