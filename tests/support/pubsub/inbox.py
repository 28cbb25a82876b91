"""A source of messages in memory, and a bridge on it: for what Pub/Sub's emulator cannot be made to do."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leanops.adapters.files.folder import Folder
from leanops.adapters.sql.queue import SqlQueue
from leanops.adapters.sql.state import SqlState
from leanops.domain.errors import QueueUnavailableError, SourceUnavailableError
from leanops.domain.event.envelope import Envelope, envelopes_in
from leanops.domain.event.names import queue_name
from leanops.ports.clock import millis
from leanops.ports.files import Files
from leanops.ports.queue import Outgoing, Queue
from leanops.ports.source import Pulled, PullLimits
from leanops.ports.state import ERROR_TRACKER, Row
from leanops.usecases.bridge.bridge import Bridge, Look
from leanops.usecases.bridge.inflight import BridgeRules
from leanops.usecases.bridge.target import Target

RULES = BridgeRules(linger_s=0.0, longest_pause_s=0.05, first_pause_s=0.01, drain_s=5)


def message(number: int, data: bytes = b"{}", key: str = "", **attributes: str) -> Pulled:
    """A message of a subscription; its ack id is its number."""
    return Pulled(str(number), f"m{number}", 1_794_729_600_000_000 + number, data, attributes, key)


class Inbox:
    """The Source port in memory. A message given back is delivered again at once, and those of its key after it."""

    def __init__(self, *subscriptions: str) -> None:
        self.waiting: dict[str, deque[Sequence[Pulled]]] = {name: deque() for name in subscriptions}
        self.delivered: list[str] = []
        self.acked: list[str] = []
        self.returned: list[str] = []
        self.extended: list[str] = []
        self.calls: list[int] = []
        self.is_deaf = False
        self.unheard = 0
        self.redelivers = True
        self.asked: dict[str, int] = defaultdict(int)
        self._pulled: dict[str, Pulled] = {}
        self._some = asyncio.Event()

    def publish(self, subscription: str, *batch: Pulled) -> None:
        """Let the next read of the subscription give these."""
        self.waiting.setdefault(subscription, deque()).append(batch)
        self._pulled |= {pulled.ack_id: pulled for pulled in batch}
        self._some.set()

    def cut(self) -> None:
        """End every stream, as Pub/Sub does now and then."""
        for waiting in self.waiting.values():
            waiting.append([])
        self._some.set()

    async def pull(
        self, subscription: str, limits: PullLimits, stopping: asyncio.Event
    ) -> AsyncIterator[Sequence[Pulled]]:
        self.asked[subscription] += 1
        if subscription not in self.waiting:
            raise SourceUnavailableError(f"{subscription} does not exist; create it, or leave it out")
        yield []
        while True:
            while not self.waiting[subscription]:
                if stopping.is_set():
                    return
                self._some.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._some.wait(), 0.01)
            batch = self.waiting[subscription].popleft()
            if not batch:
                return
            self.delivered += [pulled.message_id for pulled in batch]
            yield batch

    async def ack(self, subscription: str, ack_ids: Sequence[str]) -> None:
        self._answer(ack_ids)
        self.acked += [self._pulled[ack_id].message_id for ack_id in ack_ids]

    async def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        self._answer(ack_ids)
        found = [self._pulled[ack_id] for ack_id in ack_ids]
        if seconds:
            self.extended += [pulled.message_id for pulled in found]
            return
        self.returned += [pulled.message_id for pulled in found]
        if self.redelivers:
            self.publish(subscription, *(replace_ack_id(pulled) for pulled in found))

    def _answer(self, ack_ids: Sequence[str]) -> None:
        if self.is_deaf:
            self.unheard += 1
            raise SourceUnavailableError("Pub/Sub does not answer")
        self.calls.append(len(ack_ids))


def replace_ack_id(pulled: Pulled) -> Pulled:
    """The same message, delivered once more."""
    return pulled._replace(ack_id=f"{pulled.ack_id}+")


class Gate(SqlQueue):
    """An embedded queue whose sends a test can hold up, refuse or take in part."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"sqlite:///{folder}/queue.db", lambda: millis(datetime.now(UTC)))
        self.judge: Callable[[Sequence[Outgoing]], list[int]] = lambda _messages: []
        self.sends: list[int] = []
        self.taken: list[str] = []

    def send(self, messages: Sequence[Outgoing]) -> list[int]:
        left = self.judge(messages)
        taken = [message for position, message in enumerate(messages) if position not in left]
        super().send(taken)
        self.sends.append(len(messages))
        self.taken += [one.message_id for message in taken for one in envelopes_in(message.body) if one.message_id]
        return left

    def envelopes(self, topic: str) -> list[Envelope]:
        """What waits for a topic."""
        received = self.receive(queue_name(topic), 10_000, 60)
        return [one for message in received for one in envelopes_in(message.body) if isinstance(one, Envelope)]


@asynccontextmanager
async def bridging(
    inbox: Inbox,
    queue: Queue,
    folder: Path,
    *subscriptions: str,
    told: list[Any] | None = None,
    files: Files | None = None,
    look: Look | None = None,
    **rules: Any,
) -> AsyncIterator[Bridge]:
    """A bridge at work, and drained in the end; the id of a subscription is that of its topic."""
    chosen = replace(RULES, **rules)
    kept = files or Folder(folder / "files")
    state = SqlState(f"sqlite:///{folder}/state.db")
    target = Target(queue, kept, state, lambda: datetime.now(UTC), chosen.events_per_message)
    topics = {name: name for name in subscriptions or inbox.waiting}
    said = told if told is not None else []
    bridge = Bridge(inbox, target, topics, chosen, lambda what, **facts: said.append((what, facts)), look=look)
    stopping = asyncio.Event()
    running = asyncio.create_task(bridge.run(stopping))
    try:
        yield bridge
    finally:
        stopping.set()
        try:
            await running
        finally:
            state.close()


def dead_letters(folder: Path) -> list[Row]:
    """What the bridge of this folder has archived."""
    state = SqlState(f"sqlite:///{folder}/state.db")
    found = [stored.row for stored in state.rows(ERROR_TRACKER)]
    state.close()
    return found


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's work in a loop of its own."""
    asyncio.run(work())


def away(_messages: Sequence[Outgoing]) -> list[int]:
    """A judge of a queue that does not answer."""
    raise QueueUnavailableError("the queue does not answer")
