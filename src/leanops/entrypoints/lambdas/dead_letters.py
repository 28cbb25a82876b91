"""Dead letters on AWS: what the dead-letter queues hold and what Firehose could not deliver, archived and noted."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

import msgspec
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from leanops.domain.errors import reason_of
from leanops.domain.event.record import Unroutable
from leanops.entrypoints.lambdas.invocation import Context, answer, log, patience, received, runtime
from leanops.ports.files import CLAIMS
from leanops.ports.queue import DEAD, Received
from leanops.runtimes.aws import Aws
from leanops.usecases.dlq.drain import exceeded
from leanops.usecases.dlq.firehose_errors import Burial, bury_message, bury_object
from leanops.usecases.ingest.archive import DeadLetter, unroutable

ARCHIVE = "dlq/"
GIVEN_UP = "it was received too often and never succeeded"


class _Undelivered(msgspec.Struct, rename="camel"):
    """A line of Firehose's error output."""

    raw_data: bytes
    error_code: str = "no code"


_undelivered = msgspec.json.Decoder(_Undelivered)


def handler(event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """Bury the messages of dead-letter queues; those that must come again are named."""
    return bury_messages(runtime(context), event, context)


def errors_handler(event: Mapping[str, Any], context: Context) -> int:
    """Bury the records of an object that Firehose wrote to its error output; how many they were."""
    return bury_records(runtime(context), event, context)


def bury_messages(aws: Aws, event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """The same on any runtime; each message answers for itself, and one that comes again goes on where it was."""
    burial = Burial(aws.files, aws.state, aws.clock, patience(context))
    messages = [(aws.queue_of(arn), message) for arn, found in received(event).items() for message in found]
    failed: list[Received] = []
    for number, (queue, message) in enumerate(messages):
        if number and burial.patience.give_up():
            log.warning("time is over; the other messages come again", messages=len(messages) - number)
            return answer([*failed, *(left for _, left in messages[number:])])
        if not _is_buried(aws, burial, queue, message):
            failed.append(message)
    return answer(failed)


def _is_buried(aws: Aws, burial: Burial, queue: str, message: Received) -> bool:
    """Whether all events of a message are put aside; one that fails has no say over the others."""
    try:
        letters = exceeded(aws.registered.topic_of(queue.removesuffix(DEAD)), message, GIVEN_UP)
        bury_message(burial, f"{queue}/{message.receipt}", letters)
    except Exception as failure:
        log.error("a dead letter comes again", queue=queue, reason=reason_of(failure))
        return False
    log.warning("events put aside", queue=queue, events=len(letters))
    return True


def bury_records(aws: Aws, event: Mapping[str, Any], context: Context) -> int:
    """The same on any runtime; it raises where an object is not buried to its end, so that the event comes again."""
    burial = Burial(aws.files, aws.state, aws.clock, patience(context))
    records = 0
    for bucket, key, tag in _objects(event):
        if bucket == aws.settings.aws_bucket and key.startswith((ARCHIVE, CLAIMS)):
            # Our own files; burying them would make more of them without end.
            log.error("a file of ours is no error output; check the rule that calls this function", file=key)
            continue
        buried = bury_object(burial, aws.objects_in(bucket), key, f"{bucket}/{key}/{tag}", _letter)
        if buried is None:
            log.error("an object of the error output is gone", bucket=bucket, file=key)
        else:
            log.warning("records put aside", bucket=bucket, file=key, records=buried)
            records += buried
    return records


def _objects(event: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Bucket, name and content tag of every object, as EventBridge tells them or as S3's own notifications do."""
    if "detail" in event:
        found = event["detail"]["object"]
        yield event["detail"]["bucket"]["name"], found["key"], found.get("etag", "")
    for record in event.get("Records", []):
        found = record["s3"]["object"]
        yield record["s3"]["bucket"]["name"], unquote_plus(found["key"]), found.get("eTag", "")


def _letter(line: bytes) -> DeadLetter:
    return unroutable(_record(line))


def _record(line: bytes) -> Unroutable:
    try:
        found = _undelivered.decode(line)
    except (ValueError, RecursionError):
        return Unroutable(line, None, "is no line of Firehose's error output")
    return Unroutable(found.raw_data, None, f"Firehose did not deliver it: {found.error_code[:80]}; see its log")
