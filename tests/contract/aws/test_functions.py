"""The Lambda functions as their environment puts them together: DynamoDB Local, moto, a stand-in for Firehose."""

import base64
import secrets
from collections.abc import Iterator
from typing import Any

import boto3
import msgspec
import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.state import DynamoState
from leanops.domain.errors import UsageError
from leanops.domain.event.envelope import encoded
from leanops.entrypoints.lambdas import breakers, dead_letters, invocation, processor, transform
from leanops.ports.state import BREAKERS, ERROR_TRACKER, SCHEMA_REGISTRY
from leanops.usecases.ingest.archive import PROGRESS
from tests.support.dynamo import create_tables
from tests.support.functions import Time, envelope, error_line, firehose_event, sqs_event
from tests.support.standin import Answer, standin


class Account:
    """What the functions find on their AWS."""

    def __init__(self, state: DynamoState, bucket: str) -> None:
        self.state, self.bucket = state, bucket
        self.delivered: list[bytes] = []

    def firehose(self, _operation: str, request: dict[str, Any]) -> Answer:
        self.delivered += [base64.b64decode(record["Data"]) for record in request["Records"]]
        return 200, {"FailedPutCount": 0, "RequestResponses": [{"RecordId": "1"} for _ in request["Records"]]}

    def dead_letters(self) -> set[tuple[str, str]]:
        rows = [stored.row for stored in self.state.rows(ERROR_TRACKER)]
        return {(str(row["message_id"]), str(row["rule"])) for row in rows}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, dynamodb_endpoint: str, moto_endpoint: str) -> Iterator[Account]:
    name = f"leanops-{secrets.token_hex(6)}"
    client = connect("dynamodb", endpoint=dynamodb_endpoint)
    state = DynamoState(client, prefix=f"{name}-")
    create_tables(f"{name}-", [SCHEMA_REGISTRY, ERROR_TRACKER, BREAKERS], dynamodb_endpoint)
    state.put(SCHEMA_REGISTRY, {"topic_name": "orders"}, expected=None)
    place = {"LocationConstraint": "eu-west-1"}
    boto3.client("s3", endpoint_url=moto_endpoint).create_bucket(Bucket=name, CreateBucketConfiguration=place)
    found = Account(state, name)
    with standin(found.firehose) as firehose:
        endpoints = {"DYNAMODB": dynamodb_endpoint, "S3": moto_endpoint, "LAMBDA": moto_endpoint, "FIREHOSE": firehose}
        for service, endpoint in endpoints.items():
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", endpoint)
        for setting, value in {
            "TABLE_PREFIX": f"{name}-",
            "BUCKET": name,
            "STREAM": "stream",
            "PROCESSOR": "processor",
        }.items():
            monkeypatch.setenv(f"LEANOPS_AWS_{setting}", value)
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "some-function")
        invocation.made.cache_clear()
        yield found
    invocation.made.cache_clear()
    client.close()


def test_an_event_goes_through_the_processor_and_the_transform(account: Account) -> None:
    answer = processor.handler(sqs_event(encoded(envelope("m1", '{"a":1}')), b"no envelope"), Time())

    assert answer == {"batchItemFailures": []}
    [record] = account.delivered
    assert msgspec.json.decode(record)["json_payload"] == '{"a":1}'
    assert [rule for _, rule in account.dead_letters()] == ["bad_envelope"]
    [entry] = transform.handler(firehose_event([record]), Time())["records"]
    assert (entry["result"], entry["metadata"]["otfMetadata"]["destinationTableName"]) == ("Ok", "orders_staging")


def test_dead_letters_and_firehoses_errors_are_archived(account: Account, moto_endpoint: str) -> None:
    s3 = boto3.client("s3", endpoint_url=moto_endpoint)
    # Equal lines are archived by several threads at once, and are one dead letter.
    s3.put_object(Bucket=account.bucket, Key="errors/1", Body=error_line(b"garbage") * 40)
    created = {"detail": {"bucket": {"name": account.bucket}, "object": {"key": "errors/1"}}}

    dead = sqs_event(encoded(envelope("m1")), queue="leanops-orders-dlq")
    assert dead_letters.handler(dead, Time()) == {"batchItemFailures": []}
    assert dead_letters.errors_handler(created, Time()) == 40

    assert ("m1", "receives_exceeded") in account.dead_letters()
    assert sorted(rule for _, rule in account.dead_letters()) == ["receives_exceeded", "unroutable"]
    archived = s3.list_objects_v2(Bucket=account.bucket, Prefix="dlq/")["Contents"]
    assert len([found for found in archived if not found["Key"].startswith(PROGRESS)]) == 2


def test_breakers_have_nothing_to_do_where_none_is_open(account: Account) -> None:
    assert breakers.handler({}, Time()) == []


def test_a_function_without_its_settings_says_which(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEANOPS_AWS_STREAM")

    with pytest.raises(UsageError, match="set LEANOPS_AWS_STREAM"):
        processor.handler(sqs_event(encoded(envelope("m1"))), Time())


def test_the_breakers_are_those_of_the_processor_and_of_no_other_function(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEANOPS_AWS_PROCESSOR")

    for call in (lambda: breakers.handler({}, Time()), lambda: processor.handler(sqs_event(b"bad"), Time())):
        with pytest.raises(UsageError, match="set LEANOPS_AWS_PROCESSOR"):
            call()


def test_a_function_makes_no_call_that_would_outlive_it(account: Account) -> None:
    config = invocation.runtime(Time()).delivery.client.meta.config  # type: ignore[attr-defined]
    assert (config.retries["total_max_attempts"], config.read_timeout) == (1, 4)

    event = sqs_event(encoded(envelope("m1")), b"no envelope")
    answer = processor.handler(event, Time(milliseconds=invocation.CALL_MS - 1))

    assert [failure["itemIdentifier"] for failure in answer["batchItemFailures"]] == ["id-0", "id-1"]
    assert (account.delivered, account.dead_letters()) == ([], set())


def test_objects_are_read_in_parts_and_share_a_client(account: Account, moto_endpoint: str) -> None:
    s3 = boto3.client("s3", endpoint_url=moto_endpoint)
    s3.put_object(Bucket=account.bucket, Key="errors//1", Body=b"0123456789")
    s3.put_object(Bucket=account.bucket, Key="empty", Body=b"")
    aws = invocation.runtime(Time())
    objects = aws.objects_in(account.bucket)

    assert [objects.part("errors//1", start, 4) for start in (0, 4, 8, 10)] == [b"0123", b"4567", b"89", b""]
    assert (objects.part("empty", 0, 1), objects.part("missing", 0, 1)) == (b"", None)
    assert aws.objects_in(account.bucket).client is aws.objects_in("other").client  # type: ignore[attr-defined]
