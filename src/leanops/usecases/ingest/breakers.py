"""Circuit breakers in the state store: every worker asks before a receive and reports after it."""

import secrets
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from leanops.domain.breaker import (
    ANYONE,
    Breaker,
    BreakerRules,
    State,
    breaker_of,
    closed_by_hand,
    opened_by_hand,
)
from leanops.domain.errors import LeanOpsError, StateConflictError
from leanops.domain.event.names import queue_name
from leanops.ports.clock import Clock, millis
from leanops.ports.queue import ConsumptionSwitch
from leanops.ports.state import BREAKERS, Row, StateStore, Stored
from leanops.usecases.audit import record_action
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import find_topic


@dataclass
class _Memory:
    """What one worker knows of a queue: the row it read last, and the successes that are not written yet."""

    stored: Stored | None = None
    is_fresh: bool = False
    """It was read for the current receive."""
    since: int = 0
    succeeded: int = 0


@dataclass
class Breakers:
    """The breakers of every queue as one worker sees them; a queue without a row is closed.

    A closed one costs a read for each receive, and a write only while failures are being counted.
    """

    state: StateStore
    clock: Clock
    rules: BreakerRules = field(default_factory=BreakerRules)
    switch: ConsumptionSwitch | None = None
    """Set where the platform receives, and not a worker."""
    worker: str = field(default_factory=lambda: secrets.token_hex(8))
    _memories: dict[str, _Memory] = field(default_factory=lambda: defaultdict(_Memory))

    def may_receive(self, queue: str, usual: int) -> int:
        """The number of messages that may be received now: none while it is open, a few by the worker that probes."""
        memory = self._memories[queue]
        memory.stored, memory.is_fresh = self.state.get(BREAKERS, (queue,)), True
        breaker = _breaker(memory.stored)
        if breaker.state is State.CLOSED:
            return usual
        now = millis(self.clock())
        if not self._may_probe(breaker, now):
            return 0
        probe = self._put(queue, breaker.probed_by(self.worker, self.rules, now), memory.stored)
        memory.stored = probe or memory.stored
        return min(usual, self.rules.probe_messages) if probe else 0

    def report(self, queue: str, succeeded: int, failed: int) -> Breaker:
        """The breaker after a receive with this result; after a lost race it is counted on the row that won."""
        memory, now = self._memories[queue], millis(self.clock())
        if not 0 <= now - memory.since < self.rules.window_s * 1000:
            memory.since, memory.succeeded = now, 0
        memory.succeeded += succeeded

        def count(breaker: Breaker) -> Breaker:
            if breaker.is_probe_of(self.worker):
                return breaker.answered(self.rules, now, succeeded, failed)
            if failed or breaker.is_counting(self.rules, now):
                return breaker.counted(self.rules, now, memory.succeeded, failed)
            return breaker

        return self._after_receive(queue, count, memory)

    def outage(self, queue: str, reason: str) -> Breaker:
        """The breaker after a receive that met an outage: open, because every further receive would meet it, too."""
        now = millis(self.clock())
        return self._after_receive(queue, lambda breaker: breaker.stopped(reason, now), self._memories[queue])

    def _after_receive(self, queue: str, change: Callable[[Breaker], Breaker], memory: _Memory) -> Breaker:
        before, after = self._change(queue, change, memory)
        memory.is_fresh = False
        if after is not before:
            memory.succeeded = 0
        if self.switch and after.state is State.OPEN and before.state is not State.OPEN:
            self.switch.stop(queue)
        return after

    def _may_probe(self, breaker: Breaker, now: int) -> bool:
        """Whether this worker may take the probe; with a switch, turn_switches begins it and one worker takes it.

        A worker that began one by itself would close the breaker of a queue whose switch is off.
        """
        if self.switch:
            return breaker.state is State.HALF_OPEN and breaker.probe == ANYONE
        return breaker.may_be_probed(self.rules, now)

    def why_stopped(self, queue: str) -> str | None:
        """Why a queue is not read, if it is not."""
        breaker = _breaker(self.state.get(BREAKERS, (queue,)))
        if breaker.state is State.CLOSED or breaker.may_be_probed(self.rules, millis(self.clock())):
            return None
        return breaker.reason or "opened by hand"

    def open(self, queue: str, reason: str | None) -> None:
        """Stop consumption until it is started by hand."""
        now = millis(self.clock())
        self._change(queue, lambda _: opened_by_hand(reason, now))
        if self.switch:
            self.switch.stop(queue)

    def close(self, queue: str) -> None:
        """Consume again, and forget the failures."""
        now = millis(self.clock())
        # First, because a closed breaker must never belong to a queue that nobody starts.
        if self.switch:
            self.switch.start(queue)
        self._change(queue, lambda _: closed_by_hand(now))

    def turn_switches(self) -> list[str]:
        """Stop open queues again and begin probes, every minute if there is a switch; returns the queues probed."""
        begun: list[str] = []
        failures: list[LeanOpsError] = []
        for stored in self.state.rows(BREAKERS):
            try:
                begun += self._turn_switch(stored)
            except LeanOpsError as failure:  # one mapping that is being changed must not stop the others
                failures.append(failure)
        if failures:
            raise failures[0]
        return begun

    def _turn_switch(self, stored: Stored) -> list[str]:
        breaker, queue, now = _breaker(stored), str(stored.row["queue"]), millis(self.clock())
        if not breaker.may_be_probed(self.rules, now):
            if self.switch and breaker.state is State.OPEN:
                self.switch.stop(queue)
            return []
        if not self._put(queue, breaker.probed_by(ANYONE, self.rules, now), stored):
            return []
        if self.switch:
            self.switch.start(queue)
        return [queue]

    def _change(
        self, queue: str, change: Callable[[Breaker], Breaker], seen: _Memory | None = None
    ) -> tuple[Breaker, Breaker]:
        """The breaker before and after a change; the same object if nothing had to be written."""
        stored = seen.stored if seen and seen.is_fresh else self.state.get(BREAKERS, (queue,))
        while True:
            before = _breaker(stored)
            after = change(before)
            if after is before or self._put(queue, after, stored):
                return before, after
            stored = self.state.get(BREAKERS, (queue,))

    def _put(self, queue: str, breaker: Breaker, stored: Stored | None) -> Stored | None:
        """The row as written; None if another worker has changed it meanwhile."""
        row: Row = {"queue": queue, **asdict(breaker), "state": breaker.state.value}
        try:
            return Stored(row, self.state.put(BREAKERS, row, expected=stored.revision if stored else None))
        except StateConflictError:
            return None


def _breaker(stored: Stored | None) -> Breaker:
    return breaker_of(stored.row) if stored else Breaker()


def open_breaker(platform: Platform, breakers: Breakers, topic: str, reason: str | None) -> None:
    """Stop consuming a topic's queue until a person closes its breaker."""
    breakers.open(queue_name(find_topic(platform, topic).name), reason)
    record_action(platform, "breaker open", [topic], {"reason": reason})


def close_breaker(platform: Platform, breakers: Breakers, topic: str) -> None:
    """Consume a topic's queue again, and forget its failures."""
    breakers.close(queue_name(find_topic(platform, topic).name))
    record_action(platform, "breaker close", [topic])
