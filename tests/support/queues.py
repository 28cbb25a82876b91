"""Queues of every engine for the contract suites."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from leanops.ports.clock import millis
from leanops.ports.queue import Outgoing, Queue, Received
from leanops.runtimes.queues import open_queue
from tests.support.builders import Clock

Answer = TypeVar("Answer")

DEADLINE_S = 15.0


@dataclass(frozen=True)
class Engine:
    """What queues of a scheme are tested on."""

    url: Callable[[Callable[[str], Any], Path], str]
    """Its URL, from the fixtures of the engines and a folder of the test's own."""
    options: Callable[[Callable[[str], Any]], dict[str, Any]] = lambda _fixture: {}
    pause_s: float = 0.0
    """Between two looks; on a server time passes by itself, on our own adapters by a word."""


def _sqs(engine: str) -> Engine:
    return Engine(
        lambda *_: "sqs:leanops-",
        lambda fixture: {"endpoint": fixture(f"{engine}_endpoint"), "wait_s": 0},
        pause_s=0.05,
    )


SQL = ["sqlite", "postgresql"]
ENGINES = {
    "sqlite": {"sqlite": Engine(lambda _, folder: f"sqlite:///{folder}/queue.db")},
    "postgresql": {"postgresql": Engine(lambda fixture, _: str(fixture("postgresql_url")))},
    "sqs": {name: _sqs(name) for name in ("elasticmq", "moto")},
}
"""Scheme of a queue → the engines its contract is tested on."""


@dataclass
class Place:
    """Queues of one engine."""

    open: Callable[[], Any]
    clock: Clock
    pause_s: float
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
            time.sleep(self.pause_s)
        return answer

    def give_back(self, received: Sequence[Received]) -> None:
        self.queue.change_visibility(self.name, [message.receipt for message in received], 0)


@contextmanager
def place_of(request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """An engine by its name in request.param, with a queue that nobody else uses."""
    clock, fixture = Clock(), request.getfixturevalue
    engine = next(engines[request.param] for engines in ENGINES.values() if request.param in engines)
    with ExitStack() as opened:

        def open_one() -> Queue:
            url, options = engine.url(fixture, folder), engine.options(fixture)
            return opened.enter_context(closing(open_queue(url, lambda: millis(clock()), **options)))

        yield Place(open_one, clock, engine.pause_s)


def bodies_of(received: Sequence[Received]) -> list[bytes]:
    return sorted(message.body for message in received)


def numbered(count: int, name: str = "message") -> list[bytes]:
    return [f"{name} {number:04}".encode() for number in range(count)]
