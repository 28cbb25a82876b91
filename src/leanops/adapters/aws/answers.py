"""What boto3 raises, as one line of ours: an outage may be waited out, everything else is for a person."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as UnreachableError

from leanops.domain.errors import LeanOpsError, PermanentError, RetryableError

BUSY = {
    "KmsThrottled",
    "LimitExceededException",
    "OverLimit",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestTimeout",
    "ResourceInUseException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
MISSING = {
    "404",
    "AWS.SimpleQueueService.NonExistentQueue",
    "NoSuchBucket",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
}


def connect(service: str, *, region: str | None, endpoint: str | None, attempts: int = 4) -> Any:
    """A client that threads may share; region and credentials come from the environment unless given."""
    retries: Any = {"mode": "standard", "total_max_attempts": attempts}
    config = Config(retries=retries, connect_timeout=5, read_timeout=15, max_pool_connections=32)
    with answering(service, "anything", RetryableError):
        return boto3.client(service, region_name=region, endpoint_url=endpoint, config=config)


@contextmanager
def answering(service: str, subject: str, unavailable: type[RetryableError]) -> Iterator[None]:
    """Turn every failure of a call about this subject into one line of ours."""
    try:
        yield
    except ClientError as error:
        raise _answered(error, service, subject, unavailable) from error
    except BotoCoreError as error:
        raise _unanswered(error, service, subject, unavailable) from error


def code_of(error: ClientError) -> str:
    """The code of an answer that is an error, without the namespace that older protocols give it."""
    code: str = error.response["Error"]["Code"]
    return code.rpartition("#")[2]


def _answered(error: ClientError, service: str, subject: str, unavailable: type[RetryableError]) -> LeanOpsError:
    code = code_of(error)
    if code in BUSY or error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
        return unavailable(f"{service} is too busy for {subject} ({code}); try again, or raise its limits")
    if code in MISSING:
        return PermanentError(f"{service} has no {subject}; apply the infrastructure, or check region and prefix")
    return PermanentError(f"{service} refuses {subject} ({code}); check what this role may do")


def _unanswered(error: BotoCoreError, service: str, subject: str, unavailable: type[RetryableError]) -> LeanOpsError:
    line = " ".join(str(error).split())
    if isinstance(error, HTTPClientError | IncompleteReadError | UnreachableError):
        advice = "check the network, the region and the endpoint, then try again"
        return unavailable(f"{service} does not answer for {subject} ({line}); {advice}")
    return PermanentError(f"{service} cannot be asked for {subject} ({line}); check region and credentials")
