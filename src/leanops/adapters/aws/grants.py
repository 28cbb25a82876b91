"""What each part on AWS may do: the one table roles are made from; a test runs the parts and holds their calls to it.

Names stand for what settings name: tables and queues come after their prefixes, `bucket` is one of `[aws]`, `errors` is
where Firehose writes its error output. No part makes, changes or deletes a table, a queue, a bucket or a stream.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from leanops.ports.files import CLAIMS

ARCHIVE = "dlq/"
# IAM has one action for a call and its form for many.
_ACTIONS = {
    "sqs:SendMessageBatch": "sqs:SendMessage",
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
    "s3:ListObjectsV2": "s3:ListBucket",
}


@dataclass(frozen=True)
class Grant:
    """Actions on one kind of resource; a `*` in its name stands for anything."""

    resource: str
    actions: tuple[str, ...]

    def allows(self, action: str, resource: str) -> bool:
        """Whether this grant covers an action on a resource."""
        return action in self.actions and fnmatchcase(resource, self.resource)


def _table(name: str, *actions: str) -> Grant:
    return Grant(f"table/{name}", tuple(f"dynamodb:{action}" for action in actions))


def _objects(name: str, *actions: str) -> Grant:
    return Grant(name, tuple(f"s3:{action}" for action in actions))


_BURIAL = (_objects(f"bucket/{ARCHIVE}*", "PutObject"), _table("error_tracker", "GetItem", "PutItem"))
"""What it takes to put an event aside."""
_LONG_BURIAL = (_objects(f"bucket/{ARCHIVE}*", "GetObject"),)
"""What it takes to go on where an earlier invocation ended."""
_SWITCHES = (
    _table("breakers", "GetItem", "PutItem"),
    Grant("function/*", ("lambda:ListEventSourceMappings",)),
    Grant("mapping/*", ("lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping")),
)

GRANTS: Mapping[str, tuple[Grant, ...]] = {
    "bridge": (
        Grant("queue/*", ("sqs:GetQueueUrl", "sqs:SendMessage")),
        _objects(f"bucket/{CLAIMS}*", "PutObject"),
        *_BURIAL,
        _table("schema_registry", "Scan"),
        _table("workers", "GetItem", "PutItem", "DeleteItem", "Scan"),
    ),
    "processor": (
        Grant("stream/*", ("firehose:PutRecordBatch",)),
        _objects(f"bucket/{CLAIMS}*", "GetObject"),
        *_BURIAL,
        *_LONG_BURIAL,
        _table("schema_registry", "Scan"),
        _table("idempotency_keys", "BatchGetItem", "BatchWriteItem"),
        _table("message_failures", "GetItem", "PutItem"),
        *_SWITCHES,
    ),
    "dead_letters": (*_BURIAL, *_LONG_BURIAL, _table("schema_registry", "Scan")),
    "firehose_errors": (_objects("errors/*", "GetObject"), *_BURIAL, *_LONG_BURIAL),
    "breakers": (*_SWITCHES, _table("breakers", "Scan")),
    "validator": (
        Grant("bucket", ("s3:ListBucket",)),
        _objects("bucket/schemas/*", "GetObject", "PutObject", "DeleteObject"),
        _table("schema_registry", "GetItem", "PutItem"),
        Grant("job/*", ("glue:StartJobRun",)),
    ),
    "transform": (),
}
"""Part → what its role grants, beside what Lambda itself needs to call it and to write its log."""


def action_of(service: str, operation: str) -> str:
    """The action of IAM that allows an operation of the API."""
    action = f"{service}:{operation}"
    return _ACTIONS.get(action, action)


def is_granted(part: str, action: str, resource: str) -> bool:
    """Whether the role of a part allows an action on a resource."""
    return any(grant.allows(action, resource) for grant in GRANTS[part])


def sentences(part: str) -> Iterator[str]:
    """The grants of a part in words, one for each resource."""
    for grant in GRANTS[part]:
        yield f"{', '.join(grant.actions)} on {grant.resource}"
