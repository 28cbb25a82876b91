"""Queues of every engine for the contract suites."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.queue import SqsQueue
from leanops.adapters.sql.queue import SqlQueue
from leanops.ports.clock import millis
from leanops.ports.queue import Outgoing, Received
from tests.support.builders import Clock

Answer = TypeVar("Answer")

SQL, SQS = ["sqlite", "postgresql"], ["elasticmq", "moto"]
ENGINES = {"sqlite": ["sqlite"], "postgresql": ["postgresql"], "sqs": SQS}
"""Scheme of a queue → the engines its contract is tested on."""
DEADLINE_S = 15.0


@dataclass
class Place:
    """Queues of one engine; time passes by itself on a server, and by a word on our own adapters."""

    open: Callable[[], SqlQueue | SqsQueue]
    clock: Clock
    name: str = field(default_factory=lambda: f"q{secrets.token_hex(6)}")

    def __post_init__(self) -> None:
        self.queue = self.open()
        self.queue.create(self.name)

    def send(self, *bodies: bytes, to: str | None = None) -> None:
        assert self.queue.send([Outgoing(to or self.name, body) for body in bodies]) == []

    def receive(self, at_most: int = 100, visibility_s: float = 30, queue: str | None = None) -> list[Received]:
        return self.queue.receive(queue or self.name, at_most, visibility_s)

    def soon(self, work: Callable[[], Answer]) -> Answer:
        """What the work answers once it answers anything; a second passes between two tries."""
        deadline = time.monotonic() + DEADLINE_S
        while not (answer := work()):
            assert time.monotonic() < deadline, "it did not happen in time"
            self.clock.advance(1)
            time.sleep(0.05 if isinstance(self.queue, SqsQueue) else 0)
        return answer

    def give_back(self, received: Sequence[Received]) -> None:
        self.queue.change_visibility(self.name, [message.receipt for message in received], 0)


@contextmanager
def place_of(request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """An engine by its name in request.param, with a queue that nobody else uses."""
    clock = Clock()
    with ExitStack() as opened:

        def open_one() -> SqlQueue | SqsQueue:
            queue: SqlQueue | SqsQueue
            if request.param in SQS:
                endpoint = request.getfixturevalue(f"{request.param}_endpoint")
                queue = SqsQueue(connect("sqs", endpoint=endpoint), prefix="leanops-", wait_s=0)
            else:
                is_file = request.param == "sqlite"
                url = f"sqlite:///{folder}/queue.db" if is_file else request.getfixturevalue("postgresql_url")
                queue = SqlQueue(url, lambda: millis(clock()))
            opened.callback(queue.close)
            return queue

        yield Place(open_one, clock)


def bodies_of(received: Sequence[Received]) -> list[bytes]:
    return sorted(message.body for message in received)


def numbered(count: int, name: str = "message") -> list[bytes]:
    return [f"{name} {number:04}".encode() for number in range(count)]
