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
        found = consume(processor, breakers, queue, messages)
        _say(queue, len(messages), found)
        again += found.again
    return answer(again)


def _say(queue: str, messages: int, found: Consumed) -> None:
    log.info(
        "messages taken",
        queue=queue,
        messages=messages,
        again=len(found.again),
        events=found.events,
        repeats=found.repeats,
    )
    if found.outage is not None:
        log.error("an outage", queue=queue, again=len(found.again), reason=found.outage)
    if found.archived:
        log.warning("events archived as dead letters", queue=queue, events=found.archived)
    if found.forgotten:
        log.warning("delivered events were not remembered", queue=queue, events=found.forgotten)
    for reason in set(found.reasons):
        log.warning("a message failed", queue=queue, reason=reason)
    if found.breaker is None:
        log.error("the breaker was not told", queue=queue)
    elif found.breaker.state is State.OPEN:
        log.error("consumption stopped", queue=queue, reason=found.breaker.reason)
