"""Messages a platform hands over: an outage costs none of them, a bad one fails alone and is archived in the end."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.breaker import State, breaker_of
from leanops.domain.errors import DeliveryUnavailableError, InfrastructureError, StateUnavailableError, UsageError
from leanops.domain.event.envelope import encoded
from leanops.entrypoints.lambdas import invocation, processor
from leanops.entrypoints.lambdas.processor import process
from leanops.ports.queue import PLATFORM_RECEIVES
from leanops.ports.state import BREAKERS, ERROR_TRACKER, MESSAGE_FAILURES
from leanops.runtimes.aws import Aws
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.ingest.consume import OWN_FAILURES
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import Clock
from tests.support.functions import EventSource, Switches, Time, aws_on, envelope, sqs_event
from tests.support.hub import Hub, hub_in

OUTAGES = [
    DeliveryUnavailableError("Firehose is too busy; try again"),
    InfrastructureError("Firehose refuses stream s (AccessDeniedException); check what this role may do"),
]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(tmp_path: Path, clock: Clock) -> Iterator[Hub]:
    with hub_in(tmp_path, clock=clock) as found:
        add_topic(found.platform, "orders")
        yield found


@dataclass
class Stream:
    """A delivery stream that fails for records it does not like, and for all of them while it is away."""

    hub: Hub
    outage: Exception | None = None
    dislikes: bytes | None = None
    puts: list[int] = field(default_factory=list)

    def put(self, records: Sequence[bytes]) -> list[int]:
        self.puts.append(len(records))
        if self.outage:
            raise self.outage
        if self.dislikes and any(self.dislikes in record for record in records):
            raise KeyError("never seen before")
        return self.hub.buffer.put(records)


def messages(*names: str) -> dict[str, bytes]:
    return {f"id-{name}": encoded(envelope(name)) for name in names}


def source_of(clock: Clock, *names: str, **rest: Any) -> EventSource:
    return EventSource(clock, messages(*names), PLATFORM_RECEIVES, **rest)


def dead_letters(hub: Hub) -> dict[str, str]:
    rows = [stored.row for stored in hub.platform.state.rows(ERROR_TRACKER)]
    return {str(row["message_id"]): str(row["reason"]) for row in rows}


def state_of(hub: Hub) -> State:
    stored = hub.platform.state.get(BREAKERS, ("orders",))
    return breaker_of(stored.row).state if stored else State.CLOSED


def run(hub: Hub, aws: Aws, source: EventSource, minutes: int, until: Callable[[], bool] = lambda: False) -> None:
    """So many minutes: each turns the switches, then the mapping polls."""
    for _ in range(minutes):
        if until():
            return
        aws.breakers.turn_switches()
        source.poll(lambda event: process(aws, event, Time(questions=2)))
        clock: Any = hub.platform.clock
        clock.advance(60)


@pytest.mark.parametrize("outage", OUTAGES, ids=["away", "refused"])
@pytest.mark.parametrize("count", [1, 8, 200])
def test_hours_of_outage_turn_no_healthy_message_into_a_dead_letter(
    hub: Hub, clock: Clock, count: int, outage: Exception
) -> None:
    source = source_of(clock, *[f"m{number}" for number in range(count)])
    stream = Stream(hub, outage=outage)
    aws = aws_on(hub, delivery=stream, breakers=Breakers(hub.platform.state, clock, switch=source))

    run(hub, aws, source, minutes=240)

    assert (source.dead, dead_letters(hub), list(hub.platform.state.rows(MESSAGE_FAILURES))) == ([], {}, [])
    stream.outage = None
    run(hub, aws, source, minutes=60, until=lambda: not source.bodies)
    assert (source.bodies, source.on, state_of(hub)) == ({}, True, State.CLOSED)
    hub.settle()
    assert hub.ids() == sorted(f"m{number}" for number in range(count))


def test_the_first_outage_of_a_quiet_topic_stops_its_queue_and_says_why(hub: Hub, clock: Clock) -> None:
    source = source_of(clock, "m1")
    aws = aws_on(hub, delivery=Stream(hub, OUTAGES[0]), breakers=Breakers(hub.platform.state, clock, switch=source))

    source.poll(lambda event: process(aws, event, Time(questions=2)))

    stored = hub.platform.state.get(BREAKERS, ("orders",))
    assert stored is not None
    assert (source.on, stored.row["state"]) == (False, "OPEN")
    assert stored.row["reason"] == "Firehose is too busy; try again"


def test_a_probe_tries_ten_messages_and_the_rest_untried_come_again(hub: Hub, clock: Clock) -> None:
    names = [f"m{number}" for number in range(60)]
    source = source_of(clock, *names)
    stream = Stream(hub, OUTAGES[0])
    aws = aws_on(hub, delivery=stream, breakers=Breakers(hub.platform.state, clock, switch=source))
    source.poll(lambda event: process(aws, event, Time(questions=2)), batch=20)
    stream.puts.clear()

    clock.advance(361)
    aws.breakers.turn_switches()
    others = aws_on(hub, delivery=stream, breakers=Breakers(hub.platform.state, clock, switch=source))
    functions = iter([aws, others, others])
    source.poll(lambda event: process(next(functions), event, Time(questions=2)), batch=20)

    assert (set(stream.puts), len(source.bodies), source.on) == ({10}, 60, False)


def test_messages_that_arrive_at_an_open_breaker_are_not_tried(hub: Hub, clock: Clock) -> None:
    stream = Stream(hub)
    breakers = Breakers(hub.platform.state, clock, switch=Switches())
    breakers.open("orders", "by hand")

    answer = process(aws_on(hub, delivery=stream, breakers=breakers), sqs_event(*messages("m1").values()), Time())

    assert (answer, stream.puts) == ({"batchItemFailures": [{"itemIdentifier": "id-0"}]}, [])


def test_a_breaker_that_cannot_be_asked_lets_messages_through(hub: Hub, clock: Clock) -> None:
    class Silent:
        def may_receive(self, *_: object) -> int:
            raise StateUnavailableError("DynamoDB does not answer; try again")

        def report(self, *_: object) -> None:
            raise StateUnavailableError("DynamoDB does not answer; try again")

    answer = process(aws_on(hub, breakers=Silent()), sqs_event(*messages("m1").values()), Time())

    assert answer == {"batchItemFailures": []}
    hub.settle()
    assert hub.ids() == ["m1"]


def test_an_unforeseen_failure_of_one_message_fails_that_message_alone(
    hub: Hub, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"m{number}" for number in range(30)]
    source = source_of(clock, *names, "guilty")
    aws = aws_on(hub, delivery=Stream(hub, dislikes=b"guilty"))

    source.poll(lambda event: process(aws, event, Time()), batch=100)

    assert list(source.bodies) == ["id-guilty"]
    hub.settle()
    assert hub.ids() == sorted(names)
    said = [vars(record) for record in caplog.records if record.levelname == "WARNING"]
    assert [line["reason"] for line in said if line["message"] == "a message failed"] == [
        "KeyError from the engine; see more of it with leanops --debug"
    ]
    stored = hub.platform.state.get(BREAKERS, ("orders",))
    assert stored is not None
    assert (stored.row["succeeded"], stored.row["failed"]) == (30, 1)


def test_a_message_is_archived_by_the_processor_after_five_failures_of_its_own(hub: Hub, clock: Clock) -> None:
    source = source_of(clock, "guilty")
    aws = aws_on(hub, delivery=Stream(hub, dislikes=b"guilty"))

    for _ in range(OWN_FAILURES - 1):
        assert source.poll(lambda event: process(aws, event, Time())) == 1
        clock.advance(361)
    assert dead_letters(hub) == {}
    source.poll(lambda event: process(aws, event, Time()))

    assert (source.bodies, source.dead) == ({}, [])
    assert dead_letters(hub) == {
        "guilty": "it failed 5 times: KeyError from the engine; see more of it with leanops --debug"
    }
    [row] = [stored.row for stored in hub.platform.state.rows(ERROR_TRACKER)]
    assert (row["rule"], row["topic_name"]) == ("receives_exceeded", "orders")
    assert hub.files.get(str(row["source"])) == encoded(envelope("guilty"))


def test_receives_in_an_outage_are_no_failures_of_the_message(hub: Hub, clock: Clock) -> None:
    source = source_of(clock, "guilty")
    stream = Stream(hub, OUTAGES[0])
    aws = aws_on(hub, delivery=stream, breakers=Breakers(hub.platform.state, clock, switch=source))
    run(hub, aws, source, minutes=60)
    stream.outage, stream.dislikes = None, b"guilty"

    before = source.receives["id-guilty"]
    run(hub, aws, source, minutes=120, until=lambda: not source.bodies)

    assert before >= OWN_FAILURES
    assert source.receives["id-guilty"] - before == OWN_FAILURES
    assert list(dead_letters(hub)) == ["guilty"]


def test_an_archiving_that_fails_leaves_the_message_in_its_queue(hub: Hub, clock: Clock) -> None:
    class Full:
        def put(self, *_: object) -> None:
            raise StateUnavailableError("S3 does not answer; try again")

    source = source_of(clock, "guilty")
    stream = Stream(hub, dislikes=b"guilty")
    aws = aws_on(hub, delivery=stream, files=Full())
    for _ in range(OWN_FAILURES + 2):
        source.poll(lambda event: process(aws, event, Time(questions=6)))
        clock.advance(361)
    assert list(source.bodies) == ["id-guilty"]

    source.poll(lambda event: process(aws_on(hub, delivery=stream), event, Time()))
    assert (source.bodies, list(dead_letters(hub))) == ({}, ["guilty"])


def test_a_message_that_cannot_even_be_archived_spoils_no_other(hub: Hub, clock: Clock) -> None:
    class Picky:
        def put(self, *_: object) -> None:
            raise KeyError("never seen before")

    source = source_of(clock, "guilty")
    aws = aws_on(hub, delivery=Stream(hub, dislikes=b"guilty"), files=Picky())
    for number in range(OWN_FAILURES + 1):
        source.bodies |= messages(f"m{number}")
        source.poll(lambda event: process(aws, event, Time()))
        assert list(source.bodies) == ["id-guilty"]
        clock.advance(361)


def test_an_outage_in_the_middle_of_a_batch_spares_what_was_delivered_before(hub: Hub, clock: Clock) -> None:
    stream = Stream(hub, dislikes=b"guilty")

    class Leaving:
        """Takes the first of the messages it is asked for alone, and is away then."""

        def put(self, records: Sequence[bytes]) -> list[int]:
            left = stream.put(records)
            stream.outage = OUTAGES[0]
            return left

    bodies = messages("m1", "m2", "guilty", "m3").values()
    answer = process(aws_on(hub, delivery=Leaving()), sqs_event(*bodies), Time(questions=2))

    assert [failure["itemIdentifier"] for failure in answer["batchItemFailures"]] == ["id-2", "id-3"]
    assert list(hub.platform.state.rows(MESSAGE_FAILURES)) == []


def test_a_function_that_cannot_be_put_together_counts_nothing_against_its_messages(
    hub: Hub, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(clock, "m1")
    monkeypatch.setenv("LEANOPS_NO_SUCH_SETTING", "1")
    invocation.made.cache_clear()
    for _ in range(2 * OWN_FAILURES):
        with pytest.raises(UsageError, match="no_such_setting"):
            source.poll(lambda event: processor.handler(event, Time()))
        clock.advance(361)

    assert source.poll(lambda event: process(aws_on(hub), event, Time())) == 1
    assert (source.bodies, source.dead, dead_letters(hub)) == ({}, [], {})
