"""What the parts on AWS may do: each is run on moto, and every call it makes is one that its role grants."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import boto3
import botocore.client
import pytest
from moto import mock_aws

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.grants import GRANTS, sentences
from leanops.adapters.aws.state import DynamoState
from leanops.domain.breaker import BreakerRules
from leanops.domain.event.envelope import encoded
from leanops.entrypoints.lambdas import breakers, dead_letters, processor, validator
from leanops.ports.state import SCHEMA_REGISTRY
from leanops.runtimes.aws import Aws
from leanops.runtimes.bridge import bridge_of, on_aws, subscriptions_of
from leanops.settings import AwsNames, Settings
from leanops.usecases.ingest import consume
from leanops.usecases.ingest.archive import ChunkedArchive
from leanops.usecases.ingest.consume import OWN_FAILURES
from leanops.usecases.ingest.room import IngestRules
from leanops.usecases.workers import Part, Worker
from tests.support.builders import schema_text
from tests.support.dynamo import create_tables
from tests.support.functions import Time, envelope, error_line, sqs_event
from tests.support.places import ROOT
from tests.support.pubsub.inbox import Inbox, message, until

SETTINGS = Settings(
    aws=AwsNames(table_prefix="p-", bucket="ours", stream="stream", processor="processor", schema_job="plan"),
    breaker=BreakerRules(min_events=1),
    ingest=IngestRules(idempotency_hours=1),
)
MAPPING = {"UUID": "u-1", "State": "Enabled", "EventSourceArn": "arn:aws:sqs:eu-west-1:123456789012:leanops-orders"}
Calls = set[tuple[str, str]]
RESUMED = "bucket/dlq/progress/"


# IAM has one action for an operation and its batch form.
ACTIONS = {
    "sqs:SendMessageBatch": "sqs:SendMessage",
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
    "s3:ListObjectsV2": "s3:ListBucket",
}


def action_of(service: str, operation: str) -> str:
    action = f"{service}:{operation}"
    return ACTIONS.get(action, action)


def is_granted(part: str, action: str, resource: str) -> bool:
    return any(action in grant.actions and fnmatchcase(resource, grant.resource) for grant in GRANTS[part])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Every call a part makes, as (action, resource); what it finds on its AWS is made before."""
    found: Calls = set()
    call: Callable[..., Any] = botocore.client.BaseClient._make_api_call  # type: ignore[attr-defined]

    def recorded(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        service = client.meta.service_model.service_name
        found.update((action_of(service, operation), resource) for resource in resources(service, parameters))
        # Its event source mappings need a function that moto runs in a container.
        return lambda_answer(operation) if service == "lambda" else call(client, operation, parameters)

    with mock_aws():
        furnish()
        monkeypatch.setattr("botocore.client.BaseClient._make_api_call", recorded)
        yield found


def furnish() -> None:
    state = DynamoState(connect("dynamodb"), prefix="p-")
    create_tables("p-")
    state.put(SCHEMA_REGISTRY, {"topic_name": "orders"}, expected=None)
    boto3.client("sqs").create_queue(QueueName="leanops-orders")
    place: Any = {"LocationConstraint": "eu-west-1"}
    for bucket in ("ours", "errors"):
        boto3.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
    role = "arn:aws:iam::123456789012:role/r"
    destination: Any = {"RoleARN": role, "BucketARN": "arn:aws:s3:::errors"}
    boto3.client("firehose").create_delivery_stream(
        DeliveryStreamName="stream", ExtendedS3DestinationConfiguration=destination
    )
    boto3.client("glue").create_job(Name="plan", Role=role, Command={"Name": "glueetl"})


def resources(service: str, said: dict[str, Any]) -> list[str]:
    """What a call is about, as the table of grants names it."""
    if service == "dynamodb":
        names = [said["TableName"]] if "TableName" in said else list(said["RequestItems"])
        return [f"table/{name.removeprefix('p-')}" for name in names]
    if service == "s3":
        bucket = "bucket" if said["Bucket"] == "ours" else said["Bucket"]
        return [f"{bucket}/{said['Key']}" if "Key" in said else bucket]
    if service == "sqs":
        return [f"queue/{said.get('QueueName') or said['QueueUrl'].rpartition('/')[2]}"]
    names = {"DeliveryStreamName": "stream", "JobName": "job", "FunctionName": "function", "UUID": "mapping"}
    return [f"{kind}/{said[name]}" for name, kind in names.items() if name in said]


def lambda_answer(operation: str) -> dict[str, Any]:
    return {"EventSourceMappings": [MAPPING]} if operation == "ListEventSourceMappings" else MAPPING


def refused(part: str, calls: Calls) -> list[tuple[str, str]]:
    return sorted(call for call in calls if not is_granted(part, *call))


def test_the_bridge_calls_what_it_is_granted(calls: Calls) -> None:
    side = on_aws(SETTINGS)
    control = {f"k{number}": "\x01" * 1_024 for number in range(100)}

    async def work() -> None:
        inbox, stopping = Inbox("orders"), asyncio.Event()
        inbox.publish("orders", message(1), message(2, b"x" * 1_500_000), message(3, **control))
        bridge = bridge_of(side, inbox, {"orders": "orders"}, lambda *_event, **_facts: None)
        running = asyncio.create_task(bridge.run(stopping))
        await until(lambda: len(inbox.acked) == 3)
        stopping.set()
        await running

    assert subscriptions_of(side, "project", [])
    worker = Worker(Part("bridge", lambda: 0, 1.0), side.state, side.clock, side.owner, threading.Event())
    asyncio.run(work())
    worker.beat()
    worker.beat()
    worker.forget()
    assert refused("bridge", calls) == []
    assert {action for action, resource in calls if resource.startswith("bucket/dlq/")} == {"s3:PutObject"}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a message of few events is archived in several chunks, and so has a marker."""
    for module in (consume, dead_letters):
        monkeypatch.setattr(module, "ChunkedArchive", partial(ChunkedArchive, chunk_size=2))


def test_the_processor_calls_what_it_is_granted(calls: Calls, small_chunks: None) -> None:
    aws = Aws(SETTINGS)
    aws.files.put("claims/orders/1", b"{}")
    calls.clear()
    claimed = encoded(envelope("m2", None, claim="claims/orders/1"))
    for _ in range(2):
        answer = processor.process(aws, sqs_event(encoded(envelope("m1")), claimed, b"no envelope"), Time())
        assert answer == {"batchItemFailures": []}
    lost = [encoded(envelope(f"m{number}", None, claim="claims/orders/gone")) for number in range(3, 6)]
    gone = sqs_event(b"[" + b",".join(lost) + b"]")
    for _ in range(OWN_FAILURES):
        aws.breakers.close("orders")
        answer = processor.process(aws, gone, Time())
    assert answer == {"batchItemFailures": []}, "it is archived after the last"
    processor.process(aws, sqs_event(*([b"no envelope"] * 9)), Time())
    assert refused("processor", calls) == []
    assert ("dynamodb:PutItem", "table/message_failures") in calls
    assert ("s3:GetObject", RESUMED) in {(action, resource[: len(RESUMED)]) for action, resource in calls}
    assert ("lambda:UpdateEventSourceMapping", "mapping/u-1") in calls, "its breaker has opened"


def test_the_dead_letter_functions_call_what_they_are_granted(calls: Calls, small_chunks: None) -> None:
    aws = Aws(SETTINGS)
    many = b"[" + b",".join(encoded(envelope(f"m{number}")) for number in range(5)) + b"]"
    for _ in range(2):
        dead_letters.archive_messages(aws, sqs_event(encoded(envelope("m1")), many, queue="leanops-orders-dlq"), Time())
    assert refused("dead_letters", calls) == []
    assert ("s3:GetObject", RESUMED) in {(action, resource[: len(RESUMED)]) for action, resource in calls}
    boto3.client("s3").put_object(Bucket="errors", Key="e/1", Body=error_line(b"garbage") * 3)
    calls.clear()
    created = {"detail": {"bucket": {"name": "errors"}, "object": {"key": "e/1"}}}
    for _ in range(2):
        dead_letters.archive_records(aws, created, Time())
    assert refused("firehose_errors", calls) == []


def test_the_breakers_call_what_they_are_granted(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    aws = Aws(SETTINGS)
    aws.breakers.open("orders", "by hand")
    aws.breakers.close("orders")
    monkeypatch.setattr(breakers, "runtime", lambda _context: aws)
    breakers.handler({}, Time())
    assert refused("breakers", calls) == []


def test_the_validator_calls_what_it_is_granted(calls: Calls) -> None:
    for name, text in (("good.json", schema_text()), ("bad.json", "{")):
        aws = Aws(SETTINGS)
        boto3.client("s3").put_object(Bucket="ours", Key=f"schemas/orders/pending/{name}", Body=text.encode())
        calls.clear()
        key = {"key": f"schemas/orders/pending/{name}"}
        validator.validate(aws, {"detail": {"bucket": {"name": "ours"}, "object": key}}, Time())
        assert refused("validator", calls) == []


def test_the_role_of_the_bridge_is_documented_as_it_is_granted() -> None:
    said = " ".join((ROOT / "deploy/kubernetes/serviceaccount.yaml").read_text().replace("\n# ", " ").split())
    for sentence in sentences("bridge"):
        assert sentence in said
