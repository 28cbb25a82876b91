"""`leanops bridge` on AWS as a process without a home: SQS, S3 and DynamoDB played by moto."""

import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.files import S3Files
from leanops.adapters.aws.queue import SqsQueue
from leanops.adapters.aws.state import DynamoState
from leanops.domain.event.envelope import Envelope, envelopes_in
from leanops.domain.event.names import queue_name
from leanops.ports.state import SCHEMA_REGISTRY, WORKERS
from tests.support.dynamo import create_tables
from tests.support.engines import moto, require
from tests.support.pubsub.cloud import Cloud
from tests.support.pubsub.processes import bridge, until


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    with require(moto) as found:
        yield found


@dataclass(frozen=True)
class Account:
    """What the infrastructure code makes, and a bridge is told of by its environment."""

    endpoint: str
    name: str
    queue: SqsQueue
    files: S3Files
    state: DynamoState

    @property
    def environment(self) -> dict[str, str]:
        services = ("SQS", "S3", "DYNAMODB")
        return {
            "LEANOPS_AWS_BUCKET": self.name,
            "LEANOPS_AWS_TABLE_PREFIX": f"{self.name}-",
            "LEANOPS_AWS_QUEUE_PREFIX": f"{self.name[-6:]}-",
            **{f"AWS_ENDPOINT_URL_{service}": self.endpoint for service in services},
        }

    def register(self, *topics: str) -> None:
        for topic in topics:
            self.state.put(SCHEMA_REGISTRY, {"topic_name": topic}, expected=None)

    def envelopes(self, topic: str) -> list[Envelope]:
        received = self.queue.receive(queue_name(topic), 100, 60)
        return [one for body, *_ in received for one in envelopes_in(body) if isinstance(one, Envelope)]


@pytest.fixture
def account(endpoint: str) -> Iterator[Account]:
    name = f"leanops-{secrets.token_hex(6)}"
    place = {"LocationConstraint": "eu-west-1"}
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name, CreateBucketConfiguration=place)
    clients = [connect(service, endpoint=endpoint) for service in ("dynamodb", "sqs", "s3")]
    dynamodb, sqs, s3 = clients
    state = DynamoState(dynamodb, prefix=f"{name}-")
    create_tables(f"{name}-", [SCHEMA_REGISTRY, WORKERS], endpoint)
    queue = SqsQueue(sqs, prefix=f"{name[-6:]}-", wait_s=0)
    yield Account(endpoint, name, queue, S3Files(s3, name), state)
    queue.close()
    for client in clients:
        client.close()


def test_events_go_to_sqs_and_s3_without_a_home(cloud: Cloud, account: Account, tmp_path: Path) -> None:
    orders, missing = cloud.subscription("orders"), cloud.subscription("missing")
    account.queue.create(queue_name(orders))
    account.register(orders, missing)
    small, large = cloud.publish(orders, [b'{"a": 1}', b"x" * 300_000])
    lost = cloud.publish(missing, [b"1"])

    with bridge(cloud, tmp_path, environment=account.environment) as running:
        until(lambda: running.count("acked") == 2)
        until(lambda: "has no queue" in running.log.read_text())
        assert running.get("/readyz") == "ok\n"
        [row] = [stored.row for stored in account.state.rows(WORKERS)]
        assert (row["part"], row["worker"]) == ("bridge", f"{os.uname().nodename}/{running.process.pid}/bridge")
        assert running.end(signal.SIGTERM) == 0
        told = [line for line in running.log.read_text().splitlines() if "has no queue" in line]

    assert len(told) == 1
    assert f"{queue_name(missing)};" in told[0]
    found = {one.message_id: one for one in account.envelopes(orders)}
    assert found[small].payload == '{"a": 1}'
    assert account.files.get(str(found[large].claim)) == b"x" * 300_000
    assert list(account.state.rows(WORKERS)) == []
    assert [path for path in tmp_path.iterdir() if path != running.log] == []
    until(lambda: cloud.left(missing) == lost)


def test_a_bridge_without_topics_waits_for_some_and_queues_are_never_made(
    cloud: Cloud, account: Account, tmp_path: Path
) -> None:
    with bridge(cloud, tmp_path, environment=account.environment) as running:
        until(lambda: running.get("/readyz") == "ok\n")
        assert running.end(signal.SIGTERM) == 0

    sqs = boto3.client("sqs", endpoint_url=account.endpoint)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=account.environment["LEANOPS_AWS_QUEUE_PREFIX"])


def test_what_keeps_it_from_starting_is_said_in_one_line(cloud: Cloud, account: Account, tmp_path: Path) -> None:
    wrong = account.environment | {"LEANOPS_AWS_TABLE_PREFIX": "nosuch-"}

    with bridge(cloud, tmp_path, environment=wrong) as running:
        assert running.process.wait(60) == 1

    [line] = running.log.read_text().splitlines()
    assert "DynamoDB has no table nosuch-schema_registry" in line
