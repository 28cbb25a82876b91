"""What goes wrong for one topic, one subscription or one call is felt by no other, and is told."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from leanops.adapters.files.folder import Folder
from leanops.domain.errors import FilesUnavailableError, SourceUnavailableError
from leanops.ports.queue import Outgoing
from leanops.ports.source import Pulled, PullLimits
from tests.support.pubsub.inbox import RULES, Gate, Inbox, away, bridging, message, run, until
from tests.support.pubsub.loop import run_without_waiting


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


class CountingFolder(Folder):
    """A folder that counts what is written to it, or refuses it."""

    puts, is_away = 0, False

    def put(self, name: str, data: bytes) -> None:
        self.puts += 1
        if self.is_away:
            raise FilesUnavailableError("the file store does not answer")
        super().put(name, data)


def test_many_throttled_topics_starve_no_other(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        stuck, told = [f"stuck{number}" for number in range(6)], []
        inbox = Inbox(*stuck, "healthy")
        queue.judge = lambda messages: [at for at, one in enumerate(messages) if one.queue.startswith("stuck")]
        for at, name in enumerate(stuck):
            inbox.publish(name, *(message(at * 1_000 + number) for number in range(1_000)))
        async with bridging(inbox, queue, tmp_path, drain_s=0, longest_pause_s=0.2, told=told) as bridge:
            await until(lambda: bridge.counts.received == 6_000 and bridge.problem)
            inbox.publish("healthy", message(999_999))
            await until(lambda: inbox.acked == ["m999999"], 5)
            await until(lambda: bridge.problem is None)
            await until(lambda: {facts.get("topic") for what, facts in told if what.endswith("wait")} == set(stuck))
            inbox.redelivers = False

    run(work)


def test_a_throttled_topic_does_not_slow_the_sends_of_others(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("stuck", "healthy")
        queue.judge = lambda messages: [at for at, one in enumerate(messages) if one.queue == "stuck"]
        inbox.publish("stuck", message(0))
        pauses = {"first_pause_s": 0.25, "longest_pause_s": 60, "lease_s": 600}
        async with bridging(inbox, queue, tmp_path, drain_s=0, **pauses) as bridge:
            # By now the next try of the stuck one is seconds away.
            await until(lambda: bridge.counts.resent >= 5)
            for number in range(1, 4):
                inbox.publish("healthy", message(number))
                await until(lambda number=number: f"m{number}" in inbox.acked, 2)
            assert bridge.counts.resent <= 6
            inbox.redelivers = False

    run(work)


def test_a_file_store_that_is_away_starves_no_topic_that_does_without(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox, files = Inbox("large1", "large2", "small"), CountingFolder(tmp_path / "files")
        files.is_away = True
        for at, name in enumerate(("large1", "large2")):
            inbox.publish(name, *(message(at * 5 + number, b"x" * 2_000_000) for number in range(5)))
        async with bridging(inbox, queue, tmp_path, drain_s=0, files=files) as bridge:
            await until(lambda: bridge.counts.received == 10 and bridge.problem)
            inbox.publish("small", message(99))
            await until(lambda: inbox.acked == ["m99"], 5)
            inbox.redelivers = False

    run(work)


def test_a_claim_is_written_once_however_often_its_message_is_sent(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox, files = Inbox("orders"), CountingFolder(tmp_path / "files")
        queue.judge = away
        inbox.publish("orders", message(1, b"x" * 2_000_000))
        async with bridging(inbox, queue, tmp_path, files=files) as bridge:
            await until(lambda: bridge.counts.resent >= 3)
            queue.judge = lambda _messages: []
            await until(lambda: inbox.acked == ["m1"])
        assert files.puts == 1

    run(work)

    [envelope] = queue.envelopes("orders")
    assert (tmp_path / "files" / str(envelope.claim)).read_bytes() == b"x" * 2_000_000


class SlowlyFailing(Inbox):
    """Streams that stay open for longer than a steady one needs, and then fail."""

    async def pull(
        self, subscription: str, limits: PullLimits, stopping: asyncio.Event
    ) -> AsyncIterator[Sequence[Pulled]]:
        self.asked[subscription] += 1
        yield []
        await asyncio.sleep(2 * RULES.steady_s)
        raise SourceUnavailableError("orders: Pub/Sub does not answer (UNAVAILABLE); trying again")


def test_an_outage_that_fails_slowly_is_seen_and_told(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox, told = SlowlyFailing("orders"), []
        async with bridging(inbox, queue, tmp_path, told=told) as bridge:
            await until(lambda: bridge.problem and bridge.problem.startswith("orders: Pub/Sub does not answer"))
        assert told[0][0] == "subscription cannot be read"

    run_without_waiting(work)


def test_a_call_that_never_opens_does_not_count_as_flowing(queue: Gate, tmp_path: Path) -> None:
    class Mute(Inbox):
        async def pull(
            self, subscription: str, limits: PullLimits, stopping: asyncio.Event
        ) -> AsyncIterator[Sequence[Pulled]]:
            self.asked[subscription] += 1
            await stopping.wait()
            for nothing in ():
                yield nothing

    async def work() -> None:
        inbox = Mute("orders")
        async with bridging(inbox, queue, tmp_path) as bridge:
            await until(lambda: inbox.asked["orders"])
            await asyncio.sleep(10 * bridge.rules.steady_s)
            assert bridge.problem == "no subscription is open yet"

    run_without_waiting(work)


class SlowAnswers(Inbox):
    """A subscription whose acks and extensions are never answered."""

    async def ack(self, subscription: str, ack_ids: Sequence[str]) -> None:
        if subscription == "bad":
            await asyncio.Event().wait()
        await super().ack(subscription, ack_ids)

    async def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        if subscription == "bad":
            await asyncio.Event().wait()
        await super().extend(subscription, ack_ids, seconds)


def test_an_ack_that_is_not_answered_delays_no_other_and_its_message_stays_in_flight(
    queue: Gate, tmp_path: Path
) -> None:
    async def work() -> None:
        inbox = SlowAnswers("bad", "good")
        inbox.publish("bad", message(1))
        async with bridging(inbox, queue, tmp_path, lease_s=60, drain_s=0, last_receipts_s=0.05) as bridge:
            await until(lambda: bridge.counts.forwarded == 1)
            inbox.publish("good", message(2))
            await until(lambda: inbox.acked == ["m2"], 3)
            assert [held.pulled.message_id for held in bridge.in_flight.held] == ["m1"]

    run(work)


def test_an_ack_is_given_up_and_told_again_within_its_lease(queue: Gate, tmp_path: Path) -> None:
    class FirstUnanswered(Inbox):
        async def ack(self, subscription: str, ack_ids: Sequence[str]) -> None:
            self.asked["ack"] += 1
            if self.asked["ack"] == 1:
                await asyncio.Event().wait()
            await super().ack(subscription, ack_ids)

    async def work() -> None:
        inbox = FirstUnanswered("orders")
        inbox.publish("orders", message(1))
        async with bridging(inbox, queue, tmp_path, lease_s=3) as bridge:
            await until(lambda: inbox.acked == ["m1"])
            assert bridge.counts.receipts_lost == 0

    run(work)


def test_an_extension_that_is_not_answered_lets_no_other_lease_lapse(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = SlowAnswers("bad", "good")
        queue.judge = away
        inbox.publish("bad", message(1))
        inbox.publish("good", message(2))
        async with bridging(inbox, queue, tmp_path, lease_s=1, drain_s=0, last_receipts_s=0.05):
            await until(lambda: inbox.extended.count("m2") >= 3, 5)
            inbox.redelivers = False

    run(work)


def test_a_failure_during_the_drain_is_raised(queue: Gate, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        tried: list[int] = []

        def judge(messages: Sequence[Outgoing]) -> list[int]:
            tried.append(len(messages))
            return [1 // 0] if is_over.is_set() else away(messages)

        is_over, queue.judge = threading.Event(), judge
        inbox.publish("orders", message(1))
        with pytest.raises(ZeroDivisionError):
            async with bridging(inbox, queue, tmp_path, longest_pause_s=60, lease_s=600) as bridge:
                await until(lambda: len(tried) >= 5 and bridge.counts.resent >= 5 and not is_over.set())
        assert (inbox.acked, inbox.returned) == ([], ["m1"])

    run(work)


def test_a_reader_that_fails_while_it_ends_is_not_passed_over(queue: Gate, tmp_path: Path) -> None:
    class FailsAtTheEnd(Inbox):
        async def pull(
            self, subscription: str, limits: PullLimits, stopping: asyncio.Event
        ) -> AsyncIterator[Sequence[Pulled]]:
            self.asked[subscription] += 1
            yield []
            await stopping.wait()
            raise ZeroDivisionError

    async def work() -> None:
        inbox = FailsAtTheEnd("orders")
        with pytest.raises(ZeroDivisionError):
            async with bridging(inbox, queue, tmp_path):
                await until(lambda: inbox.asked["orders"])

    run(work)
