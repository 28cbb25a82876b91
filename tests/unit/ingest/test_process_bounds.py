"""The processor with many events: few calls of the state store, few files in memory."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import DeliveryUnavailableError, StateUnavailableError
from leanops.domain.event.envelope import Envelope, bodies, encoded
from leanops.ports.queue import Outgoing
from leanops.usecases.ingest.process import PORTION_BYTES, work
from leanops.usecases.retry import Patience
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import NOW_MS, Clock
from tests.support.hub import Hub, hub_in


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(tmp_path: Path, clock: Clock) -> Iterator[Hub]:
    with hub_in(tmp_path, clock=clock) as hub:
        add_topic(hub.platform, "orders")
        yield hub


def envelope(message_id: str, payload: str | None = "{}", **rest: Any) -> Envelope:
    return Envelope("orders", message_id, NOW_MS * 1000, payload=payload, **rest)


def send(hub: Hub, *messages: bytes) -> None:
    assert hub.queue.send([Outgoing("orders", body) for body in messages]) == []


class Sparing:
    """A state store that counts calls, and remembers nothing while it is away."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.calls, self.is_away = inner, 0, False

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        if self.is_away and name == "put_many":
            raise StateUnavailableError("the state store does not answer")
        return getattr(self._inner, name)


def test_idempotency_costs_two_calls_for_many_events(hub: Hub, tmp_path: Path, clock: Clock) -> None:
    state = Sparing(hub.platform.state)
    with hub_in(tmp_path, clock=clock, state=state, idempotency_hours=24) as sparing:
        send(hub, *[encoded(envelope(f"m{number}")) for number in range(300)])
        result = sparing.process()
    assert result is not None
    assert (result.events, state.calls) == (300, 2)


def test_what_was_delivered_but_could_not_be_remembered_is_done_and_counted(
    hub: Hub, tmp_path: Path, clock: Clock
) -> None:
    state = Sparing(hub.platform.state)
    state.is_away = True
    give_up = Patience(give_up=lambda: True)
    with hub_in(tmp_path, clock=clock, state=state, idempotency_hours=24, patience=give_up) as forgetful:
        send(hub, encoded(envelope("m1")), encoded(envelope("m2")))
        result = forgetful.process()
        assert result is not None
        assert (result.events, len(result.done), result.failed, result.forgotten) == (2, 2, [], 2)
        assert hub.queue.depths() == {}


class Weighed:
    """Files and a stream that know how many bytes were fetched and not put yet."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.held, self.most = hub, 0, 0
        self.lock, self.together = threading.Lock(), threading.Barrier(2, timeout=10)
        self.first = iter([True, True])

    def get(self, name: str) -> bytes | None:
        if next(self.first, False):
            self.together.wait()
        data = self.hub.files.get(name)
        with self.lock:
            self.held += len(data or b"")
            self.most = max(self.most, self.held)
        return data

    def put(self, records: Sequence[bytes]) -> list[int]:
        with self.lock:
            self.held -= sum(len(record) for record in records)
        return []


@pytest.mark.parametrize("events", [1, 40])
def test_claim_checks_are_fetched_several_at_once_and_never_all_held(
    hub: Hub, tmp_path: Path, clock: Clock, events: int
) -> None:
    payload, names = b'"' + b"x" * 900_000 + b'"', [f"claims/{number}" for number in range(40)]
    for name in names:
        hub.files.put(name, payload)
    claims = [envelope(name.replace("/", ""), None, claim=name) for name in names]
    send(hub, *(body for body, _ in bodies(claims, events, 1_000_000)))
    weighed = Weighed(hub)
    with hub_in(tmp_path, clock=clock, files=weighed, delivery=weighed) as bounded:
        result = bounded.process()
    assert result is not None
    assert (result.events, result.failed) == (40, [])
    assert weighed.most <= PORTION_BYTES + 6 * len(payload)


def test_what_was_delivered_before_an_outage_is_not_delivered_again(hub: Hub, clock: Clock, tmp_path: Path) -> None:
    large = "x" * 900_000
    send(hub, *(encoded(envelope(f"m{number}", f'{{"a":"{large}"}}')) for number in range(8)))
    put, calls = hub.buffer.put, []

    def away_after_the_first(records: Sequence[bytes]) -> list[int]:
        calls.append(len(records))
        if len(calls) > 1:
            raise DeliveryUnavailableError("the stream is away")
        return put(records)

    hub.buffer.put = away_after_the_first  # type: ignore[method-assign]
    impatient = replace(hub.processor, patience=Patience(lambda: True))
    with pytest.raises(DeliveryUnavailableError):
        work(impatient, hub.queue, "orders", 100)
    with hub_in(tmp_path, clock=clock) as later:
        later.settle()
        assert later.ids() == [f"m{number}" for number in range(8)]
