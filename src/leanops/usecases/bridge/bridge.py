"""The bridge: messages of many subscriptions into the queues of their topics, acknowledged when they are there."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from leanops.domain.errors import LeanOpsError, SourceUnavailableError
from leanops.ports.source import Pulled, PullLimits, Source
from leanops.usecases.bridge.acks import Receipts, keep_leased
from leanops.usecases.bridge.inflight import BridgeRules, InFlight, Stream, Tell
from leanops.usecases.bridge.sender import Sender
from leanops.usecases.bridge.target import Target

ROUTINE_S = 300.0
"""A stream that was open this long was ended by the source as usual."""
LATE_S = 1.0
"""After a longer wait, what is read may have been in transit for the whole wait."""
LEAST_STREAM_BYTES = 10_000_000
"""What a stream may always have outstanding: the largest message there is."""
GOODBYE_S = 3.0
Look: TypeAlias = Callable[[], Mapping[str, str]]
"""The topic of every subscription to be read, as it is now; it may block."""
Late: TypeAlias = tuple[float, float] | None
"""From when and until when the messages of a stream may have been in transit; None if they are fresh."""
Readers: TypeAlias = "dict[Stream, asyncio.Task[None]]"


class Bridge:
    """Reads every subscription until it is stopped; then it finishes what it has in flight."""

    def __init__(
        self,
        source: Source,
        target: Target,
        subscriptions: Mapping[str, str],
        rules: BridgeRules,
        tell: Tell,
        look: Look | None = None,
    ) -> None:
        self.rules = rules
        self.streams = [Stream(subscription, topic) for subscription, topic in subscriptions.items()]
        self.in_flight = InFlight(rules)
        self.counts = self.in_flight.counts
        self.is_draining = False
        self._source, self._tell, self._now, self._look = source, tell, self.in_flight.now, look
        self._receipts = Receipts(source, self.in_flight)
        self._sender = Sender(target, self.in_flight, self._receipts, tell)

    @property
    def problem(self) -> str | None:
        """Why it does not do its work, in one line; None if some subscription is read."""
        if self.is_draining:
            return "the bridge is stopping"
        if self._sender.problem:
            return self._sender.problem
        if not self.streams or any(stream.flows for stream in self.streams):
            return None
        problems = (stream.problem or stream.refusal for stream in self.streams)
        return next((problem for problem in problems if problem), "no subscription is open yet")

    @property
    def waiting(self) -> int:
        """The number of messages that no send has picked up."""
        return len(self._sender.lanes)

    async def run(self, stopping: asyncio.Event) -> None:
        """Read until stopped, then drain; an unforeseen failure of any part ends all of them and is raised."""
        reading = asyncio.create_task(self._read_all(stopping))
        sending = asyncio.create_task(self._sender.run())
        receipting = asyncio.create_task(self._receipts.errands.watch())
        leasing = asyncio.create_task(keep_leased(self._source, self.in_flight))
        stop = asyncio.create_task(stopping.wait())
        parts = [reading, sending, receipting, leasing]
        try:
            await asyncio.wait([stop, *parts], return_when=asyncio.FIRST_COMPLETED)
            stopping.set()
            self.is_draining = True
            await asyncio.wait([reading])
            await self._drain(sending)
        finally:
            await _cancel(stop, *parts)
            self._sender.close()
        _raise_failures(*parts)

    async def _drain(self, sending: "asyncio.Task[None]") -> None:
        """Send what is in flight, give back what cannot be sent in time, and inform the source of both."""
        in_flight = sum(not held.is_safe for held in self.in_flight.held)
        returned, archived = self.counts.returned, self.counts.archived
        self._sender.finish()
        await asyncio.wait([sending], timeout=self.rules.drain_s)
        await _cancel(sending)
        left = [held for held in self.in_flight.held if not held.is_safe]
        self._receipts.nack(left)
        self.counts.returned += len(left)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.rules.last_receipts_s):
                await self._receipts.errands.settle()
        given_back, dead = self.counts.returned - returned, self.counts.archived - archived
        sent = in_flight - given_back - dead
        self._tell("drained", in_flight=in_flight, sent=sent, given_back=given_back, dead=dead or None)

    async def _read_all(self, stopping: asyncio.Event) -> None:
        """Read every subscription, also those that are added later, until stopped."""
        readers: Readers = {}
        stop = asyncio.create_task(stopping.wait())
        looking = asyncio.create_task(self._look_later())
        try:
            while not stopping.is_set():
                readers |= {
                    stream: asyncio.create_task(self._follow(stream))
                    for stream in self.streams
                    if stream not in readers
                }
                done, _ = await asyncio.wait([stop, looking, *readers.values()], return_when=asyncio.FIRST_COMPLETED)
                if looking in done:
                    gone = self._adopt(looking.result())
                    await _end_reading({stream: readers.pop(stream) for stream in gone})
                    looking = asyncio.create_task(self._look_later())
                for ended in done.intersection(readers.values()):
                    ended.result()
        finally:
            await _cancel(stop, looking)
            await _end_reading(readers)

    async def _look_later(self) -> Mapping[str, str]:
        """The subscriptions as they are after a while; the present ones if they cannot be listed."""
        now = {stream.subscription: stream.topic for stream in self.streams}
        await asyncio.sleep(self.rules.look_s)
        try:
            return await asyncio.to_thread(self._look) if self._look else now
        except LeanOpsError as away:
            self._tell("topics cannot be listed", reason=str(away))
            return now

    def _adopt(self, wanted: Mapping[str, str]) -> list[Stream]:
        """Have a stream for each of these subscriptions and no other; returns the streams that have to end."""
        kept = [stream for stream in self.streams if wanted.get(stream.subscription) == stream.topic]
        gone = [stream for stream in self.streams if stream not in kept]
        known = {stream.subscription for stream in kept}
        new = [Stream(subscription, topic) for subscription, topic in wanted.items() if subscription not in known]
        self.streams = [*kept, *new]
        for message, streams in (("topic is read from now on", new), ("topic is read no longer", gone)):
            for stream in streams:
                self._tell(message, topic=stream.topic, subscription=stream.subscription)
        return gone

    async def _follow(self, stream: Stream) -> None:
        """Read one subscription until stopped; a stream that ends is opened again, one that fails after a pause."""
        failures = 0
        while not stream.stopping.is_set():
            began, before, reason = self._now(), stream.received, None
            try:
                await self._read(stream)
            except SourceUnavailableError as away:
                reason = str(away)
            finally:
                stream.is_asked = False
            if stream.stopping.is_set():
                return
            flowed = stream.received > before or self._now() - began >= ROUTINE_S
            failures = 0 if flowed else failures + 1
            if failures:
                stream.is_open = False
            if failures and reason:
                self._note(stream, reason)
            self.counts.reconnects += 1
            await asyncio.sleep(self.rules.pause_s(failures))

    async def _read(self, stream: Stream) -> None:
        """Read one stream to its end; only a call that is open counts as steady after a while."""
        late = await self._room()
        stream.is_asked = True
        steady: asyncio.TimerHandle | None = None
        try:
            async for batch in self._source.pull(stream.subscription, self._limits, stream.stopping):
                if steady is None:
                    steady = asyncio.get_running_loop().call_later(self.rules.steady_s, self._note, stream, None)
                if batch:
                    await self._take(stream, batch, late)
                    late = await self._room()
        finally:
            if steady:
                steady.cancel()

    async def _room(self) -> Late:
        """Wait until more may be read; returns from when until when what is read may have been leased."""
        before = self._now()
        await self.in_flight.room()
        after = self._now()
        return (before, after + LATE_S) if after - before > LATE_S else None

    async def _take(self, stream: Stream, batch: Sequence[Pulled], late: Late) -> None:
        self._note(stream, None)
        leased = self._now()
        if late and leased < late[1]:
            leased = late[0]
        if stream.refusals:
            # Nothing of it could be sent: it is tried now and then, and only this topic waits.
            with suppress(TimeoutError):
                await asyncio.wait_for(stream.stopping.wait(), self.rules.pause_s(stream.refusals))
        stream.received += len(batch)
        self.counts.received += len(batch)
        self.counts.received_bytes += sum(len(pulled.data) for pulled in batch)
        self._sender.add(self.in_flight.take(stream, batch, leased))

    @property
    def _limits(self) -> PullLimits:
        """What one stream may have outstanding: its share of all that may be in flight."""
        share = max(LEAST_STREAM_BYTES, self.rules.bytes // max(1, len(self.streams)))
        return PullLimits(
            messages=min(PullLimits.messages, self.rules.messages),
            bytes=min(PullLimits.bytes, self.rules.bytes, share),
            lease_s=self.rules.lease_s,
        )

    def _note(self, stream: Stream, problem: str | None) -> None:
        """Report a change for the worse or the better, once."""
        if problem and problem != stream.problem:
            self._tell("subscription cannot be read", subscription=stream.subscription, reason=problem)
        elif stream.problem and not problem:
            self._tell("subscription is read again", subscription=stream.subscription)
        stream.is_open, stream.problem = problem is None, problem


async def _end_reading(readers: Readers) -> None:
    """Let open streams end in an orderly way, within a moment; one that is not open yet is cancelled at once."""
    for stream in readers:
        stream.stopping.set()
    reading = [task for stream, task in readers.items() if stream.is_asked and not task.done()]
    await _cancel(*(task for stream, task in readers.items() if not stream.is_asked))
    if reading:
        await asyncio.wait(reading, timeout=GOODBYE_S)
    await _cancel(*reading)
    _raise_failures(*readers.values())


async def _cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks; their results are kept."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _raise_failures(*tasks: "asyncio.Task[Any]") -> None:
    """Raise what any of these tasks failed with; a cancelled one did not fail."""
    for task in tasks:
        if not task.cancelled():
            task.result()
