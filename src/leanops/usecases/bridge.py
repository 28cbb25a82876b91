"""The bridge: messages of many subscriptions into the queues of their topics, acknowledged when they are safe there."""

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from leanops.domain.errors import SourceUnavailableError
from leanops.ports.source import PullLimits, Source
from leanops.usecases.bridge_hand import BridgeRules, Counts, Hand, Now, Stream, Tell
from leanops.usecases.bridge_receipts import Receipts, keep_leased
from leanops.usecases.bridge_send import Sender, Target

STEADY_S = 2.0
"""A stream that lives this long is open, whether or not it has brought a message."""
GOODBYE_S = 3.0
LAST_RECEIPTS_S = 5.0


class Bridge:
    """Reads every subscription until it is told to stop; then it finishes what it has in hand."""

    def __init__(
        self,
        source: Source,
        target: Target,
        subscriptions: Mapping[str, str],
        rules: BridgeRules,
        tell: Tell,
        now: Now = time.monotonic,
    ) -> None:
        self.rules, self.counts = rules, Counts()
        self.streams = [Stream(subscription, topic) for subscription, topic in subscriptions.items()]
        self.hand = Hand(rules, now)
        self.is_draining = False
        self._source, self._tell, self._now = source, tell, now
        self._receipts = Receipts(source, self.counts, rules.lease_s, now)
        self._sender = Sender(target, self.hand, self._receipts, self.counts, tell)
        self._limits = PullLimits(
            messages=min(PullLimits.messages, rules.messages),
            bytes=min(PullLimits.bytes, rules.bytes),
            lease_s=rules.lease_s,
        )

    @property
    def problem(self) -> str | None:
        """Why it is not doing its work, in one line; None where some subscription flows."""
        if self.is_draining:
            return "the bridge is stopping"
        if self._sender.problem:
            return self._sender.problem
        if not self.streams or any(stream.is_open for stream in self.streams):
            return None
        return next((stream.problem for stream in self.streams if stream.problem), "no subscription is open yet")

    @property
    def waiting(self) -> int:
        """How many messages no send has begun with."""
        return self._sender.waiting

    async def run(self, stopping: asyncio.Event) -> None:
        """Read until told to stop, then drain; an unforeseen failure of any part ends all of them and is raised."""
        readers = {stream: asyncio.create_task(self._follow(stream, stopping)) for stream in self.streams}
        sending = asyncio.create_task(self._sender.run())
        telling = asyncio.create_task(self._receipts.run())
        leasing = asyncio.create_task(keep_leased(self._source, self.hand, self.counts))
        told = asyncio.create_task(stopping.wait())
        parts = [*readers.values(), sending, telling, leasing]
        try:
            ended, _ = await asyncio.wait([told, *parts], return_when=asyncio.FIRST_COMPLETED)
            stopping.set()
            self.is_draining = True
            await _end_reading(readers)
            await self._drain(sending)
        finally:
            await _cancel(told, *parts)
            self._sender.close()
        for part in ended:
            part.result()

    async def _drain(self, sending: "asyncio.Task[None]") -> None:
        """Send what is in hand, give back what cannot be sent in time, and tell the source of both."""
        in_hand = len(self.hand.held)
        self._sender.finish()
        await asyncio.wait([sending], timeout=self.rules.drain_s)
        await _cancel(sending)
        left = list(self.hand.held)
        self.hand.let_go(left)
        self._receipts.add(left, is_ack=False)
        self.counts.returned += len(left)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_RECEIPTS_S):
                await self._receipts.settle()
        self._tell("drained", in_hand=in_hand, sent=in_hand - len(left), given_back=len(left))

    async def _follow(self, stream: Stream, stopping: asyncio.Event) -> None:
        """Read one subscription until told to stop; a stream that ends is opened again, one that fails more slowly."""
        failures = 0
        while not stopping.is_set():
            began, before, reason = self._now(), stream.received, None
            steady = asyncio.get_running_loop().call_later(STEADY_S, self._note, stream, None)
            try:
                await self._read(stream, stopping)
            except SourceUnavailableError as away:
                reason = str(away)
            finally:
                steady.cancel()
                stream.is_asked = False
            if stopping.is_set():
                return
            flowed = stream.received > before or self._now() - began >= STEADY_S
            failures = 0 if flowed else failures + 1
            if failures:
                self._note(stream, reason)
            self.counts.reconnects += 1
            longest = min(self.rules.longest_pause_s, self.rules.reconnect_s * 2 ** min(failures, 20))
            await asyncio.sleep(random.uniform(longest / 2, longest))

    async def _read(self, stream: Stream, stopping: asyncio.Event) -> None:
        await self.hand.room()
        stream.is_asked = True
        async for batch in self._source.pull(stream.subscription, self._limits, stopping):
            self._note(stream, None)
            stream.received += len(batch)
            self.counts.received += len(batch)
            self.counts.received_bytes += sum(len(pulled.data) for pulled in batch)
            self._sender.add(self.hand.take(stream, batch))
            await self.hand.room()

    def _note(self, stream: Stream, problem: str | None) -> None:
        """Tell of a change for the worse or the better, once."""
        if problem and problem != stream.problem:
            self._tell("subscription cannot be read", subscription=stream.subscription, reason=problem)
        elif stream.problem and not problem:
            self._tell("subscription is read again", subscription=stream.subscription)
        stream.is_open, stream.problem = problem is None, problem


async def _end_reading(readers: "Mapping[Stream, asyncio.Task[None]]") -> None:
    """Let streams end in good order, within a moment; one that is only waited for is given up at once."""
    reading = [task for stream, task in readers.items() if stream.is_asked and not task.done()]
    await _cancel(*(task for stream, task in readers.items() if not stream.is_asked))
    if reading:
        await asyncio.wait(reading, timeout=GOODBYE_S)
    await _cancel(*reading)


async def _cancel(*tasks: "asyncio.Task[Any]") -> None:
    """End tasks; their results stay to be looked at."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
