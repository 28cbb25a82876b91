"""Lambda functions on embedded adapters: the runtime, the events and the time Lambda gives them."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leanops.domain.breaker import BreakerRules
from leanops.domain.event.envelope import Envelope
from leanops.runtimes.aws import Aws
from leanops.settings import AwsNames, Settings
from leanops.usecases.ingest.breakers import Breakers
from tests.support.builders import NOW_MS, Clock
from tests.support.hub import Hub

MICROS = NOW_MS * 1000


@dataclass
class Time:
    """A context whose time is over after so many questions."""

    questions: int = 1_000_000
    milliseconds: int = 60_000

    def get_remaining_time_in_millis(self) -> int:
        self.questions -= 1
        return self.milliseconds if self.questions > 0 else 0


@dataclass
class Switches:
    """A switch that remembers what it was told."""

    told: list[str] = field(default_factory=list)

    def stop(self, queue: str) -> None:
        self.told.append(f"stop {queue}")

    def start(self, queue: str) -> None:
        self.told.append(f"start {queue}")


@dataclass
class EventSource:
    """A queue and its event source mapping: six minutes of visibility, a switch, and dead letters in the end."""

    clock: Clock
    bodies: dict[str, bytes]
    max_receives: int
    on: bool = True
    dead: list[str] = field(default_factory=list)
    receives: Counter[str] = field(default_factory=Counter)
    _hidden: dict[str, float] = field(default_factory=dict)

    def stop(self, _queue: str) -> None:
        self.on = False

    def start(self, _queue: str) -> None:
        self.on = True

    def poll(self, call: Callable[[dict[str, Any]], Mapping[str, Any]], batch: int = 10) -> int:
        """Hand over what is visible, a batch a call; how many messages they were."""
        now, handed = self.clock().timestamp(), 0
        visible = [name for name in self.bodies if self._hidden.get(name, 0) <= now]
        for start in range(0, len(visible), batch):
            names = [name for name in visible[start : start + batch] if self.on and not self._is_dead(name)]
            if names:
                handed += len(names)
                self._hand_over(call, names, now)
        return handed

    def _is_dead(self, name: str) -> bool:
        if self.receives[name] < self.max_receives:
            return False
        del self.bodies[name]
        self.dead.append(name)
        return True

    def _hand_over(self, call: Callable[[dict[str, Any]], Mapping[str, Any]], names: list[str], now: float) -> None:
        self.receives.update(names)
        self._hidden.update(dict.fromkeys(names, now + 360))
        event = sqs_event(*[self.bodies[name] for name in names])
        for record, name in zip(event["Records"], names, strict=True):
            record["messageId"] = name
        again = {failure["itemIdentifier"] for failure in call(event)["batchItemFailures"]}
        for name in set(names) - again:
            del self.bodies[name]


@dataclass
class Objects:
    """A bucket in memory that others write into."""

    objects: dict[str, bytes]
    reads: list[int] = field(default_factory=list)

    def part(self, key: str, start: int, size: int) -> bytes | None:
        self.reads.append(start)
        return self.objects[key][start : start + size] if key in self.objects else None


def aws_on(hub: Hub, **ports: Any) -> Aws:
    """The AWS runtime with a hub's adapters in the places of its own."""
    aws = Aws(Settings(breaker=BreakerRules(min_events=5), aws=AwsNames(bucket="b")), hub.platform.clock)
    found = {
        "state": hub.platform.state,
        "files": hub.files,
        "delivery": hub.buffer,
        "breakers": Breakers(hub.platform.state, hub.platform.clock, switch=Switches()),
        "objects_in": lambda _bucket: Objects({}),
    }
    aws.__dict__.update({**found, **ports})
    return aws


def envelope(message_id: str = "m1", payload: str | None = "{}", topic: str = "orders", **rest: Any) -> Envelope:
    return Envelope(topic, message_id, MICROS, payload=payload, **rest)


def sqs_event(*bodies: bytes, queue: str = "leanops-orders", receives: int = 1) -> dict[str, Any]:
    """What an event source mapping gives a function; message n has the id `id-n`."""
    return {
        "Records": [
            {
                "messageId": f"id-{number}",
                "receiptHandle": "handle",
                "body": body.decode(),
                "attributes": {"ApproximateReceiveCount": str(receives), "SentTimestamp": "1"},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:eu-west-1:123456789012:{queue}",
                "awsRegion": "eu-west-1",
            }
            for number, body in enumerate(bodies)
        ]
    }


def firehose_event(records: Sequence[bytes]) -> dict[str, Any]:
    """What Firehose gives its transform."""
    return {
        "invocationId": "1",
        "deliveryStreamArn": "arn:aws:firehose:eu-west-1:123456789012:deliverystream/leanops",
        "region": "eu-west-1",
        "records": [
            {
                "recordId": f"4968{number:052}",
                "approximateArrivalTimestamp": NOW_MS,
                "data": base64.b64encode(record).decode(),
            }
            for number, record in enumerate(records)
        ],
    }


def error_line(record: bytes, code: str = "Lambda.ProcessingFailedStatus") -> bytes:
    """A line of Firehose's error output."""
    said = {
        "attemptsMade": 4,
        "arrivalTimestamp": NOW_MS,
        "errorCode": code,
        "errorMessage": "ProcessingFailed status set for record",
        "attemptEndingTimestamp": NOW_MS,
        "rawData": base64.b64encode(record).decode(),
        "lambdaArn": "arn:aws:lambda:eu-west-1:123456789012:function:transform",
    }
    return json.dumps(said).encode() + b"\n"
