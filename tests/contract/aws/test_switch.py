"""The consumption of a queue is stopped and started by the event source mapping of a Lambda, as moto plays it."""

import io
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import boto3
import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.switch import EventSourceSwitch
from leanops.domain.errors import PermanentError, QueueUnavailableError
from leanops.ports.queue import ConsumptionSwitch
from tests.support.engines import free_port

QUEUES = ["orders", "payments"]


def role(endpoint: str) -> str:
    trust = '{"Version":"2012-10-17","Statement":[]}'
    iam = boto3.client("iam", endpoint_url=endpoint)
    made = iam.create_role(RoleName=f"r{secrets.token_hex(6)}", AssumeRolePolicyDocument=trust)
    return str(made["Role"]["Arn"])


@pytest.fixture
def function(moto_endpoint: str) -> str:
    """A Lambda that consumes two queues, and another that consumes a third."""
    client, sqs = boto3.client("lambda", endpoint_url=moto_endpoint), boto3.client("sqs", endpoint_url=moto_endpoint)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("code.py", "")
    name, code = f"f{secrets.token_hex(6)}", {"ZipFile": packed.getvalue()}
    for one, queues in {name: QUEUES, f"{name}-other": ["refunds"]}.items():
        client.create_function(
            FunctionName=one, Runtime="python3.13", Role=role(moto_endpoint), Handler="code.handler", Code=code
        )
        for queue in queues:
            url = sqs.create_queue(QueueName=f"{name}-{queue}")["QueueUrl"]
            arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            client.create_event_source_mapping(FunctionName=one, EventSourceArn=arn, Enabled=True)
    return name


@pytest.fixture
def switch(moto_endpoint: str, function: str) -> Iterator[EventSourceSwitch]:
    with closing(connect("lambda", endpoint=moto_endpoint)) as client:
        yield EventSourceSwitch(client, function, prefix=f"{function}-")


def test_a_stopped_queue_stays_stopped_and_its_neighbour_goes_on(switch: EventSourceSwitch) -> None:
    port: ConsumptionSwitch = switch

    port.stop("orders")
    port.stop("orders")

    assert not switch.is_on("orders")
    assert switch.is_on("payments")


def test_a_started_queue_is_consumed_again(switch: EventSourceSwitch) -> None:
    switch.stop("orders")

    switch.start("orders")
    switch.start("orders")

    assert switch.is_on("orders")


def test_another_process_sees_what_was_switched(switch: EventSourceSwitch, function: str, moto_endpoint: str) -> None:
    switch.stop("payments")

    other = EventSourceSwitch(connect("lambda", endpoint=moto_endpoint), function, prefix=f"{function}-")

    assert not other.is_on("payments")
    other.start("payments")
    assert switch.is_on("payments")


@pytest.mark.parametrize("queue", ["refunds", "nowhere"])
def test_a_queue_that_the_function_does_not_consume_is_a_permanent_error(switch: EventSourceSwitch, queue: str) -> None:
    with pytest.raises(PermanentError, match="does not consume"):
        switch.stop(queue)


def test_an_unreachable_server_is_an_outage_in_one_line() -> None:
    switch = EventSourceSwitch(connect("lambda", endpoint=f"http://127.0.0.1:{free_port()}", attempts=1), "processor")

    with pytest.raises(QueueUnavailableError, match=r"does not answer .*try again") as raised:
        switch.stop("orders")

    assert "\n" not in str(raised.value)


def test_a_mapping_made_anew_is_found(switch: EventSourceSwitch, function: str, moto_endpoint: str) -> None:
    switch.stop("orders")
    client = boto3.client("lambda", endpoint_url=moto_endpoint)

    def mapping_of_orders() -> dict[str, Any]:
        mappings = client.list_event_source_mappings(FunctionName=function)["EventSourceMappings"]
        [found] = [mapping for mapping in mappings if mapping["EventSourceArn"].endswith("-orders")]
        return dict(found)

    old = mapping_of_orders()
    client.delete_event_source_mapping(UUID=old["UUID"])
    client.create_event_source_mapping(FunctionName=function, EventSourceArn=old["EventSourceArn"], Enabled=True)

    switch.stop("orders")

    assert not switch.is_on("orders")
    client.delete_event_source_mapping(UUID=mapping_of_orders()["UUID"])
    with pytest.raises(PermanentError, match="does not consume"):
        switch.start("orders")
