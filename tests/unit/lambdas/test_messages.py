"""The Lambda functions that take messages: each answers for exactly the messages that must come again."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from leanops.domain.errors import (
    DeliveryUnavailableError,
    FilesUnavailableError,
    PermanentError,
    RetryableError,
    StateUnavailableError,
)
from leanops.domain.event.envelope import encoded
from leanops.domain.event.record import raw_record
from leanops.entrypoints.lambdas import processor
from leanops.entrypoints.lambdas.dead_letters import archive_messages, archive_records
from leanops.entrypoints.lambdas.invocation import CALL_MS
from leanops.entrypoints.lambdas.processor import process
from leanops.ports.state import ERROR_TRACKER
from leanops.runtimes.aws import Aws
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.topics.registry import add_topic
from tests.support.functions import Objects, Switches, Time, aws_on, envelope, error_line, sqs_event
from tests.support.hub import Hub, hub_in

NONE_FAILED: dict[str, Any] = {"batchItemFailures": []}


def failed(*numbers: int) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": f"id-{number}"} for number in numbers]}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_in(tmp_path) as found:
        add_topic(found.platform, "orders")
        add_topic(found.platform, "Payments.v1")
        yield found


def dead_letters(hub: Hub) -> dict[str, tuple[str, str]]:
    """Message id → topic and rule of every dead letter."""
    rows = [stored.row for stored in hub.platform.state.rows(ERROR_TRACKER)]
    return {str(row["message_id"]): (str(row["topic_name"]), str(row["rule"])) for row in rows}


class Away:
    """A delivery stream that takes nothing for so many puts, and of the others only what it likes."""

    def __init__(self, hub: Hub, outages: int) -> None:
        self.hub, self.outages = hub, outages

    def put(self, records: Sequence[bytes]) -> list[int]:
        self.outages -= 1
        if self.outages >= 0:
            raise DeliveryUnavailableError("Firehose is too busy; try again")
        return self.hub.buffer.put(records)


def test_the_events_of_a_batch_are_delivered_and_no_message_comes_again(hub: Hub) -> None:
    event = sqs_event(encoded(envelope("m1")), encoded(envelope("m2", "é\uffff")))

    assert process(aws_on(hub), event, Time()) == NONE_FAILED

    hub.settle()
    assert {row["message_id"]: row["json_payload"] for row in hub.raw()} == {"m1": "{}", "m2": "é\uffff"}


def test_a_bad_envelope_is_archived_and_succeeds(hub: Hub) -> None:
    event = sqs_event(b"no envelope", encoded(envelope("m1")), encoded(envelope("m2", topic="elsewhere")))

    assert process(aws_on(hub), event, Time()) == NONE_FAILED

    hub.settle()
    assert hub.ids() == ["m1"]
    assert sorted(dead_letters(hub).values()) == [("orders", "bad_envelope")] * 2


def test_only_the_message_whose_claim_is_gone_comes_again(hub: Hub) -> None:
    gone = envelope("m2", None, claim="claims/2026-11-15/orders/gone")
    event = sqs_event(encoded(envelope("m1")), encoded(gone), encoded(envelope("m3")))

    assert process(aws_on(hub), event, Time()) == failed(1)

    hub.settle()
    assert hub.ids() == ["m1", "m3"]


def test_the_queue_is_known_by_its_arn_without_the_prefix(hub: Hub) -> None:
    event = sqs_event(encoded(envelope("m1", topic="Payments.v1")), b"bad", queue="leanops-payments_v1")

    assert process(aws_on(hub), event, Time()) == NONE_FAILED

    hub.settle("Payments.v1")
    assert hub.ids("Payments.v1") == ["m1"]
    assert list(dead_letters(hub).values()) == [("Payments.v1", "bad_envelope")]


def test_a_short_outage_is_waited_out(hub: Hub) -> None:
    aws = aws_on(hub, delivery=Away(hub, outages=2))

    assert process(aws, sqs_event(encoded(envelope("m1"))), Time()) == NONE_FAILED

    hub.settle()
    assert hub.ids() == ["m1"]


def test_in_an_outage_longer_than_the_function_all_messages_come_again(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    aws = aws_on(hub, delivery=Away(hub, outages=1_000))
    event = sqs_event(encoded(envelope("m1", "the payload")), encoded(envelope("m2")))

    assert process(aws, event, Time(questions=8)) == failed(0, 1)

    said, stopped = [vars(record) for record in caplog.records if record.levelname == "ERROR"]
    assert (said["message"], said["queue"], said["again"]) == ("an outage", "orders", 2)
    assert (stopped["message"], stopped["reason"]) == ("consumption stopped", said["reason"])
    assert "the payload" not in str(said)


def test_an_outage_fails_the_messages_of_its_queue_alone(hub: Hub) -> None:
    event = sqs_event(encoded(envelope("m1")))
    event["Records"] += [
        {**record, "messageId": "other"}
        for record in sqs_event(encoded(envelope("m2", topic="Payments.v1")), queue="leanops-payments_v1")["Records"]
    ]

    aws = aws_on(hub, delivery=Away(hub, outages=1))

    # The first queue's time is over after its first try; the second queue needs no patience.
    assert process(aws, event, Time(questions=1)) == failed(0)
    hub.settle("Payments.v1")
    assert hub.ids("Payments.v1") == ["m2"]


def test_failures_open_the_breaker_which_stops_the_queue(hub: Hub) -> None:
    switches = Switches()
    breakers = Breakers(hub.platform.state, hub.platform.clock, switch=switches)
    aws = aws_on(hub, breakers=breakers)

    process(aws, sqs_event(*[f"bad {number}".encode() for number in range(30)]), Time())

    assert switches.told == ["stop orders"]


def test_a_store_that_hangs_leaves_the_function_time_to_answer(hub: Hub) -> None:
    class Hanging:
        """A stream whose every put takes as long as a call may."""

        def put(self, _records: Sequence[bytes]) -> list[int]:
            context.milliseconds -= CALL_MS
            raise DeliveryUnavailableError("Firehose does not answer; try again")

    context = Time(milliseconds=30_000)

    assert process(aws_on(hub, delivery=Hanging()), sqs_event(encoded(envelope("m1"))), context) == failed(0)
    assert context.milliseconds >= CALL_MS


def test_a_breaker_that_cannot_be_told_makes_no_message_come_again(hub: Hub) -> None:
    class Silent:
        may_receive = staticmethod(lambda _queue, usual: usual)

        def report(self, *_: object) -> None:
            raise StateUnavailableError("DynamoDB does not answer; try again")

    aws = aws_on(hub, breakers=Silent())

    assert process(aws, sqs_event(encoded(envelope("m1"))), Time()) == NONE_FAILED


def test_dead_letters_are_archived_event_by_event(hub: Hub) -> None:
    several = b"[" + encoded(envelope("m1")) + b"," + encoded(envelope("m2")) + b"]"
    event = sqs_event(several, b"no envelope", queue="leanops-orders-dlq")

    assert archive_messages(aws_on(hub), event, Time()) == NONE_FAILED
    assert archive_messages(aws_on(hub), event, Time()) == NONE_FAILED

    found = dead_letters(hub)
    assert len(found) == 3
    assert {found["m1"], found["m2"]} == {("orders", "receives_exceeded")}
    rows = [stored.row for stored in hub.platform.state.rows(ERROR_TRACKER)]
    archived = {str(row["message_id"]): hub.files.get(str(row["source"])) for row in rows}
    assert archived["m1"] == encoded(envelope("m1"))
    assert b"no envelope" in archived.values()


class Closed:
    """A file store that takes nothing."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def put(self, *_: object) -> None:
        raise self.failure


def test_dead_letters_come_again_in_an_outage(hub: Hub) -> None:
    event = sqs_event(encoded(envelope("m1")), b"bad", queue="leanops-orders-dlq")
    closed = Closed(StateUnavailableError("S3 does not answer; try again"))

    assert archive_messages(aws_on(hub, files=closed), event, Time(questions=4)) == failed(0, 1)


def test_dead_letters_come_again_where_the_archive_refuses(hub: Hub) -> None:
    event = sqs_event(encoded(envelope("m1")), b"bad", queue="leanops-orders-dlq")
    closed = Closed(PermanentError("S3 refuses bucket b (AccessDenied); check what this role may do"))

    assert archive_messages(aws_on(hub, files=closed), event, Time()) == failed(0, 1)


def test_large_dead_letters_are_archived_over_a_few_calls(hub: Hub) -> None:
    class Slow:
        """An archive that takes 75 ms a file, and none when the function's time is over."""

        get = staticmethod(hub.files.get)

        def put(self, name: str, data: bytes) -> None:
            context.milliseconds -= 75
            if context.milliseconds < CALL_MS:
                raise FilesUnavailableError("S3 is not asked, too little time is left; it is asked again")
            hub.files.put(name, data)

    # In one call there is time for about 700 files, so the first message is done only by going on where it was left.
    names = [[f"m{number}-{event}" for event in range(events)] for number, events in enumerate((1_100, 510, 10))]
    bodies = [b"[" + b",".join(encoded(envelope(name)) for name in events) + b"]" for events in names]
    event = sqs_event(*bodies, queue="leanops-orders-dlq")
    calls = 0
    while event["Records"]:
        context, calls = Time(milliseconds=60_000), calls + 1
        assert calls <= 5
        answered = archive_messages(aws_on(hub, files=Slow()), event, context)
        again = {failure["itemIdentifier"] for failure in answered["batchItemFailures"]}
        event["Records"] = [record for record in event["Records"] if record["messageId"] in again]

    assert set(dead_letters(hub)) == {name for events in names for name in events}


def test_the_events_of_a_dead_letter_are_archived_several_at_once(hub: Hub) -> None:
    together = Barrier(2, timeout=10)

    class Paired:
        """An archive that takes a file only while it is asked to take another one."""

        def put(self, name: str, data: bytes) -> None:
            together.wait()
            hub.files.put(name, data)

    names = [f"m{number}" for number in range(4)]
    event = sqs_event(b"[" + b",".join(encoded(envelope(name)) for name in names) + b"]", queue="leanops-orders-dlq")

    assert archive_messages(aws_on(hub, files=Paired()), event, Time()) == NONE_FAILED
    assert set(dead_letters(hub)) == set(names)


def test_a_dead_letter_that_cannot_be_archived_has_no_say_over_the_others(hub: Hub) -> None:
    class Picky:
        def put(self, name: str, data: bytes) -> None:
            if b"guilty" in data:
                raise KeyError("never seen before")
            hub.files.put(name, data)

    bodies = [encoded(envelope(name)) for name in ("m1", "guilty", "m2")]
    event = sqs_event(*bodies, queue="leanops-orders-dlq")

    assert archive_messages(aws_on(hub, files=Picky()), event, Time()) == failed(1)
    assert set(dead_letters(hub)) == {"m1", "m2"}


def output(hub: Hub, objects: dict[str, bytes], **ports: Any) -> Aws:
    return aws_on(hub, objects_in=lambda _bucket: Objects(objects), **ports)


def eventbridge(name: str) -> dict[str, Any]:
    return {"detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": name, "size": 1}}}


def notification(name: str) -> dict[str, Any]:
    return {"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": name.replace(" ", "+"), "size": 1}}}]}


@pytest.mark.parametrize("event", [eventbridge, notification])
def test_what_firehose_could_not_deliver_is_archived_as_messages_that_would_bring_it_back(hub: Hub, event: Any) -> None:
    lost = envelope("m1", '{"a":1}', topic="unheard", attributes={"k": "v"}, ingestion_ts=5)
    lines = error_line(raw_record(lost, '{"a":1}', 5)) + error_line(b"garbage") + b"no JSON\n\n"
    aws = output(hub, {"errors/processing-failed/part 1": lines})

    assert archive_records(aws, event("errors/processing-failed/part 1"), Time()) == 3

    found = dead_letters(hub)
    assert found["m1"] == ("unheard", "unroutable")
    assert sorted(found.values()) == [("unheard", "unroutable")] + [("unknown", "unroutable")] * 2
    [row] = [stored.row for stored in hub.platform.state.rows(ERROR_TRACKER) if stored.row["message_id"] == "m1"]
    assert hub.files.get(str(row["source"])) == encoded(lost)
    assert "Lambda.ProcessingFailedStatus" in str(row["reason"])


def test_an_object_of_the_error_output_that_is_gone_is_no_failure(hub: Hub) -> None:
    assert archive_records(aws_on(hub), eventbridge("errors/gone"), Time()) == 0


@pytest.mark.parametrize("key", ["errors//1", "errors/../x", "errors/" + "x" * 300, "errors/tab\t"])
def test_an_object_is_read_by_whatever_name_it_has(hub: Hub, key: str) -> None:
    assert archive_records(output(hub, {key: error_line(b"garbage")}), eventbridge(key), Time()) == 1


def test_our_own_archive_and_claim_checks_are_never_archived(hub: Hub) -> None:
    objects = {"dlq/orders/1.json": b"a dead letter", "claims/2026-11-15/orders/1": b"a claim"}

    assert [archive_records(output(hub, objects), eventbridge(key), Time()) for key in objects] == [0, 0]
    assert (dead_letters(hub), list(hub.files.names(""))) == ({}, [])


def test_an_object_that_takes_longer_than_the_function_is_archived_over_several(hub: Hub) -> None:
    lines = [error_line(raw_record(envelope(f"m{number}"), "{}", 5)) for number in range(1_001)]
    aws, event = output(hub, {"errors/1": b"".join(lines)}), eventbridge("errors/1")

    for done in (500, 1_000):
        with pytest.raises(RetryableError, match="500 records are archived; the next call"):
            archive_records(aws, event, Time(questions=1))
        assert len(dead_letters(hub)) == done
    assert archive_records(aws, event, Time(questions=1)) == 1
    assert set(dead_letters(hub)) == {f"m{number}" for number in range(1_001)}
    assert archive_records(aws, event, Time()) == 0


def test_the_functions_import_no_spark_and_no_arrow() -> None:
    folder = Path(processor.__file__).parent
    modules = sorted(path.stem for path in folder.glob("[a-z]*.py"))
    heavy = ["pyspark", "pyarrow", "pandas", "pyiceberg", "sqlalchemy", "duckdb", "typer", "google.cloud"]
    look = (
        "import sys, importlib\n"
        f"for name in {modules}: importlib.import_module('leanops.entrypoints.lambdas.' + name)\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )

    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout

    assert {"processor", "transform", "dead_letters"} <= set(modules)
    assert said.strip() == "[]"
