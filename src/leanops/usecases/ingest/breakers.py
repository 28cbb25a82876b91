"""Circuit breakers kept in the state store: asked before a receive, told after it, by as many workers as there are."""

import secrets
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
    """What one worker knows of a queue: the row it saw last, and the successes nobody has asked for yet."""

    stored: Stored | None = None
    is_fresh: bool = False
    """It was read for the receive that is going on."""
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
    """Where the platform and not a worker receives."""
    worker: str = field(default_factory=lambda: secrets.token_hex(8))
    _memories: dict[str, _Memory] = field(default_factory=dict)

    def may_receive(self, queue: str, usual: int) -> int:
        """How many messages may be received now: none while it is open, a few by the one who probes."""
        memory = self._memory(queue)
        stored = memory.stored = self.state.get(BREAKERS, (queue,))
        memory.is_fresh, found = True, _breaker(stored)
        if found.state is State.CLOSED:
            return usual
        now = millis(self.clock())
        if not self._may_probe(found, now):
            return 0
        probe = found.probed_by(self.worker, self.rules, now)
        try:
            memory.stored = self._put(queue, probe, stored)
        except StateConflictError:
            return 0
        return min(usual, self.rules.probe_messages)

    def report(self, queue: str, succeeded: int, failed: int) -> Breaker:
        """The breaker after a receive that came out so; whoever loses a race counts again on what the other left."""
        memory, now = self._memory(queue), millis(self.clock())
        if not 0 <= now - memory.since < self.rules.window_s * 1000:
            memory.since, memory.succeeded = now, 0
        memory.succeeded += succeeded

        def told(found: Breaker) -> Breaker:
            if found.is_probe_of(self.worker):
                return found.answered(self.rules, now, succeeded, failed)
            if failed or found.is_counting(self.rules, now):
                return found.counted(self.rules, now, memory.succeeded, failed)
            return found

        return self._told(queue, told, memory)

    def outage(self, queue: str, reason: str) -> Breaker:
        """The breaker after a receive that met an outage: open, because every further receive would meet it, too."""
        now = millis(self.clock())
        return self._told(queue, lambda found: found.stopped(reason, now), self._memory(queue))

    def _told(self, queue: str, told: Callable[[Breaker], Breaker], memory: _Memory) -> Breaker:
        before, after = self._change(queue, told, memory)
        memory.is_fresh = False
        if after is not before:
            memory.succeeded = 0
        if self.switch and after.state is State.OPEN and before.state is not State.OPEN:
            self.switch.stop(queue)
        return after

    def _may_probe(self, found: Breaker, now: int) -> bool:
        """Whether this worker may take the probe; where a switch is, turn_switches begins it and one worker takes it.

        A worker that began one by itself would close the breaker over a queue whose switch is off.
        """
        if self.switch:
            return found.state is State.HALF_OPEN and found.probe == ANYONE
        return found.may_be_probed(self.rules, now)

    def why_stopped(self, queue: str) -> str | None:
        """Why a queue is not read, if it is not."""
        found = _breaker(self.state.get(BREAKERS, (queue,)))
        if found.state is State.CLOSED or found.may_be_probed(self.rules, millis(self.clock())):
            return None
        return found.reason or "its breaker was opened by hand"

    def open(self, queue: str, reason: str | None) -> Breaker:
        """Stop consumption until it is started by hand."""
        now = millis(self.clock())
        _, after = self._change(queue, lambda _: opened_by_hand(reason, now))
        if self.switch:
            self.switch.stop(queue)
        return after

    def close(self, queue: str) -> Breaker:
        """Consume again, and forget the failures."""
        now = millis(self.clock())
        # First, because a breaker that says closed must never stand over a queue that nobody starts.
        if self.switch:
            self.switch.start(queue)
        _, after = self._change(queue, lambda _: closed_by_hand(now))
        return after

    def turn_switches(self) -> list[str]:
        """Called every minute where a switch is: stop what is open once more, and start probes; which were begun."""
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
        found, queue, now = _breaker(stored), str(stored.row["queue"]), millis(self.clock())
        if found.may_be_probed(self.rules, now):
            return self._begin_probe(queue, found.probed_by(ANYONE, self.rules, now), stored)
        if self.switch and found.state is State.OPEN:
            self.switch.stop(queue)
        return []

    def _begin_probe(self, queue: str, probe: Breaker, stored: Stored) -> list[str]:
        try:
            self._put(queue, probe, stored)
        except StateConflictError:
            return []
        if self.switch:
            self.switch.start(queue)
        return [queue]

    def _change(
        self, queue: str, change: Callable[[Breaker], Breaker], seen: _Memory | None = None
    ) -> tuple[Breaker, Breaker]:
        """The breaker before and after a change; the very same one where nothing was to be written."""
        stored = seen.stored if seen and seen.is_fresh else self.state.get(BREAKERS, (queue,))
        while True:
            before = _breaker(stored)
            after = change(before)
            if after is before:
                return before, after
            try:
                self._put(queue, after, stored)
            except StateConflictError:
                stored = self.state.get(BREAKERS, (queue,))
                continue
            return before, after

    def _put(self, queue: str, breaker: Breaker, stored: Stored | None) -> Stored:
        row: Row = {"queue": queue, **asdict(breaker), "state": breaker.state.value}
        return Stored(row, self.state.put(BREAKERS, row, expected=stored.revision if stored else None))

    def _memory(self, queue: str) -> _Memory:
        return self._memories.setdefault(queue, _Memory())


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
