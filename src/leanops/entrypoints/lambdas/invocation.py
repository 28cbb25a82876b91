"""What every function shares: its runtime, its log, how long it may wait, and the messages of an SQS event."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from leanops.ports.queue import Received
from leanops.runtimes.aws import Aws
from leanops.usecases.retry import Patience

ANSWER_S = 4.0
"""How long a function waits for one answer of a store; it tries again itself."""
CALL_MS = 7_000
"""The time a call may take until it is given up, connecting included; with less left, none begins."""
MARGIN_MS = 15_000
"""The time a function reserves to end its last try, update the breaker, and answer."""

log = Logger(service="leanops")


class Context(Protocol):
    """Lambda's context of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """How long it may still run."""


@dataclass
class _Invocation:
    """The current invocation; Lambda gives a process one at a time."""

    context: Context | None = None

    def may_call(self) -> bool:
        return self.context is None or self.context.get_remaining_time_in_millis() >= CALL_MS


_invocation = _Invocation()


def runtime(context: Context) -> Aws:
    """The runtime, created by the first invocation and kept for the next; no call outlives this invocation."""
    _invocation.context = context
    return made()


@lru_cache(maxsize=1)
def made() -> Aws:
    """The runtime of this process."""
    return Aws(attempts=1, answer_s=ANSWER_S, may_call=_invocation.may_call)


def patience(context: Context) -> Patience:
    """Wait outages out until the function's time is nearly over."""

    def left_s() -> float:
        return max(0, context.get_remaining_time_in_millis() - MARGIN_MS) / 1000

    return Patience(lambda: left_s() == 0, lambda seconds: time.sleep(min(seconds, left_s())))


def received(event: Mapping[str, Any]) -> dict[str, list[Received]]:
    """The messages of an SQS event by the ARN of their queue; the receipt of each is its id."""
    by_queue: dict[str, list[Received]] = defaultdict(list)
    for record in event["Records"]:
        body = record["body"].encode(errors="surrogatepass")
        message = Received(body, record["messageId"], int(record["attributes"]["ApproximateReceiveCount"]))
        by_queue[record["eventSourceARN"]].append(message)
    return by_queue


def answer(failed: list[Received]) -> PartialItemFailureResponse:
    """Only these messages return to their queue."""
    return {"batchItemFailures": [{"itemIdentifier": str(message.receipt)} for message in failed]}
