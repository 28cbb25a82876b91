"""The publisher of a soak: it sends chunk by chunk, and writes what it sent into the ledger."""

from leanops.emulation import ledger
from leanops.emulation.events.generator import Message
from leanops.emulation.play.feed import send
from leanops.emulation.scenario import SOAK, Scenario
from leanops.runtimes.embedded import Embedded

EVENTS_PER_PART = 2_000


class Publisher:
    """Sends the events of a soak, a chunk of each topic in turn."""

    def __init__(self, runtime: Embedded, scenario: Scenario) -> None:
        self._runtime = runtime
        self._profiles, self._turns = scenario.names(), scenario.turns(SOAK)
        self._next = next(self._turns, None)
        self._unwritten: dict[str, list[Message]] = {topic: [] for topic in self._profiles}
        self._parts = 0
        self.sent = 0

    @property
    def has_begun(self) -> bool:
        """Whether every topic has had its turn: a topic without events could not be verified."""
        return self._next is None or self._next[1] > 0

    @property
    def is_done(self) -> bool:
        return self._next is None

    @property
    def next_size(self) -> int:
        """The number of events in the next chunk."""
        stream, index = self._next or (None, 0)
        return min(stream.size, stream.events - index * stream.size) if stream else 0

    def send_next(self) -> None:
        """Send the next chunk."""
        assert self._next is not None
        stream, index = self._next
        made = stream.chunk(index)
        send(self._runtime, stream.topic, made)
        unwritten = self._unwritten[stream.topic]
        unwritten += made
        if len(unwritten) >= EVENTS_PER_PART:
            self._write(stream.topic)
        self.sent += len(made)
        self._next = next(self._turns, None)

    def write(self) -> None:
        """Write into the ledger what is not there yet."""
        for topic in self._profiles:
            self._write(topic)

    def _write(self, topic: str) -> None:
        messages = self._unwritten[topic]
        if messages:
            ledger.write(self._runtime.home, topic, self._profiles[topic], f"{SOAK}-{self._parts:06d}", messages)
            self._unwritten[topic], self._parts = [], self._parts + 1
