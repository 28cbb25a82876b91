"""What a queue says when its server is away, busy or refuses: one line, and the right kind of error."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.queue import SqsQueue
from leanops.adapters.sql.queue import SqlQueue
from leanops.domain.errors import PartlySentError, PermanentError, QueueUnavailableError
from leanops.ports.queue import Outgoing, Queue
from tests.support.engines import free_port
from tests.support.queues import numbered
from tests.support.standin import Answer, refusal, standin


def sqs(endpoint: str, **arguments: Any) -> SqsQueue:
    return SqsQueue(connect("sqs", endpoint=endpoint, attempts=1), wait_s=0, **arguments)


AWAY: dict[str, Callable[[], Queue]] = {
    "postgresql": lambda: SqlQueue(f"postgresql://leanops@127.0.0.1:{free_port()}/db", lambda: 0, wait_seconds=0.2),
    "sqs": lambda: sqs(f"http://127.0.0.1:{free_port()}"),
}


@pytest.mark.parametrize("engine", AWAY)
def test_an_unreachable_server_is_an_outage_in_one_line(engine: str) -> None:
    queue = AWAY[engine]()

    with pytest.raises(QueueUnavailableError, match=r"does not answer .*try again") as raised:
        queue.send([Outgoing("orders", b"{}")])

    assert "\n" not in str(raised.value)


def test_a_queue_file_in_a_folder_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "queue.db").mkdir()
    queue = SqlQueue(f"sqlite:///{tmp_path}/queue.db", lambda: 0, wait_seconds=0.2)

    with pytest.raises(QueueUnavailableError, match="does not answer"):
        queue.receive("orders", 10, 30)


class Server:
    """SQS as far as these tests need it; `fate` decides about every body."""

    def __init__(self, fate: Callable[[str], dict[str, Any] | None]) -> None:
        self.fate, self.taken, self.calls = fate, list[str](), list[list[str]]()
        self.of_queue: dict[str, list[str]] = defaultdict(list)
        self.lock = threading.Lock()

    def __call__(self, operation: str, request: dict[str, Any]) -> Answer:
        if operation == "GetQueueUrl":
            return 200, {"QueueUrl": f"http://127.0.0.1/{request['QueueName']}"}
        bodies = {entry["Id"]: entry["MessageBody"] for entry in request["Entries"]}
        failed = [{"Id": name, **said} for name, body in bodies.items() if (said := self.fate(body))]
        taken = [name for name in bodies if name not in {entry["Id"] for entry in failed}]
        with self.lock:
            self.calls.append(list(bodies.values()))
            self.taken += [bodies[name] for name in taken]
            self.of_queue[request["QueueUrl"].rpartition("/")[2]] += [bodies[name] for name in taken]
        return 200, {"Successful": [{"Id": name, "MessageId": name} for name in taken], "Failed": failed}


def outgoing(*bodies: bytes) -> list[Outgoing]:
    return [Outgoing("orders", body) for body in bodies]


def test_only_the_entries_that_were_not_taken_are_to_be_sent_again() -> None:
    server = Server(lambda body: {"SenderFault": False, "Code": "ThrottlingException"} if body.endswith("5") else None)
    with standin(server) as endpoint:
        failed = sqs(endpoint).send(outgoing(*numbered(25)))

    assert failed == [5, 15]
    assert sorted(server.taken) == [body.decode() for body in numbered(25) if not body.endswith(b"5")]


def test_an_entry_that_is_at_fault_itself_is_a_permanent_error() -> None:
    server = Server(lambda body: {"SenderFault": True, "Code": "InvalidMessageContents"} if body == "bad" else None)
    with standin(server) as endpoint, pytest.raises(PartlySentError, match="InvalidMessageContents") as raised:
        sqs(endpoint).send(outgoing(*numbered(12), b"bad"))

    assert "bad" not in str(raised.value)
    assert (list(raised.value.refused), list(raised.value.queues), raised.value.again) == ([12], [], [])
    assert len(server.taken) == 12


def test_a_batch_stays_within_ten_messages_and_the_bytes_of_a_call() -> None:
    server = Server(lambda _: None)
    with standin(server) as endpoint:
        sqs(endpoint, max_bytes=1_000).send(
            outgoing(*(b"x" * 400 for _ in range(5)), *numbered(15), "é".encode() * 500)
        )

    assert all(len(call) <= 10 and sum(len(body.encode()) for body in call) <= 1_000 for call in server.calls)
    assert len(server.taken) == 21


@pytest.mark.parametrize("body", [b"x" * 1_001, "\uffff".encode() * 200, b"\xff"], ids=["large", "escaped", "bytes"])
def test_a_body_that_does_not_fit_is_refused_before_it_is_sent(body: bytes) -> None:
    server = Server(lambda _: None)
    with standin(server) as endpoint, pytest.raises(PermanentError):
        sqs(endpoint, max_bytes=1_000).send(outgoing(b"good", body))

    assert server.taken == []


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("RequestThrottled", 400, QueueUnavailableError),
        ("ThrottlingException", 400, QueueUnavailableError),
        ("InternalFailure", 500, QueueUnavailableError),
        ("QueueDoesNotExist", 400, PermanentError),
        ("AccessDeniedException", 400, PermanentError),
    ],
)
def test_an_answer_that_is_an_error_is_of_the_right_kind(code: str, status: int, error: type[Exception]) -> None:
    with standin(lambda *_: refusal(code, status)) as endpoint, pytest.raises(error, match="orders") as raised:
        sqs(endpoint).depth("orders")

    assert "\n" not in str(raised.value)


def test_what_follows_an_outage_waits_with_it_and_other_queues_do_not() -> None:
    server = Server(lambda _: None)
    messages = [Outgoing(queue, body) for body in numbered(25) for queue in ("orders", "payments")]

    def answer(operation: str, request: dict[str, Any]) -> Answer:
        return (
            refusal("ServiceUnavailable", 503)
            if "message 0013" in json.dumps(request) and request["QueueUrl"].endswith("orders")
            else server(operation, request)
        )

    with standin(answer) as endpoint:
        failed = sqs(endpoint).send(messages)

    assert failed == list(range(20, 50, 2))
    assert len(server.taken) == 35


def test_the_batches_of_one_queue_are_sent_in_order_and_queues_at_once() -> None:
    server, both = Server(lambda _: None), threading.Barrier(2)

    def answer(operation: str, request: dict[str, Any]) -> Answer:
        if operation == "SendMessageBatch" and "message 0000" in json.dumps(request):
            # The first batches of both queues are under way together.
            both.wait(20)
        return server(operation, request)

    with standin(answer) as endpoint:
        assert sqs(endpoint).send([Outgoing(name, body) for name in ("a", "b") for body in numbered(45)]) == []

    assert server.of_queue == {name: [body.decode() for body in numbered(45)] for name in ("a", "b")}


def test_queues_are_made_with_fourteen_days_and_five_receives(moto_endpoint: str) -> None:
    queue = sqs(moto_endpoint, prefix="made-")
    queue.create("orders")

    client = boto3.client("sqs", endpoint_url=moto_endpoint)
    url = client.get_queue_url(QueueName="made-orders")["QueueUrl"]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]

    assert found["MessageRetentionPeriod"] == str(14 * 86_400)
    assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == 5
    assert json.loads(found["RedrivePolicy"])["deadLetterTargetArn"].endswith(":made-orders-dlq")
    assert queue.depth("orders-dlq").messages == 0
