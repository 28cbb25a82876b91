"""Schema files on S3: judged when they arrive; those that are sound go to the Spark job that looks at rows.

EventBridge calls it for "Object Created" in the bucket. The job plans the file on rows and activates it; nothing else
is written here, so an event that comes twice starts at most a second job, which finds nothing left to do.
"""

from collections.abc import Mapping
from typing import Any

from leanops.entrypoints.lambdas.invocation import Context, log, patience, runtime
from leanops.ports.schemas import Pending, pending_at
from leanops.runtimes.aws import SCHEMAS, Aws
from leanops.usecases.schemas.validate import Outcome, judge


def handler(event: Mapping[str, Any], context: Context) -> str:
    """Judge the schema file of an event; what became of it, in a word."""
    return validate(runtime(context), event, context)


def validate(aws: Aws, event: Mapping[str, Any], context: Context) -> str:
    """The same on any runtime; it raises where a store or Glue is away, so that the event comes again."""
    key = str(event["detail"]["object"]["key"])
    pending = pending_at(key.removeprefix(SCHEMAS)) if key.startswith(SCHEMAS) else None
    if pending is None or event["detail"]["bucket"]["name"] != aws.settings.aws.bucket:
        log.info("no schema file that waits", file=key)
        return "ignored"
    return patience(context).persist(lambda: _judged(aws, pending))


def _judged(aws: Aws, pending: Pending) -> str:
    verdict = judge(aws.intake, pending)
    if verdict.outcome is Outcome.SOUND:
        run = aws.start_schema_job(pending.topic, pending.name)
        log.info("job started", topic=pending.topic, file=pending.name, run=run)
    elif verdict.outcome is Outcome.FAILED:
        log.warning("schema file refused", topic=pending.topic, file=pending.name, reason=verdict.sentence())
    return verdict.outcome.value
