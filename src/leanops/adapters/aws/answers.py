"""Clients for AWS, and boto3's errors as one line of ours: an outage is retried, all else needs a person."""

from collections.abc import Callable, Container, Iterator
from contextlib import ContextDecorator, contextmanager
from typing import Any, TypedDict, Unpack

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as UnreachableError

from leanops.domain.errors import InfrastructureError, LeanOpsError, PermanentError, RetryableError

BUSY = {
    *("ConcurrentRunsExceededException", "KmsThrottled", "LimitExceededException", "OverLimit"),
    *("ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled", "RequestTimeout"),
    *("ResourceNumberLimitExceededException", "ResourceInUseException", "ServiceUnavailable"),
    *("ServiceUnavailableException", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException"),
    "TransactionConflictException",
}
MISSING = {
    *("404", "AWS.SimpleQueueService.NonExistentQueue", "EntityNotFoundException", "NoSuchBucket"),
    *("QueueDoesNotExist", "ResourceNotFoundException"),
}
ATTEMPTS, DYNAMODB_ATTEMPTS = 4, 6
CONNECT_S = 5.0
ANSWER_S = 15.0


class Reach(TypedDict, total=False):
    """How a client reaches its service; region and credentials come from the environment."""

    endpoint: str | None
    attempts: int
    answer_s: float
    """How long to wait for an answer; for a connection, half as long."""
    may_call: Callable[[], bool]
    """Checked before every call; a call that may not be made counts as an outage."""


class _NotAskedError(Exception):
    """A call that may not be made."""


def connect(service: str, **reach: Unpack[Reach]) -> Any:
    """A client that threads may share."""
    answer_s, may_call = reach.get("answer_s", ANSWER_S), reach.get("may_call")
    attempts = reach.get("attempts", DYNAMODB_ATTEMPTS if service == "dynamodb" else ATTEMPTS)
    retries: Any = {"mode": "standard", "total_max_attempts": attempts}
    connect_s = min(CONNECT_S, answer_s / 2)
    config = Config(retries=retries, connect_timeout=connect_s, read_timeout=answer_s, max_pool_connections=32)
    with answering(service, "anything", RetryableError):
        client: Any = boto3.client(service, endpoint_url=reach.get("endpoint"), config=config)

    def check(**_: object) -> None:
        if may_call and not may_call():
            raise _NotAskedError

    client.meta.events.register("before-call", check)
    return client


@contextmanager
def answering(service: str, subject: str, unavailable: type[RetryableError]) -> Iterator[None]:
    """Turn every failure of a call about this subject into one line of ours."""
    try:
        yield
    except _NotAskedError as late:
        raise unavailable(f"{service} was not called for {subject}: too little time is left; try again") from late
    except ClientError as error:
        raise _answered(error, service, subject, unavailable) from error
    except BotoCoreError as error:
        raise _unanswered(error, service, subject, unavailable) from error


@contextmanager
def allowing(codes: Container[str]) -> Iterator[None]:
    """Suppress an error answer with one of these codes; the caller continues after the block."""
    try:
        yield
    except ClientError as error:
        if code_of(error) not in codes:
            raise


def pages(client: Any, operation: str, about: ContextDecorator, **arguments: Any) -> Iterator[Any]:
    """The pages of a listing, each requested when it is read; `about` translates the failure of any of them."""
    listing = iter(client.get_paginator(operation).paginate(**arguments))
    return iter(about(lambda: next(listing, None)), None)


def code_of(error: ClientError) -> str:
    """The code of an error, without the namespace that older protocols add."""
    code: str = error.response["Error"]["Code"]
    return code.rpartition("#")[2]


def is_missing(failure: LeanOpsError) -> bool:
    """Whether a failure of ours means that the resource does not exist."""
    cause = failure.__cause__
    return isinstance(cause, ClientError) and code_of(cause) in MISSING


def _answered(error: ClientError, service: str, subject: str, unavailable: type[RetryableError]) -> LeanOpsError:
    code = code_of(error)
    if code in BUSY or error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
        return unavailable(f"{service} is too busy for {subject} ({code}); try again, or raise its limits")
    if code in MISSING:
        return InfrastructureError(f"{service} has no {subject}; apply the infrastructure, or check region and prefix")
    if code == "ValidationException":
        return PermanentError(f"{service} refuses {subject} ({code}); check the size of what is written")
    return InfrastructureError(f"{service} refuses {subject} ({code}); check what this role may do")


def _unanswered(error: BotoCoreError, service: str, subject: str, unavailable: type[RetryableError]) -> LeanOpsError:
    line = " ".join(str(error).split())
    if isinstance(error, HTTPClientError | IncompleteReadError | UnreachableError):
        advice = "check the network, the region and the endpoint, then try again"
        return unavailable(f"{service} does not answer for {subject} ({line}); {advice}")
    return InfrastructureError(f"{service} cannot be called for {subject} ({line}); check region and credentials")
