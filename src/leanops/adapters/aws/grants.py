"""What each part may do on AWS: the one table that roles are made from; a test runs the parts and checks their calls.

Names follow the settings: tables and queues follow their prefixes, `bucket` is that of `[aws]`, `errors`
is where Firehose writes its error output. No part creates, changes or deletes a table, a queue, a bucket or a stream.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from leanops.ports.files import ARCHIVE, CLAIMS


@dataclass(frozen=True)
class Grant:
    """Actions on one kind of resource; a `*` in its name matches anything."""

    resource: str
    actions: tuple[str, ...]


def _table(name: str, *actions: str) -> Grant:
    return Grant(f"table/{name}", tuple(f"dynamodb:{action}" for action in actions))


def _objects(name: str, *actions: str) -> Grant:
    return Grant(name, tuple(f"s3:{action}" for action in actions))


_ARCHIVING = (_objects(f"bucket/{ARCHIVE}*", "PutObject"), _table("error_tracker", "GetItem", "PutItem"))
"""Needed to archive a dead letter."""
_RESUMING = (_objects(f"bucket/{ARCHIVE}*", "GetObject"),)
"""Needed to resume where an earlier invocation ended."""
_SWITCHES = (
    _table("breakers", "GetItem", "PutItem"),
    Grant("function/*", ("lambda:ListEventSourceMappings",)),
    Grant("mapping/*", ("lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping")),
)

GRANTS: Mapping[str, tuple[Grant, ...]] = {
    "bridge": (
        Grant("queue/*", ("sqs:GetQueueUrl", "sqs:SendMessage")),
        _objects(f"bucket/{CLAIMS}*", "PutObject"),
        *_ARCHIVING,
        _table("schema_registry", "Scan"),
        _table("workers", "GetItem", "PutItem", "DeleteItem", "Scan"),
    ),
    "processor": (
        Grant("stream/*", ("firehose:PutRecordBatch",)),
        _objects(f"bucket/{CLAIMS}*", "GetObject"),
        *_ARCHIVING,
        *_RESUMING,
        _table("schema_registry", "Scan"),
        _table("idempotency_keys", "BatchGetItem", "BatchWriteItem"),
        _table("message_failures", "GetItem", "PutItem"),
        *_SWITCHES,
    ),
    "dead_letters": (*_ARCHIVING, *_RESUMING, _table("schema_registry", "Scan")),
    "firehose_errors": (_objects("errors/*", "GetObject"), *_ARCHIVING, *_RESUMING),
    "breakers": (*_SWITCHES, _table("breakers", "Scan")),
    "validator": (
        Grant("bucket", ("s3:ListBucket",)),
        _objects("bucket/schemas/*", "GetObject", "PutObject", "DeleteObject"),
        _table("schema_registry", "GetItem", "PutItem"),
        Grant("job/*", ("glue:StartJobRun",)),
    ),
    "transform": (),
}
"""Part → what its role grants, beside what Lambda itself needs to invoke it and to write its log."""


def sentences(part: str) -> Iterator[str]:
    """The grants of a part in words, one sentence for each resource."""
    return (f"{', '.join(grant.actions)} on {grant.resource}" for grant in GRANTS[part])
