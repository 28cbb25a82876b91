"""The bridge into SQS and S3: ElasticMQ and moto behind it, a source in memory before it."""

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.files import S3Files
from leanops.adapters.aws.queue import SqsQueue
from leanops.domain.errors import PartlySentError
from leanops.domain.event.envelope import Envelope, envelopes_in
from leanops.domain.event.names import queue_name
from leanops.ports.queue import Outgoing
from tests.support.pubsub.inbox import Inbox, bridging, message, until


class Doors(SqsQueue):
    """Queues whose sends a test can hold up."""

    def __init__(self, client: Any, *, prefix: str, **arguments: Any) -> None:
        super().__init__(client, prefix=prefix, **arguments)
        self.prefix = prefix
        self.may_send = threading.Event()
        self.may_send.set()
        self.sent: list[str] = []

    def send(self, messages: Sequence[Outgoing]) -> list[int]:
        assert self.may_send.wait(20)
        self.sent += [message.queue for message in messages]
        return super().send(messages)

    def envelopes(self, topic: str) -> list[Envelope]:
        """What waits for a topic."""
        found: list[Envelope] = []
        while received := self.receive(queue_name(topic), 10, 60):
            found += [one for body, *_ in received for one in envelopes_in(body) if isinstance(one, Envelope)]
        return sorted(found, key=lambda envelope: str(envelope.message_id))


@pytest.fixture
def queue(elasticmq_endpoint: str) -> Iterator[Doors]:
    doors = Doors(connect("sqs", endpoint=elasticmq_endpoint), prefix=f"b{secrets.token_hex(4)}-", wait_s=0)
    doors.create("orders")
    yield doors
    doors.close()


@pytest.fixture
def files(moto_endpoint: str) -> Iterator[S3Files]:
    bucket = f"leanops-{secrets.token_hex(6)}"
    place = {"LocationConstraint": "eu-west-1"}
    boto3.client("s3", endpoint_url=moto_endpoint).create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
    with closing(connect("s3", endpoint=moto_endpoint)) as client:
        yield S3Files(client, bucket)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_messages_arrive_as_envelopes_and_are_acknowledged_only_then(
    queue: Doors, files: S3Files, tmp_path: Path
) -> None:
    payloads = [
        '{"name": "ä"}'.encode(),
        b"nul \x00 inside",
        "\uffff".encode(),
        b"\xff\x80",
        *(b"{}" for _ in range(21)),
    ]

    async def work() -> None:
        inbox = Inbox("orders")
        queue.may_send.clear()
        inbox.publish("orders", *(message(number, data) for number, data in enumerate(payloads)))
        async with bridging(inbox, queue, tmp_path, files=files) as bridge:
            await until(lambda: bridge.counts.received == 25 and not bridge.waiting)
            assert (inbox.acked, inbox.returned) == ([], [])
            assert queue.depth("orders").messages == 0
            queue.may_send.set()
            await until(lambda: len(inbox.acked) == 25)
            assert queue.depth("orders").messages == 25

    run(work)

    found = {one.message_id: one for one in queue.envelopes("orders")}
    texts = [found[f"m{number}"].payload for number in range(3)]
    assert texts == [payload.decode() for payload in payloads[:3]]
    assert found["m3"].data == b"\xff\x80"
    assert len(found) == 25


def test_a_message_over_the_queues_limit_is_a_claim_check_in_s3(queue: Doors, files: S3Files, tmp_path: Path) -> None:
    async def work() -> None:
        inbox = Inbox("orders")
        inbox.publish("orders", message(1, b"x" * 1_500_000), message(2))
        async with bridging(inbox, queue, tmp_path, files=files):
            await until(lambda: len(inbox.acked) == 2)

    run(work)

    large, small = queue.envelopes("orders")
    assert files.get(str(large.claim)) == b"x" * 1_500_000
    assert (large.payload, small.payload) == (None, "{}")


def test_a_missing_queue_is_told_once_and_asked_for_again_and_stops_no_other_topic(
    queue: Doors, files: S3Files, tmp_path: Path
) -> None:
    async def work() -> None:
        inbox, told = Inbox("orders", "payments"), []
        inbox.publish("payments", *(message(number, key="a") for number in range(30)))
        async with bridging(inbox, queue, tmp_path, files=files, told=told) as bridge:
            await until(lambda: len(inbox.returned) >= 60)
            inbox.publish("orders", *(message(number) for number in range(30, 55)))
            await until(lambda: len(inbox.acked) == 25)
            assert bridge.problem is None
            queue.create("payments")
            await until(lambda: len(inbox.acked) >= 55)
        reason = f"SQS has no queue {queue.prefix}payments; apply the infrastructure, or check region and prefix"
        assert told[:2] == [
            ("messages of a topic cannot be sent", {"topic": "payments", "reason": reason}),
            ("messages of a topic are sent again", {"topic": "payments"}),
        ]

    run(work)

    # Nothing of the other topic was sent a second time for it.
    assert [one.message_id for one in queue.envelopes("orders")] == [f"m{number}" for number in range(30, 55)]
    assert {one.message_id for one in queue.envelopes("payments")} == {f"m{number}" for number in range(30)}


def test_a_missing_bucket_holds_up_only_the_topic_that_needs_it(
    queue: Doors, tmp_path: Path, moto_endpoint: str
) -> None:
    queue.create("payments")
    client = connect("s3", endpoint=moto_endpoint)
    missing = S3Files(client, f"missing-{secrets.token_hex(6)}")

    async def work() -> None:
        inbox, told = Inbox("orders", "payments"), []
        inbox.publish("orders", message(1, b"x" * 300_000))
        async with bridging(inbox, queue, tmp_path, files=missing, told=told) as bridge:
            await until(lambda: len(inbox.returned) >= 2)
            inbox.publish("payments", message(2))
            await until(lambda: inbox.acked == ["m2"])
            assert bridge.problem is None
        [reason] = [facts["reason"] for what, facts in told if what == "messages of a topic cannot be sent"]
        assert reason.startswith("S3 has no bucket missing-")

    run(work)
    client.close()


def test_a_bridge_none_of_whose_queues_exists_is_not_ready_and_does_not_run_hot(
    queue: Doors, files: S3Files, tmp_path: Path
) -> None:
    async def work() -> None:
        inbox, told = Inbox("payments"), []
        slowly = {"first_pause_s": 60.0, "longest_pause_s": 60.0}
        inbox.publish("payments", message(1))
        async with bridging(inbox, queue, tmp_path, files=files, told=told, **slowly) as bridge:
            await until(lambda: bridge.problem and "has no queue" in bridge.problem)
            await until(lambda: len(inbox.delivered) == 2)
            for _ in range(100):
                await asyncio.sleep(0)
            assert queue.sent == ["payments"]
            inbox.redelivers = False
        # A stop wakes what waits, and nothing is kept from the next bridge.
        assert told[-1] == ("drained", {"in_flight": 1, "sent": 0, "given_back": 1, "dead": None})
        assert (inbox.acked, set(inbox.returned)) == ([], {"m1"})

    run(work)


def test_of_messages_for_several_queues_only_those_of_the_missing_one_fail(queue: Doors) -> None:
    names = ["orders", "missing", "orders", "missing"] * 8
    with pytest.raises(PartlySentError, match=r"has no queue .*missing; apply the infrastructure") as raised:
        queue.send([Outgoing(name, b"%d" % at) for at, name in enumerate(names)])

    assert sorted(raised.value.refused) == [at for at, name in enumerate(names) if name == "missing"]
    assert (raised.value.queues, raised.value.again) == ({"missing"}, [])
    assert queue.depth("orders").messages == 16
