"""The bridge's one sender: what may be sent, of all subscriptions, goes into the queue with one send."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from leanops.usecases.bridge.acks import Receipts
from leanops.usecases.bridge.inflight import Held, InFlight, Key, Tell
from leanops.usecases.bridge.lanes import Lanes, Turns
from leanops.usecases.bridge.target import Sent, Target

STUCK_TRIES = 3
"""Consecutive sends that took nothing of a topic before its wait is reported."""


class Sender:
    """Sends what waits, in order, until each message is taken, archived or too old; receipts inform the source."""

    def __init__(self, target: Target, in_flight: InFlight, receipts: Receipts, tell: Tell) -> None:
        self._target, self._in_flight, self._receipts, self._tell = target, in_flight, receipts, tell
        self._rules, self._counts = in_flight.rules, in_flight.counts
        self.lanes = Lanes(in_flight.rules, in_flight.now)
        self._some = asyncio.Event()
        self._is_last = False
        self._turns = Turns(in_flight.rules.lease_s, in_flight.now)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bridge-send")
        self._taken_at = float("-inf")
        self.problem: str | None = None
        """Why nothing is taken at all."""

    def add(self, messages: Sequence[Held]) -> None:
        """Send messages soon; one out of its turn is given back, and so are all when too much is in flight."""
        if self._in_flight.overflows and len(self._in_flight.held) > len(messages):
            self._give_back(messages)
            return
        early = {held for held in messages if self._turns.is_early(held)}
        # The awaited message stays awaited: the early ones are delivered again after it.
        self._return([held for held in messages if held in early])
        self.lanes.add(held for held in messages if held not in early)
        self._some.set()

    def finish(self) -> None:
        """Let `run` return when nothing waits."""
        self._is_last = True
        self.lanes.hurry()
        self._some.set()

    def close(self) -> None:
        """Release the thread."""
        self._thread.shutdown(wait=False)

    async def run(self) -> None:
        """Send after send."""
        loop = asyncio.get_running_loop()
        while True:
            await self._until_due()
            if not self._is_last:
                await asyncio.sleep(self._rules.linger_s)
            batch = self.lanes.next_batch()
            if batch:
                sent = await loop.run_in_executor(self._thread, self._target.send, batch)
                self._counts.sends += 1
                self._settle(batch, sent)
                self._note(sent)
            elif self._is_last and not self.lanes:
                return

    async def _until_due(self) -> None:
        """Return when something may be sent, or when nothing more will arrive."""
        while True:
            self._some.clear()
            due_s = self.lanes.due_s()
            if due_s == 0 or (due_s is None and self._is_last):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(due_s):
                    await self._some.wait()

    def _settle(self, batch: Sequence[Held], sent: Sent) -> None:
        """Decide on each message; of one ordering key, whatever follows one that failed is treated like it."""
        done: list[Held] = []
        back: list[Held] = []
        again: dict[str, list[Held]] = defaultdict(list)
        stuck: dict[Key, list[Held]] = {}
        for held in batch:
            key, topic = held.key, held.stream.topic
            fate = stuck.get(key) if key else None
            if fate is None:
                fate = done
                if held in sent.refused or (held in sent.again and held.since < self._oldest):
                    fate = back
                elif held in sent.again:
                    fate = again[topic]
                if key and fate is not done:
                    stuck[key] = fate
            fate.append(held)
        moved = {held.stream.topic for held in done}
        reasons = {held.stream.topic: reason for held, reason in sent.again.items()}
        self.lanes.hold_up(again, reasons, moved)
        gone = {key for key, fate in stuck.items() if fate is back}
        for topic in {*again, *(held.stream.topic for held in back)}:
            back += self.lanes.withdraw(topic, gone, self._oldest)
        for topic in {held.stream.topic for held in batch} - set(again):
            if self.lanes.release(topic):
                self._tell("messages of a topic wait no longer", topic=topic)
        self._accept(done, sent)
        self._give_back(back)
        self._counts.resent += sum(map(len, again.values()))
        if done:
            self._taken_at = self._in_flight.now()

    def _accept(self, done: Sequence[Held], sent: Sent) -> None:
        self._receipts.ack(done)
        for held in done:
            if held in sent.archived:
                self._counts.archived += 1
                facts = {"id": held.pulled.message_id, "reason": sent.archived[held]}
                self._tell("message is a dead letter", subscription=held.stream.subscription, **facts)
                continue
            self._counts.forwarded += 1
            held.stream.forwarded += 1
            if held.stream.refusal:
                self._tell("messages of a topic are sent again", topic=held.stream.topic)
                held.stream.refusal, held.stream.refusals = None, 0

    def _give_back(self, back: Sequence[Held]) -> None:
        self._return(back)
        for held in back:
            self._turns.break_off(held)

    def _return(self, back: Sequence[Held]) -> None:
        self._receipts.nack(back)
        self._counts.returned += len(back)

    @property
    def _oldest(self) -> float:
        """Messages that arrived before this have waited too long."""
        return self._in_flight.now() - self._rules.hold_s

    def _note(self, sent: Sent) -> None:
        for stream, reason in sent.closed.items():
            if not stream.refusal:
                self._tell("messages of a topic cannot be sent", topic=stream.topic, reason=reason)
            stream.refusal, stream.refusals = reason, stream.refusals + 1
        stuck = self.lanes.stuck
        problem = next((lane.reason for lane in stuck.values() if lane.stuck_since > self._taken_at), None)
        if bool(problem) != bool(self.problem):
            message = "messages wait for the queue" if problem else "the queue takes messages again"
            self._tell(message, reason=problem, messages=len(self._in_flight.held))
        self.problem = problem
        for topic, lane in stuck.items():
            if not problem and not lane.is_reported and lane.failures >= STUCK_TRIES:
                lane.is_reported = True
                self._tell("messages of a topic wait", topic=topic, reason=lane.reason, messages=len(lane.waiting))
