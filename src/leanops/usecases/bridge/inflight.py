"""What the bridge has in flight: every message until it is acked or given back, within limits and under a lease."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from annotated_types import Ge, Le
from pydantic import Field

from leanops.domain.event.envelope import Envelope
from leanops.ports.source import Pulled

OVERHEAD_BYTES = 512
"""The memory a message takes besides its data."""
MOMENT_S = 0.02
"""How long one reader may take before the next is let in, while more than half of the limit is in flight."""
SUBSCRIPTION = r"^[A-Za-z0-9._~+%-]*\{topic\}[A-Za-z0-9._~+%-]*$"
Key: TypeAlias = tuple[str, str]
"""A subscription and an ordering key."""
Now: TypeAlias = Callable[[], float]
Tell: TypeAlias = Callable[..., object]
"""Called with what happened, then facts by name: a line for the operator. Never a payload."""


@dataclass(frozen=True)
class BridgeRules:
    """Limits and times of a bridge."""

    subscription: Annotated[str, Field(pattern=SUBSCRIPTION), "Id of a topic's subscription."] = "{topic}"
    mb: Annotated[int, Ge(1), "Megabytes in flight at which a bridge stops reading."] = 64
    messages: Annotated[int, Ge(1), "Messages in flight at which a bridge stops reading."] = 20_000
    events_per_message: Annotated[int, Ge(1), Le(1_000), "Events that may share one queue message."] = 1
    lease_s: Annotated[int, Ge(10), Le(600), "Seconds a bridge leases a message for; renewed before they end."] = 60
    hold_s: Annotated[int, Ge(1), "Seconds a message waits for the queue before it is given back."] = 600
    drain_s: Annotated[int, Ge(0), "Seconds a bridge that stops has to send what is in flight."] = 25
    linger_s: float = 0.02
    """How long a send waits for more messages."""
    longest_pause_s: float = 15
    first_pause_s: float = 0.25
    """The pause after a stream or a send fails; it doubles up to the longest."""
    look_s: float = 60
    """How often it looks for topics that were added or removed."""
    steady_s: float = 2.0
    """A stream that stays open this long is read, whether or not it has brought a message."""
    last_receipts_s: float = 5.0
    """How long a bridge that stops waits for its last acks and nacks."""

    @property
    def bytes(self) -> int:
        """The limit for reading; what was requested before the limit was reached is kept up to twice this."""
        return self.mb * 1_000_000

    def pause_s(self, failures: int) -> float:
        """How long to wait after N failures in a row, with jitter; the lease of a message in flight outlasts it."""
        longest = min(self.longest_pause_s, self.lease_s / 2, self.first_pause_s * 2.0 ** min(failures, 20))
        return random.uniform(longest / 2, longest)


@dataclass
class Counts:
    """What a bridge has done since it started."""

    received: int = 0
    received_bytes: int = 0
    forwarded: int = 0
    resent: int = 0
    returned: int = 0
    archived: int = 0
    acked: int = 0
    receipts_lost: int = 0
    extended: int = 0
    reconnects: int = 0
    sends: int = 0


@dataclass(eq=False)
class Stream:
    """One subscription and its state."""

    subscription: str
    topic: str
    is_asked: bool = False
    is_open: bool = False
    problem: str | None = None
    received: int = 0
    forwarded: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: str | None = None
    """Why none of its messages can be sent."""
    refusals: int = 0
    """How many sends in a row were refused."""

    @property
    def flows(self) -> bool:
        """Whether its messages can be read and sent."""
        return self.is_open and self.refusal is None


@dataclass(eq=False, slots=True)
class Held:
    """A message in flight."""

    stream: Stream
    pulled: Pulled
    size: int
    since: float
    leased_until: float
    claimed: Envelope | None = None
    """Its envelope, if its data is in a file already."""
    is_safe: bool = False
    """The queue has it; it stays in flight, and leased, until the source has confirmed the ack."""

    @property
    def key(self) -> Key | None:
        """The key whose messages must stay in order."""
        name = self.pulled.ordering_key
        return (self.stream.subscription, name) if name else None


@dataclass
class InFlight:
    """The messages in flight. One read may exceed the limits; then nothing more is read."""

    rules: BridgeRules
    now: Now = time.monotonic
    counts: Counts = field(default_factory=Counts)
    held: dict[Held, None] = field(default_factory=dict)
    bytes: int = 0
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _door: asyncio.Lock = field(default_factory=asyncio.Lock)
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _late: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._room.set()
        self._came.set()

    @property
    def overflows(self) -> bool:
        """Whether so much is in flight that not even what was requested before can be kept."""
        return self.bytes >= 2 * self.rules.bytes

    def take(self, stream: Stream, batch: Sequence[Pulled], leased: float | None = None) -> list[Held]:
        """Take messages in flight, leased from now or from an earlier moment."""
        now = self.now()
        until = (now if leased is None else leased) + self.rules.lease_s
        taken = [Held(stream, pulled, _size(pulled), now, until) for pulled in batch]
        self.held.update(dict.fromkeys(taken))
        self._weigh(sum(held.size for held in taken))
        self._came.set()
        if until <= self._due():
            self._late.set()
        return taken

    def let_go(self, messages: Sequence[Held]) -> None:
        """Remove messages that are acked or given back."""
        for held in messages:
            del self.held[held]
        self._weigh(-sum(held.size for held in messages))

    async def room(self) -> None:
        """Return when more may be read; above half of the limit, readers are let in one after the other."""
        async with self._door:
            if self.bytes > self.rules.bytes / 2:
                with suppress(TimeoutError):
                    async with asyncio.timeout(MOMENT_S):
                        await self._came.wait()
            # Another reader may have reached the limit meanwhile.
            while not self._room.is_set():
                await self._room.wait()
            self._came.clear()

    async def some_due(self) -> None:
        """Return when leases may have to be extended: now and then, and at once if some arrived late."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.rules.lease_s / 6):
                await self._late.wait()
        self._late.clear()

    def to_extend(self) -> Mapping[Stream, list[Held]]:
        """Messages whose leases are more than a third over, by stream."""
        due = self._due()
        messages: dict[Stream, list[Held]] = defaultdict(list)
        for held in self.held:
            if held.leased_until <= due:
                messages[held.stream].append(held)
        return messages

    def _due(self) -> float:
        return self.now() + self.rules.lease_s * 2 / 3

    @property
    def oldest_s(self) -> float:
        """How long the oldest message has been in flight."""
        first = next(iter(self.held), None)
        return self.now() - first.since if first else 0.0

    def _weigh(self, change: int) -> None:
        self.bytes += change
        if len(self.held) < self.rules.messages and self.bytes < self.rules.bytes:
            self._room.set()
        else:
            self._room.clear()


def _size(pulled: Pulled) -> int:
    attributes = sum(len(name) + len(value) for name, value in pulled.attributes.items()) if pulled.attributes else 0
    return len(pulled.data) + attributes + OVERHEAD_BYTES
