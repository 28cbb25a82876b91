"""Dead letters on AWS: what the dead-letter queues hold and what Firehose could not deliver, archived and noted."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from leanops.domain.errors import reason_of
from leanops.entrypoints.lambdas.invocation import Context, answer, log, patience, received, runtime
from leanops.ports.files import ARCHIVE, CLAIMS
from leanops.ports.queue import DEAD, Received
from leanops.runtimes.aws import Aws
from leanops.usecases.dlq.firehose_errors import archive_object
from leanops.usecases.ingest.archive import ChunkedArchive, exceeded

GIVEN_UP = "it was received too often and never succeeded"


def handler(event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """Archive the messages of dead-letter queues; those that must come again are named."""
    return archive_messages(runtime(context), event, context)


def errors_handler(event: Mapping[str, Any], context: Context) -> int:
    """Archive the records of an object that Firehose wrote to its error output; how many they were."""
    return archive_records(runtime(context), event, context)


def archive_messages(aws: Aws, event: Mapping[str, Any], context: Context) -> PartialItemFailureResponse:
    """The same on any runtime; each message is answered alone, and one that comes again is resumed where it stopped."""
    archive = ChunkedArchive(aws.files, aws.state, aws.clock, patience(context))
    messages = [(aws.queue_of(arn), message) for arn, batch in received(event).items() for message in batch]
    failed: list[Received] = []
    for number, (queue, message) in enumerate(messages):
        if number and archive.patience.give_up():
            log.warning("time is over; the other messages come again", messages=len(messages) - number)
            return answer([*failed, *(left for _, left in messages[number:])])
        if not _is_archived(aws, archive, queue, message):
            failed.append(message)
    return answer(failed)


def _is_archived(aws: Aws, archive: ChunkedArchive, queue: str, message: Received) -> bool:
    """Whether all events of a message are archived; a failure does not affect other messages."""
    try:
        dead_letters = exceeded(aws.registered.topic_of(queue.removesuffix(DEAD)), message, GIVEN_UP)
        archive.archive_message(f"{queue}/{message.receipt}", dead_letters)
    except Exception as failure:
        log.error("a dead letter comes again", queue=queue, reason=reason_of(failure))
        return False
    log.warning("events archived as dead letters", queue=queue, events=len(dead_letters))
    return True


def archive_records(aws: Aws, event: Mapping[str, Any], context: Context) -> int:
    """The same on any runtime; it raises where an object is not archived to its end, so that the event comes again."""
    archive = ChunkedArchive(aws.files, aws.state, aws.clock, patience(context))
    records = 0
    for bucket, key, tag in _objects(event):
        if bucket == aws.settings.aws.bucket and key.startswith((ARCHIVE, CLAIMS)):
            # Our own files; archiving them would make more of them without end.
            log.error("a file of ours is not error output; check the rule that calls this function", file=key)
            continue
        archived = archive_object(archive, aws.objects_in(bucket), key, f"{bucket}/{key}/{tag}")
        if archived is None:
            log.error("an object of the error output is gone", bucket=bucket, file=key)
        else:
            log.warning("records archived as dead letters", bucket=bucket, file=key, records=archived)
            records += archived
    return records


def _objects(event: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Bucket, name and content tag of every object, in an event of EventBridge or in S3's own notifications."""
    if "detail" in event:
        s3_object = event["detail"]["object"]
        yield event["detail"]["bucket"]["name"], s3_object["key"], s3_object.get("etag", "")
    for record in event.get("Records", []):
        s3_object = record["s3"]["object"]
        yield record["s3"]["bucket"]["name"], unquote_plus(s3_object["key"]), s3_object.get("eTag", "")
