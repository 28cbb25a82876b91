"""Dead letters on AWS: what the dead-letter queues hold and what Firehose could not deliver, archived and noted."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

import msgspec
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from leanops.domain.envelope import envelopes_in
from leanops.domain.errors import RetryableError
from leanops.domain.records import Unroutable
from leanops.entrypoints.lambdas.invocation import Context, answer, log, patience, received, runtime
from leanops.ports.queue import DEAD, Received
from leanops.runtimes.aws import Aws
from leanops.usecases.dead_letters import DeadLetter, bury, unroutable
from leanops.usecases.dlq import exceeded


class _Undelivered(msgspec.Struct, rename="camel"):
    """A line of Firehose's error output."""

    raw_data: bytes
    error_code: str = "no code"


_undelivered = msgspec.json.Decoder(_Undelivered)


def handler(event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """Bury the messages of dead-letter queues; those that must come again are named."""
    return bury_messages(runtime(), event, context)


def errors_handler(event: Mapping[str, Any], context: Context) -> int:
    """Bury the records of an object that Firehose wrote to its error output; how many they were."""
    return bury_records(runtime(), event, context)


def bury_messages(aws: Aws, event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """The same on any runtime; in an outage all of them come again."""
    failed: list[Received] = []
    for arn, messages in received(event).items():
        queue = aws.queue_of(arn).removesuffix(DEAD)
        try:
            topic = aws.registered.topic_of(queue)
            letters = [exceeded(topic, found) for message in messages for found in envelopes_in(message.body)]
            _bury(aws, letters, context)
        except RetryableError as outage:
            log.error("all messages come again", queue=queue, messages=len(messages), reason=str(outage))
            failed += messages
        else:
            log.warning("events put aside", queue=queue, events=len(letters))
    return answer(failed)


def bury_records(aws: Aws, event: Mapping[str, Any], context: Context) -> int:
    """The same on any runtime; an outage is raised, so that the event comes again."""
    letters: list[DeadLetter] = []
    for bucket, name in _objects(event):
        data = aws.files_in(bucket).get(name)
        if data is None:
            log.error("an object of the error output is gone", bucket=bucket, file=name)
            continue
        letters += [unroutable(_record(line)) for line in data.split(b"\n") if line.strip()]
    _bury(aws, letters, context)
    log.warning("records put aside", records=len(letters))
    return len(letters)


def _bury(aws: Aws, letters: list[DeadLetter], context: Context) -> None:
    patience(context).persist(lambda: bury(letters, aws.files, aws.state, aws.clock))


def _objects(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Bucket and name of every object, as EventBridge tells them or as S3's own notifications do."""
    if "detail" in event:
        yield event["detail"]["bucket"]["name"], event["detail"]["object"]["key"]
    for record in event.get("Records", []):
        yield record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"])


def _record(line: bytes) -> Unroutable:
    try:
        found = _undelivered.decode(line)
    except (ValueError, RecursionError):
        return Unroutable(line, None, "is no line of Firehose's error output")
    return Unroutable(found.raw_data, None, f"Firehose did not deliver it: {found.error_code[:80]}; see its log")
