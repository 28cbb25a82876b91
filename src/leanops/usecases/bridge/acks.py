"""Acks, nacks and lease extensions: batched calls to the source, each subscription independent of the others."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from leanops.domain.errors import SourceUnavailableError
from leanops.domain.groups import batched
from leanops.ports.source import MAX_IDS, Source
from leanops.usecases.bridge.inflight import Held, InFlight

GATHER_S = 0.1
FAILED_PAUSE_S = 1.0
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Errands:
    """At most one task per name, so that a slow one delays no other."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: list[asyncio.Task[None]] = []
        self._failed = asyncio.Event()

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def start(self, name: str, work: Work) -> None:
        """Run the work under a free name; the name is free again as soon as the work returns."""
        self._tasks[name] = asyncio.create_task(self._run(name, work))

    async def settle(self) -> None:
        """Return when nothing runs."""
        while self._tasks and not self._failed.is_set():
            await asyncio.wait(list(self._tasks.values()))

    async def watch(self) -> None:
        """Run until cancelled, which cancels every task; raise the unforeseen failure of a task."""
        try:
            await self._failed.wait()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, *self._ended, return_exceptions=True)
        raise next(failure for failure in ended if isinstance(failure, Exception))

    async def _run(self, name: str, work: Work) -> None:
        try:
            await work()
        except BaseException:
            self._ended.append(self._tasks[name])
            self._failed.set()
            raise
        finally:
            del self._tasks[name]


@dataclass
class _Gathered:
    """The acks and nacks that a subscription has not been sent yet, in order."""

    acks: list[Held] = field(default_factory=list)
    nacks: list[Held] = field(default_factory=list)


class Receipts:
    """Acks and nacks in batches; if one never reaches the source the message is redelivered, not lost."""

    def __init__(self, source: Source, in_flight: InFlight) -> None:
        self._source, self._in_flight, self._counts = source, in_flight, in_flight.counts
        self._call_s = in_flight.rules.lease_s / 3
        self._gathered: dict[str, _Gathered] = defaultdict(_Gathered)
        self.errands = Errands()

    def ack(self, messages: Sequence[Held]) -> None:
        """Acknowledge messages that are in the queue; they stay in flight until the source has confirmed it."""
        for held in messages:
            held.is_safe = True
            self._of(held).acks.append(held)

    def nack(self, messages: Sequence[Held]) -> None:
        """Give messages back; they are no longer in flight."""
        self._in_flight.let_go(messages)
        for held in messages:
            self._of(held).nacks.append(held)

    def _of(self, held: Held) -> _Gathered:
        name = held.stream.subscription
        gathered = self._gathered[name]
        if name not in self.errands:
            self.errands.start(name, partial(self._send_all, name, gathered))
        return gathered

    async def _send_all(self, subscription: str, gathered: _Gathered) -> None:
        pause = GATHER_S
        while True:
            await asyncio.sleep(pause)
            is_sent = await self._send(subscription, gathered)
            if not gathered.acks and not gathered.nacks:
                return
            pause = GATHER_S if is_sent else FAILED_PAUSE_S

    async def _send(self, subscription: str, gathered: _Gathered) -> bool:
        """Send everything gathered so far; the rest of a failed send stays for as long as its leases last."""
        try:
            while messages := gathered.acks[:MAX_IDS]:
                async with asyncio.timeout(self._call_s):
                    await self._source.ack(subscription, _ids(messages))
                del gathered.acks[: len(messages)]
                self._in_flight.let_go(messages)
                self._counts.acked += len(messages)
            while messages := gathered.nacks[:MAX_IDS]:
                async with asyncio.timeout(self._call_s):
                    await self._source.extend(subscription, _ids(messages), 0)
                del gathered.nacks[: len(messages)]
        except (SourceUnavailableError, TimeoutError):
            self._drop_expired(gathered)
            return False
        return True

    def _drop_expired(self, gathered: _Gathered) -> None:
        """Drop receipts whose lease has ended: the source would ignore them."""
        now = self._in_flight.now()
        expired = [held for held in gathered.acks if held.leased_until <= now]
        self._in_flight.let_go(expired)
        for receipts in (gathered.acks, gathered.nacks):
            before = len(receipts)
            receipts[:] = [held for held in receipts if held.leased_until > now]
            self._counts.receipts_lost += before - len(receipts)


async def keep_leased(source: Source, in_flight: InFlight) -> None:
    """Extend the leases of messages in flight before they end, until cancelled."""
    lease_s, errands = in_flight.rules.lease_s, Errands()

    async def extend(subscription: str, messages: Sequence[Held]) -> None:
        # The source counts from some moment within the call.
        until = in_flight.now() + lease_s
        try:
            async with asyncio.timeout(lease_s / 3):
                await source.extend(subscription, _ids(messages), lease_s)
        except (SourceUnavailableError, TimeoutError):
            # The next round retries; once a lease has ended the message may be delivered again.
            return
        for held in messages:
            held.leased_until = until
        in_flight.counts.extended += len(messages)

    async def extend_all(subscription: str, due: Sequence[Held]) -> None:
        await asyncio.gather(*(extend(subscription, messages) for messages in batched(due, MAX_IDS)))

    async def look() -> None:
        while True:
            await in_flight.some_due()
            for stream, due in in_flight.to_extend().items():
                if stream.subscription not in errands:
                    errands.start(stream.subscription, partial(extend_all, stream.subscription, due))

    errands.start("", look)
    await errands.watch()


def _ids(messages: Sequence[Held]) -> list[str]:
    return [held.pulled.ack_id for held in messages]
