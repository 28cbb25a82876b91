"""Clients that are in a hurry: an answer is waited for so long, and no call begins when it may not."""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from leanops.adapters.aws.answers import Reach, connect
from leanops.adapters.aws.delivery import FirehoseDelivery
from leanops.adapters.aws.files import S3Files
from leanops.adapters.aws.queue import SqsQueue
from leanops.adapters.aws.state import DynamoState
from leanops.adapters.aws.switch import EventSourceSwitch
from leanops.domain.errors import RetryableError, StateUnavailableError
from leanops.ports.queue import Outgoing
from leanops.ports.state import LOCKS
from tests.support.standin import refusal, standin

CALLS: dict[str, Callable[[Reach], object]] = {
    "Firehose": lambda reach: FirehoseDelivery(connect("firehose", **reach), "stream").put([b"{}"]),
    "S3": lambda reach: S3Files(connect("s3", **reach), "bucket").get("file"),
    "SQS": lambda reach: SqsQueue(connect("sqs", **reach)).send([Outgoing("orders", b"{}")]),
    "DynamoDB": lambda reach: DynamoState(connect("dynamodb", **reach)).get(LOCKS, ("orders",)),
    "Lambda": lambda reach: EventSourceSwitch(connect("lambda", **reach), "processor").stop("orders"),
}


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(10)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("service", CALLS)
def test_a_store_that_hangs_is_an_outage_after_the_time_given(silent: str, service: str) -> None:
    began = time.monotonic()

    with pytest.raises(RetryableError, match=f"{service} does not answer"):
        CALLS[service]({"endpoint": silent, "attempts": 1, "answer_s": 0.2})

    assert time.monotonic() - began < 5


@pytest.mark.parametrize("service", CALLS)
def test_a_call_that_may_not_begin_is_an_outage_in_one_line(silent: str, service: str) -> None:
    with pytest.raises(RetryableError, match=f"{service} was not called for .*too little time") as raised:
        CALLS[service]({"endpoint": silent, "attempts": 1, "may_call": lambda: False})

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("code", ["SlowDown", "RequestThrottled", "ProvisionedThroughputExceededException"])
def test_a_busy_dynamodb_is_an_outage_by_the_codes_of_every_service(code: str) -> None:
    with standin(lambda *_: refusal(code)) as endpoint, pytest.raises(StateUnavailableError, match=code):
        DynamoState(connect("dynamodb", endpoint=endpoint, attempts=1)).get(LOCKS, ("orders",))
