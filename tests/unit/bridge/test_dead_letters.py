"""What the queue of a topic will never take: a dead letter, acknowledged when it is kept, and nothing else is."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.sql.queue import SqlQueue
from leanops.domain.errors import FilesUnavailableError, PartlySentError, PermanentError
from leanops.domain.event.envelope import Envelope, envelopes_in
from leanops.ports.queue import Outgoing
from tests.support.pubsub.inbox import Gate, Inbox, bridging, dead_letters, message, until


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the coroutine of a test."""
    asyncio.run(work())


def test_a_message_the_queue_will_never_take_becomes_a_dead_letter_and_holds_up_no_other(
    queue: Gate, tmp_path: Path
) -> None:
    def judge(messages: Sequence[Outgoing]) -> list[int]:
        if any(b'"m1"' in one.body for one in messages):
            raise PermanentError("the queue refuses a message")
        return []

    async def work() -> None:
        inbox, told = Inbox("orders"), []
        queue.judge = judge
        inbox.publish("orders", message(0, key="k"), message(1, b"secret", key="k"), message(2, key="k"))
        async with bridging(inbox, queue, tmp_path, told=told) as bridge:
            await until(lambda: sorted(inbox.acked) == ["m0", "m1", "m2"])
            assert (bridge.counts.archived, bridge.counts.forwarded, inbox.returned) == (1, 2, [])
        facts = {"subscription": "orders", "id": "m1", "reason": "the queue refuses a message"}
        assert told[0] == ("message is a dead letter", facts)

    run(work)

    [row] = dead_letters(tmp_path)
    assert (row["topic_name"], row["message_id"], row["rule"]) == ("orders", "m1", "bad_envelope")
    [kept] = envelopes_in((tmp_path / "files" / str(row["source"])).read_bytes())
    assert kept == Envelope("orders", "m1", 1_794_729_600_000_001, payload="secret")


def test_a_refusal_that_may_be_the_queues_gives_nothing_up_and_is_tried_now_and_then(
    queue: Gate, tmp_path: Path
) -> None:
    refused: list[int] = []

    def judge(messages: Sequence[Outgoing]) -> list[int]:
        refused.append(len(messages))
        raise PermanentError("the store refuses; check that this user may change it")

    async def work() -> None:
        inbox = Inbox("orders")
        queue.judge = judge
        inbox.publish("orders", message(1))
        async with bridging(inbox, queue, tmp_path) as bridge:
            await until(lambda: len(inbox.returned) >= 2)
            assert (bridge.problem or "").startswith("the store refuses")
            assert bridge.counts.archived == 0
            queue.judge = lambda _messages: []
            await until(lambda: inbox.acked == ["m1"])

    run(work)

    assert dead_letters(tmp_path) == []


def test_attributes_too_large_for_the_queue_make_a_dead_letter_and_leave_no_claim(queue: Gate, tmp_path: Path) -> None:
    hostile = {f"{number:03}": "\x01\uffff" * 512 for number in range(200)}

    async def work() -> None:
        inbox = Inbox("orders")
        inbox.publish("orders", message(1)._replace(attributes=hostile), message(2))
        async with bridging(inbox, queue, tmp_path):
            await until(lambda: sorted(inbox.acked) == ["m1", "m2"])

    queue.max_bytes = 262_144
    run(work)

    [row] = dead_letters(tmp_path)
    assert (row["message_id"], row["rule"]) == ("m1", "too_large")
    [kept] = envelopes_in((tmp_path / "files" / str(row["source"])).read_bytes())
    assert isinstance(kept, Envelope)
    assert (kept.payload, kept.attributes) == ("{}", hostile)
    assert not (tmp_path / "files/claims").exists()


def test_a_dead_letter_that_cannot_be_kept_yet_is_not_acknowledged(
    queue: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise FilesUnavailableError("no space")

    async def work() -> None:
        inbox = Inbox("orders", "payments")
        inbox.publish("orders", message(1)._replace(attributes={"long": "x" * 2_000_000}))
        inbox.publish("payments", message(2))
        async with bridging(inbox, queue, tmp_path) as bridge:
            with monkeypatch.context() as broken:
                broken.setattr("leanops.adapters.files.folder.Folder.put", refuse)
                await until(lambda: bridge.counts.resent >= 2 and inbox.acked == ["m2"])
            await until(lambda: inbox.acked == ["m2", "m1"])

    run(work)

    assert [row["message_id"] for row in dead_letters(tmp_path)] == ["m1"]


def test_where_a_queue_names_what_it_refused_nothing_else_is_sent_twice(queue: Gate, tmp_path: Path) -> None:
    def judge(messages: Sequence[Outgoing]) -> list[int]:
        if len(messages) < 4:
            return []
        SqlQueue.send(queue, [messages[0], messages[3]])
        raise PartlySentError({1: "the queue refuses a message"}, again=[2])

    async def work() -> None:
        inbox, told = Inbox("orders"), []
        queue.judge = judge
        inbox.publish("orders", *(message(number) for number in range(4)))
        async with bridging(inbox, queue, tmp_path, told=told):
            await until(lambda: inbox.acked == ["m0", "m1", "m3", "m2"])
        assert [facts["id"] for what, facts in told if what == "message is a dead letter"] == ["m1"]

    run(work)

    assert [one.message_id for one in queue.envelopes("orders")] == ["m0", "m3", "m2"]
