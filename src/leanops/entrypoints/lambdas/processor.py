"""The processor as a Lambda function: SQS messages become records of the delivery stream."""

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from leanops.domain.breaker import State
from leanops.entrypoints.lambdas.invocation import Context, answer, log, patience, received, runtime
from leanops.ports.queue import Received
from leanops.runtimes.aws import Aws
from leanops.usecases.ingest.consume import Consumed, consume


def handler(event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """Deliver the messages of an SQS event; those that must come again are named."""
    return process(runtime(context), event, context)


def process(aws: Aws, event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """The same on any runtime."""
    processor, breakers = aws.processor(patience(context)), aws.breakers
    again: list[Received] = []
    for arn, messages in received(event).items():
        queue = aws.queue_of(arn)
        consumed = consume(processor, breakers, queue, messages)
        _log(queue, len(messages), consumed)
        again += consumed.again
    return answer(again)


def _log(queue: str, messages: int, consumed: Consumed) -> None:
    log.info(
        "messages taken",
        queue=queue,
        messages=messages,
        again=len(consumed.again),
        events=consumed.events,
        repeats=consumed.repeats,
    )
    if consumed.outage is not None:
        log.error("an outage", queue=queue, again=len(consumed.again), reason=consumed.outage)
    if consumed.archived:
        log.warning("events archived as dead letters", queue=queue, events=consumed.archived)
    if consumed.forgotten:
        log.warning("delivered events were not remembered", queue=queue, events=consumed.forgotten)
    for reason in set(consumed.reasons):
        log.warning("a message failed", queue=queue, reason=reason)
    if consumed.breaker is None:
        log.error("the breaker could not be updated", queue=queue)
    elif consumed.breaker.state is State.OPEN:
        log.error("consumption stopped", queue=queue, reason=consumed.breaker.reason)
