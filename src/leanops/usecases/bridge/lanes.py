"""Messages that wait to be sent, in one lane per topic, and the order that ordering keys keep."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from leanops.usecases.bridge.inflight import BridgeRules, Held, Key, Now

SEND_EVENTS = 5_000
SEND_BYTES = 16 << 20


@dataclass(eq=False)
class Lane:
    """The waiting messages of one topic, in order, and when they may be tried."""

    waiting: deque[Held] = field(default_factory=deque)
    retry_at: float = 0.0
    failures: int = 0
    """Consecutive sends that took nothing of the topic."""
    reason: str | None = None
    """Why it is held up."""
    stuck_since: float = 0.0
    is_reported: bool = False


class Lanes:
    """Every lane that has messages or is held up; a topic that is held up does not hold up others."""

    def __init__(self, rules: BridgeRules, now: Now) -> None:
        self._rules, self._now = rules, now
        self._lanes: dict[str, Lane] = defaultdict(Lane)

    def __len__(self) -> int:
        """How many messages wait."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    @property
    def stuck(self) -> Mapping[str, Lane]:
        """The lanes that are held up, by topic."""
        return {topic: lane for topic, lane in self._lanes.items() if lane.reason and lane.waiting}

    def add(self, messages: Iterable[Held]) -> None:
        """Append messages to the lanes of their topics."""
        for held in messages:
            self._lanes[held.stream.topic].waiting.append(held)

    def next_batch(self) -> list[Held]:
        """What to send now: a share of every topic that may be tried; topics left out come first next time."""
        ready = [topic for topic, lane in self._lanes.items() if lane.waiting and lane.retry_at <= self._now()]
        batch: list[Held] = []
        size = 0
        for topic in ready:
            if size >= SEND_BYTES or len(batch) >= SEND_EVENTS:
                break
            lane = self._lanes[topic] = self._lanes.pop(topic)
            share = size + max(1, SEND_BYTES // len(ready))
            for _ in range(max(1, SEND_EVENTS // len(ready))):
                if not lane.waiting or size >= share:
                    break
                batch.append(lane.waiting.popleft())
                size += batch[-1].size
        return batch

    def due_s(self) -> float | None:
        """Seconds until a message may be tried; None if nothing waits."""
        waiting = [lane.retry_at for lane in self._lanes.values() if lane.waiting]
        return max(0.0, min(waiting) - self._now()) if waiting else None

    def hurry(self) -> None:
        """Let everything be tried now."""
        for lane in self._lanes.values():
            lane.retry_at = 0.0

    def hold_up(self, again: Mapping[str, Sequence[Held]], reasons: Mapping[str, str], moved: set[str]) -> None:
        """Put messages back at the front of their lanes and pause these, longer if nothing of a topic has moved."""
        now = self._now()
        failures = {topic: 1 if topic in moved else self._lanes[topic].failures + 1 for topic in again}
        # Topics that failed together are tried together.
        pauses = {count: self._rules.pause_s(count - 1) for count in set(failures.values())}
        for topic, messages in again.items():
            lane = self._lanes[topic]
            lane.waiting.extendleft(reversed(messages))
            lane.failures = failures[topic]
            lane.retry_at = now + pauses[lane.failures]
            lane.stuck_since = lane.stuck_since if lane.reason else now
            lane.reason = reasons[topic]

    def release(self, topic: str) -> bool:
        """Hold a topic up no longer; whether its wait had been reported."""
        lane = self._lanes.pop(topic, Lane())
        if lane.waiting:
            self._lanes[topic] = Lane(lane.waiting)
        return lane.is_reported

    def withdraw(self, topic: str, keys: set[Key], oldest: float) -> list[Held]:
        """Take out of a lane messages from before this moment or with one of these keys, and what follows them."""
        lane = self._lanes[topic]
        out: list[Held] = []
        left: deque[Held] = deque()
        for held in lane.waiting:
            if held.key in keys or held.since < oldest:
                out.append(held)
                keys |= {held.key} if held.key else set()
            else:
                left.append(held)
        lane.waiting = left
        return out


class Turns:
    """Knows, for a while, which message of a key has to be delivered again before any other of that key."""

    def __init__(self, patience_s: float, now: Now) -> None:
        self._patience_s, self._now = patience_s, now
        # In the order in which the waits end; a plain dict is slow to find its first after many have left.
        self._awaited: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    def break_off(self, held: Held) -> None:
        """Note that a message was given back; of its key, it is the next unless an earlier one is awaited."""
        self._forget()
        key = held.key
        if key is not None and key not in self._awaited:
            self._awaited[key] = held.pulled.message_id, self._now() + self._patience_s

    def is_early(self, held: Held) -> bool:
        """Whether another message of its key has to come first; the one awaited ends the wait."""
        self._forget()
        key = held.key
        if key is None or key not in self._awaited:
            return False
        if held.pulled.message_id == self._awaited[key][0]:
            del self._awaited[key]
            return False
        return True

    def _forget(self) -> None:
        """Stop waiting for messages whose time is over; each is looked at once."""
        now = self._now()
        while self._awaited and next(iter(self._awaited.values()))[1] <= now:
            self._awaited.popitem(last=False)
