"""What the bridge tells the source of messages: acks, nacks and extensions, many in one call."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from leanops.domain.errors import SourceUnavailableError
from leanops.ports.source import MAX_IDS, Source
from leanops.usecases.bridge_hand import Counts, Hand, Held, Now

GATHER_S = 0.1
FAILED_PAUSE_S = 1.0


class _Receipt(NamedTuple):
    subscription: str
    is_ack: bool
    ack_ids: Sequence[str]
    until: float
    """After this the leases are over, and telling has no use."""


class Receipts:
    """Acks and nacks, gathered for a moment; one that the source never hears means a second delivery, no loss."""

    def __init__(self, source: Source, counts: Counts, lease_s: float, now: Now = time.monotonic) -> None:
        self._source, self._counts, self._lease_s, self._now = source, counts, lease_s, now
        self._gathered: dict[tuple[str, bool], list[str]] = defaultdict(list)
        self._unheard: list[_Receipt] = []
        self._some = asyncio.Event()
        self._one_flush = asyncio.Lock()

    def add(self, some: Iterable[Held], *, is_ack: bool) -> None:
        """Tell the source soon."""
        for held in some:
            self._gathered[held.stream.subscription, is_ack].append(held.pulled.ack_id)
        if self._gathered:
            self._some.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(FAILED_PAUSE_S if self._unheard else GATHER_S)
            await self.flush()

    async def flush(self) -> None:
        """Tell everything gathered until now; what is not heard is told again by the next flush."""
        async with self._one_flush:
            receipts, self._unheard = [*self._unheard, *self._cut()], []
            self._some.clear()
            await asyncio.gather(*(self._tell(receipt) for receipt in receipts))
            if self._unheard:
                self._some.set()

    async def settle(self) -> None:
        """Return when everything is told."""
        await self.flush()
        while self._some.is_set():
            await asyncio.sleep(GATHER_S)
            await self.flush()

    def _cut(self) -> Iterator[_Receipt]:
        until = self._now() + self._lease_s
        gathered, self._gathered = self._gathered, defaultdict(list)
        for (subscription, is_ack), ack_ids in gathered.items():
            for start in range(0, len(ack_ids), MAX_IDS):
                yield _Receipt(subscription, is_ack, ack_ids[start : start + MAX_IDS], until)

    async def _tell(self, receipt: _Receipt) -> None:
        try:
            if receipt.is_ack:
                await self._source.ack(receipt.subscription, receipt.ack_ids)
                self._counts.acked += len(receipt.ack_ids)
            else:
                await self._source.extend(receipt.subscription, receipt.ack_ids, 0)
        except SourceUnavailableError:
            if self._now() < receipt.until:
                self._unheard.append(receipt)
            else:
                self._counts.receipts_lost += len(receipt.ack_ids)


async def keep_leased(source: Source, hand: Hand, counts: Counts) -> None:
    """Extend the leases of what is in hand, in time, until cancelled."""
    lease_s = hand.rules.lease_s

    async def extend(subscription: str, some: Sequence[Held]) -> None:
        # Unheard, it is tried again at the next look; after that the message may come a second time.
        with suppress(SourceUnavailableError):
            await source.extend(subscription, [held.pulled.ack_id for held in some], lease_s)
            until = hand.now() + lease_s
            for held in some:
                held.leased_until = until
            counts.extended += len(some)

    while True:
        await asyncio.sleep(lease_s / 6)
        calls: list[Coroutine[None, None, None]] = [
            extend(stream.subscription, due[start : start + MAX_IDS])
            for stream, due in hand.to_extend().items()
            for start in range(0, len(due), MAX_IDS)
        ]
        await asyncio.gather(*calls)
