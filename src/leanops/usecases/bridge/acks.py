"""What the bridge tells the source of messages: acks, nacks, extensions; many in a call, each subscription apart."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from leanops.domain.errors import SourceUnavailableError
from leanops.ports.source import MAX_IDS, Source
from leanops.usecases.bridge.inflight import Counts, Held, InFlight

GATHER_S = 0.1
FAILED_PAUSE_S = 1.0
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Errands:
    """One task per name at most, so that a slow one delays no other."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: list[asyncio.Task[None]] = []
        self._failed = asyncio.Event()

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def start(self, name: str, work: Work) -> None:
        """Let the work run under a name that is free, and is again in the moment in which the work returns."""
        self._tasks[name] = asyncio.create_task(self._run(name, work))

    async def settle(self) -> None:
        """Return when nothing runs."""
        while self._tasks and not self._failed.is_set():
            await asyncio.wait(list(self._tasks.values()))

    async def watch(self) -> None:
        """Go on until cancelled, which ends every task; an unforeseen failure of one is raised."""
        try:
            await self._failed.wait()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, *self._ended, return_exceptions=True)
        raise next(one for one in ended if isinstance(one, Exception))

    async def _run(self, name: str, work: Work) -> None:
        is_well = False
        try:
            await work()
            is_well = True
        finally:
            task = self._tasks.pop(name)
            if not is_well:
                self._ended.append(task)
                self._failed.set()


@dataclass
class _Gathered:
    """What one subscription has not heard yet, in order."""

    acks: list[Held] = field(default_factory=list)
    nacks: list[Held] = field(default_factory=list)


class Receipts:
    """Acks and nacks, gathered for a moment; one that the source never hears means a second delivery, no loss."""

    def __init__(self, source: Source, in_flight: InFlight, counts: Counts) -> None:
        self._source, self._in_flight, self._counts = source, in_flight, counts
        self._call_s = in_flight.rules.lease_s / 3
        self._gathered: dict[str, _Gathered] = defaultdict(_Gathered)
        self._errands = Errands()

    def ack(self, some: Iterable[Held]) -> None:
        """Tell the source soon that the queue has these; until it has heard it they stay in flight."""
        for held in some:
            held.is_safe = True
            self._of(held).acks.append(held)

    def nack(self, some: Sequence[Held]) -> None:
        """Give these back soon; they are in flight no longer."""
        self._in_flight.let_go(some)
        for held in some:
            self._of(held).nacks.append(held)

    async def run(self) -> None:
        """Go on until cancelled."""
        await self._errands.watch()

    async def settle(self) -> None:
        """Return when everything is told."""
        await self._errands.settle()

    def _of(self, held: Held) -> _Gathered:
        name = held.stream.subscription
        gathered = self._gathered[name]
        if name not in self._errands:
            self._errands.start(name, partial(self._tell_all, name, gathered))
        return gathered

    async def _tell_all(self, subscription: str, gathered: _Gathered) -> None:
        pause = GATHER_S
        while True:
            await asyncio.sleep(pause)
            is_heard = await self._tell(subscription, gathered)
            if not gathered.acks and not gathered.nacks:
                return
            pause = GATHER_S if is_heard else FAILED_PAUSE_S

    async def _tell(self, subscription: str, gathered: _Gathered) -> bool:
        """Tell everything gathered until now; what is not heard stays, as long as its lease lasts."""
        try:
            while some := gathered.acks[:MAX_IDS]:
                async with asyncio.timeout(self._call_s):
                    await self._source.ack(subscription, _ids(some))
                del gathered.acks[: len(some)]
                self._in_flight.let_go(some)
                self._counts.acked += len(some)
            while some := gathered.nacks[:MAX_IDS]:
                async with asyncio.timeout(self._call_s):
                    await self._source.extend(subscription, _ids(some), 0)
                del gathered.nacks[: len(some)]
        except (SourceUnavailableError, TimeoutError):
            self._give_up(gathered)
            return False
        return True

    def _give_up(self, gathered: _Gathered) -> None:
        """Forget those whose lease is over: telling has no use any more."""
        now = self._in_flight.now()
        lost = [held for held in gathered.acks if held.leased_until <= now]
        self._in_flight.let_go(lost)
        before = len(gathered.acks) + len(gathered.nacks)
        gathered.acks = [held for held in gathered.acks if held.leased_until > now]
        gathered.nacks = [held for held in gathered.nacks if held.leased_until > now]
        self._counts.receipts_lost += before - len(gathered.acks) - len(gathered.nacks)


async def keep_leased(source: Source, in_flight: InFlight, counts: Counts) -> None:
    """Extend the leases of what is in flight, in time, until cancelled."""
    lease_s, errands = in_flight.rules.lease_s, Errands()

    async def extend(subscription: str, some: Sequence[Held]) -> None:
        # The source counts from somewhere within the call.
        until = in_flight.now() + lease_s
        try:
            async with asyncio.timeout(lease_s / 3):
                await source.extend(subscription, _ids(some), lease_s)
        except (SourceUnavailableError, TimeoutError):
            # It is tried again at the next look; after the lease the message may come a second time.
            return
        for held in some:
            held.leased_until = until
        counts.extended += len(some)

    async def extend_all(subscription: str, due: Sequence[Held]) -> None:
        await asyncio.gather(
            *(extend(subscription, due[start : start + MAX_IDS]) for start in range(0, len(due), MAX_IDS))
        )

    async def look() -> None:
        while True:
            await in_flight.some_due()
            for stream, due in in_flight.to_extend().items():
                if stream.subscription not in errands:
                    errands.start(stream.subscription, partial(extend_all, stream.subscription, due))

    errands.start("", look)
    await errands.watch()


def _ids(some: Sequence[Held]) -> list[str]:
    return [held.pulled.ack_id for held in some]
