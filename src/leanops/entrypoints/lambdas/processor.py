"""The processor as a Lambda function: SQS messages become records of the delivery stream."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from leanops.domain.breaker import State
from leanops.domain.errors import LeanOpsError
from leanops.entrypoints.lambdas.invocation import Context, answer, log, patience, received, runtime
from leanops.ports.queue import Received
from leanops.runtimes.aws import Aws
from leanops.usecases.breaker import Breakers
from leanops.usecases.ingest import Processor, ingest


def handler(event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """Deliver the messages of an SQS event; those that must come again are named."""
    return process(runtime(context), event, context)


def process(aws: Aws, event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """The same on any runtime."""
    processor, breakers = aws.processor(patience(context)), aws.breakers
    failed: list[Received] = []
    for arn, messages in received(event).items():
        failed += _ingested(breakers, processor, aws.queue_of(arn), messages)
    return answer(failed)


def _ingested(breakers: Breakers, processor: Processor, queue: str, messages: Sequence[Received]) -> Sequence[Received]:
    """The messages that failed; where a store is away or refuses, that are all of them."""
    try:
        result = ingest(processor, queue, messages)
    except LeanOpsError as failure:
        log.error("all messages come again", queue=queue, messages=len(messages), reason=str(failure))
        # Every try of a function uses up a receive, so a failure that lasts has to stop consumption, too.
        _report(breakers, queue, 0, len(messages))
        return messages
    log.info("delivered", queue=queue, messages=len(messages), events=result.events, repeats=result.repeats)
    if result.buried:
        log.warning("events put aside", queue=queue, events=result.buried)
    for reason in set(result.reasons):
        log.warning("a message comes again", queue=queue, reason=reason)
    _report(breakers, queue, result.events + result.repeats, len(result.failed) + result.buried)
    return result.failed


def _report(breakers: Breakers, queue: str, succeeded: int, failed: int) -> None:
    """Tell the breaker; one that cannot be told is no reason to deliver these messages again."""
    try:
        after = breakers.report(queue, succeeded, failed)
    except LeanOpsError as failure:
        log.error("the breaker was not told", queue=queue, reason=str(failure))
        return
    if after.state is State.OPEN:
        log.error("consumption stopped", queue=queue, reason=after.reason)
