"""The bridge's one sender: everything that waits, of all subscriptions, goes into the queue with one send."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from leanops.domain.envelope import Envelope
from leanops.domain.errors import PartlySentError, PermanentError, RetryableError
from leanops.ports.clock import Clock
from leanops.ports.files import Files
from leanops.ports.queue import Outgoing, Queue
from leanops.usecases.bridge_hand import Counts, Hand, Held, Key, Stream, Tell
from leanops.usecases.bridge_receipts import Receipts
from leanops.usecases.bridge_turns import Turns
from leanops.usecases.send import messages

SEND_EVENTS = 5_000
SEND_BYTES = 16 << 20


def envelope_of(held: Held) -> Envelope:
    """The envelope of a message; its data as text where it is UTF-8."""
    pulled, payload, data = held.pulled, None, None
    try:
        payload = pulled.data.decode()
    except UnicodeDecodeError:
        data = pulled.data
    attributes = dict(pulled.attributes) or None
    return Envelope(
        held.stream.topic,
        pulled.message_id,
        pulled.publish_time,
        payload=payload,
        data=data,
        idempotency_key=attributes.get("idempotency_key") if attributes else None,
        attributes=attributes,
    )


@dataclass
class Sent:
    """What a send left behind; everything else is in the queue."""

    again: set[Held] = field(default_factory=set)
    refused: dict[Held, str] = field(default_factory=dict)
    """Those the queue will never take, and why."""
    closed: dict[Stream, str] = field(default_factory=dict)
    """Streams whose messages cannot be sent, and why: the queue is missing, say."""
    reason: str | None = None
    """Why some have to be sent again."""


@dataclass(frozen=True)
class Target:
    """Where the bridge sends to. It blocks, and is used by one thread."""

    queue: Queue
    files: Files
    clock: Clock
    events_per_message: int = 1

    def send(self, batch: Sequence[Held]) -> Sent:
        """Put the batch into the queue; in one call, unless the queue refuses a message of it."""
        sent, parts = Sent(), []
        by_topic: dict[str, list[Held]] = defaultdict(list)
        for held in batch:
            by_topic[held.stream.topic].append(held)
        for members in by_topic.values():
            try:
                parts += list(self._packed(members))
            except RetryableError as away:
                # The file store is needed for the large ones of one topic; the others go on.
                sent.again.update(members)
                sent.reason = str(away)
            except PermanentError as refused:
                sent.refused.update(dict.fromkeys(members, str(refused)))
                sent.closed.update({held.stream: str(refused) for held in members})
        if parts:
            self._send(parts, sent)
        return sent

    def _packed(self, members: Sequence[Held]) -> Iterator[tuple[Outgoing, Sequence[Held]]]:
        envelopes, start = (envelope_of(held) for held in members), 0
        for message, carried in messages(self.queue, self.files, self.clock, envelopes, self.events_per_message):
            yield message, members[start : start + len(carried)]
            start += len(carried)

    def _send(self, parts: Sequence[tuple[Outgoing, Sequence[Held]]], sent: Sent) -> None:
        left: Sequence[int]
        try:
            left = self.queue.send([message for message, _ in parts])
        except RetryableError as away:
            left, sent.reason = range(len(parts)), str(away)
        except PartlySentError as partly:
            left = partly.again
            for position, reason in partly.refused.items():
                message, members = parts[position]
                sent.refused.update(dict.fromkeys(members, reason))
                if message.queue in partly.queues:
                    sent.closed[members[0].stream] = reason
        except PermanentError as refused:
            if len(parts) > 1:
                for part in parts:
                    self._send([part], sent)
                return
            sent.refused.update(dict.fromkeys(parts[0][1], str(refused)))
            return
        for position in left:
            sent.again.update(parts[position][1])
            sent.reason = sent.reason or "the queue did not take every message; trying those again"


class Sender:
    """Sends what waits, in order, until each is taken, refused or too old; tells the source of it through receipts."""

    def __init__(self, target: Target, hand: Hand, receipts: Receipts, counts: Counts, tell: Tell) -> None:
        self._target, self._hand, self._receipts, self._counts, self._tell = target, hand, receipts, counts, tell
        self._rules = hand.rules
        self._waiting: list[Held] = []
        self._some = asyncio.Event()
        self._is_last = False
        self._turns = Turns(hand.rules.lease_s, hand.now)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bridge-send")
        self.problem: str | None = None

    @property
    def waiting(self) -> int:
        """How many messages no send has begun with."""
        return len(self._waiting)

    def add(self, some: Sequence[Held]) -> None:
        """Send these soon; what comes out of its turn goes back."""
        early = {held for held in some if self._turns.is_early(held)}
        self._give_back([held for held in some if held in early])
        self._waiting += [held for held in some if held not in early] if early else some
        self._some.set()

    def finish(self) -> None:
        """Let `run` return when nothing waits."""
        self._is_last = True
        self._some.set()

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False)

    async def run(self) -> None:
        """Send after send."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            await self._some.wait()
            if not self._is_last:
                await asyncio.sleep(self._rules.linger_s)
            batch = self._next_batch()
            if batch:
                sent = await loop.run_in_executor(self._thread, self._target.send, batch)
                self._counts.sends += 1
                self._settle(batch, sent)
                self._note(sent)
                failures = failures + 1 if sent.again else 0
                await self._pause(failures)
            if not self._waiting:
                if self._is_last:
                    return
                self._some.clear()

    def _next_batch(self) -> list[Held]:
        size = count = 0
        for held in self._waiting[:SEND_EVENTS]:
            if count and size + held.size > SEND_BYTES:
                break
            size += held.size
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    def _settle(self, batch: Sequence[Held], sent: Sent) -> None:
        """Decide on each; of one ordering key, whatever follows one that failed shares its fate."""
        done: list[Held] = []
        back: list[Held] = []
        again: list[Held] = []
        stuck: dict[Key, list[Held]] = {}
        for held in batch:
            key = held.key
            fate = stuck.get(key) if key else None
            if fate is None:
                fate = done
                if held in sent.refused or (held in sent.again and self._is_too_old(held)):
                    fate = back
                elif held in sent.again:
                    fate = again
                if key and fate is not done:
                    stuck[key] = fate
            fate.append(held)
        if again or back:
            back += self._withdrawn({key for key, fate in stuck.items() if fate is back})
        self._accept(done)
        self._give_back(back)
        self._counts.resent += len(again)
        self._waiting = again + self._waiting

    def _withdrawn(self, keys: set[Key]) -> list[Held]:
        """Take out of the waiting ones those that have waited too long, and those that follow one given back."""
        out: list[Held] = []
        left: list[Held] = []
        for held in self._waiting:
            if held.key in keys or self._is_too_old(held):
                out.append(held)
                keys |= {held.key} if held.key else set()
            else:
                left.append(held)
        self._waiting = left
        return out

    def _accept(self, done: Sequence[Held]) -> None:
        self._hand.let_go(done)
        self._receipts.add(done, is_ack=True)
        self._counts.forwarded += len(done)
        for held in done:
            held.stream.forwarded += 1
            if held.stream.refusal:
                self._tell("messages of a topic are sent again", topic=held.stream.topic)
                held.stream.refusal, held.stream.refusals = None, 0

    def _give_back(self, back: Sequence[Held]) -> None:
        self._hand.let_go(back)
        self._receipts.add(back, is_ack=False)
        self._counts.returned += len(back)
        for held in back:
            self._turns.break_off(held)

    def _is_too_old(self, held: Held) -> bool:
        return self._hand.now() - held.since > self._rules.hold_s

    def _note(self, sent: Sent) -> None:
        for stream, reason in sent.closed.items():
            if not stream.refusal:
                self._tell("messages of a topic cannot be sent", topic=stream.topic, reason=reason)
            stream.refusal, stream.refusals = reason, stream.refusals + 1
        for held, reason in sent.refused.items():
            name = held.stream.subscription
            if held.stream not in sent.closed:
                self._tell("message refused", subscription=name, id=held.pulled.message_id, reason=reason)
        if bool(sent.reason) != bool(self.problem):
            said = "messages wait for the queue" if sent.reason else "the queue takes messages again"
            self._tell(said, reason=sent.reason, messages=len(self._hand.held))
        self.problem = sent.reason

    async def _pause(self, failures: int) -> None:
        if failures:
            await asyncio.sleep(random.uniform(0, min(self._rules.longest_pause_s, 0.1 * 2 ** min(failures, 20))))
