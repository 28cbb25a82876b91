"""Every delivery stream takes records in the same way: SQLite, PostgreSQL, and a stand-in with Firehose's limits."""

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.delivery import FirehoseDelivery
from leanops.adapters.sql.buffer import SqlBuffer
from leanops.domain.errors import DeliveryUnavailableError, PermanentError
from leanops.ports.delivery import MAX_RECORD_BYTES, Delivery
from tests.support.engines import free_port
from tests.support.standin import Answer, refusal, standin


class Firehose:
    """What Firehose documents of PutRecordBatch; `fate` may refuse a record, `trouble` a whole call."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.calls: list[int] = []
        self.fate: Callable[[bytes], str | None] = lambda _: None
        self.trouble: Callable[[int], Answer | None] = lambda _: None
        self.lock = threading.Lock()

    def __call__(self, operation: str, request: dict[str, Any]) -> Answer:
        assert operation == "PutRecordBatch"
        with self.lock:
            records = [base64.b64decode(record["Data"]) for record in request["Records"]]
            self.calls.append(len(records))
            trouble = self.trouble(len(self.calls))
            if trouble:
                return trouble
            if len(records) > 500 or sum(map(len, records)) > 4 << 20 or max(map(len, records)) > 1_024_000:
                return refusal("InvalidArgumentException")
            codes = [self.fate(record) for record in records]
            self.records += [record for record, code in zip(records, codes, strict=True) if not code]
        said = [{"ErrorCode": code, "ErrorMessage": "…"} if code else {"RecordId": "1"} for code in codes]
        return 200, {"FailedPutCount": sum(map(bool, codes)), "RequestResponses": said, "Encrypted": False}


@dataclass
class Place:
    """A stream, and what it has taken."""

    delivery: Delivery
    taken: Callable[[], list[bytes]]


@pytest.fixture
def firehose() -> Firehose:
    return Firehose()


@pytest.fixture
def stream(firehose: Firehose) -> Iterator[FirehoseDelivery]:
    with standin(firehose) as endpoint:
        yield FirehoseDelivery(connect("firehose", endpoint=endpoint, attempts=1), "stream")


@pytest.fixture(params=["sqlite", "postgresql", "firehose"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "firehose":
        firehose = request.getfixturevalue("firehose")
        yield Place(request.getfixturevalue("stream"), lambda: firehose.records)
        return
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/delivery.db" if is_file else request.getfixturevalue("postgresql_url")
    with ExitStack() as opened:
        buffer = SqlBuffer(url, lambda: 0)
        opened.callback(buffer.close)

        def taken() -> list[bytes]:
            buffer.claim("flush", 1 << 40)
            opened.callback(buffer.forget, "flush")
            return [line for lines in buffer.lines("flush") for line in lines.split(b"\n")]

        yield Place(buffer, taken)


def numbered(count: int, size: int = 10) -> list[bytes]:
    return [b'{"n":"%0*d"}' % (size, number) for number in range(count)]


@pytest.mark.parametrize(
    "records",
    [
        numbered(1),
        ['{"p":"Ünïcödé 漢字 \u2028 😀 \uffff"}'.encode(), b'{"p":"\\u0000\\n"}'],
        numbered(1_234),
        numbered(20, 700_000),
        [b'{"n":"' + b"x" * (MAX_RECORD_BYTES - 8) + b'"}'] * 5,
    ],
    ids=["one", "odd", "more than a call", "larger than a call", "largest"],
)
def test_every_record_is_taken_once_and_as_it_is(place: Place, records: list[bytes]) -> None:
    assert place.delivery.put(records) == []

    assert place.taken() == records


def test_nothing_may_be_put(place: Place) -> None:
    assert place.delivery.put([]) == []


def test_the_calls_are_as_large_as_firehose_allows(firehose: Firehose, stream: FirehoseDelivery) -> None:
    stream.put(numbered(1_001))
    stream.put([b"x" * (1 << 19)] * 9)

    assert firehose.calls == [500, 500, 1, 8, 1]


def test_only_the_records_that_were_refused_are_to_be_put_again(firehose: Firehose, stream: FirehoseDelivery) -> None:
    records = numbered(600)
    bad = {0, 7, 499, 500, 599}
    firehose.fate = lambda record: "ServiceUnavailableException" if records.index(record) in bad else None

    assert stream.put(records) == sorted(bad)

    assert firehose.records == [record for number, record in enumerate(records) if number not in bad]


@pytest.mark.parametrize("code", ["ServiceUnavailableException", "ThrottlingException", "LimitExceededException"])
def test_a_busy_stream_is_an_outage_in_one_line(firehose: Firehose, stream: FirehoseDelivery, code: str) -> None:
    firehose.trouble = lambda _: refusal(code)

    with pytest.raises(DeliveryUnavailableError, match=r"too busy for stream stream .*try again"):
        stream.put(numbered(3))


def test_an_outage_in_the_middle_makes_the_rest_positions(firehose: Firehose, stream: FirehoseDelivery) -> None:
    firehose.fate = lambda record: "InternalFailure" if record == numbered(4)[3] else None
    firehose.trouble = lambda call: refusal("InternalFailure", 500) if call == 2 else None

    assert stream.put(numbered(1_200)) == [3, *range(500, 1_200)]

    assert len(firehose.records) == 499


def test_a_stream_that_is_not_there_is_a_permanent_error(firehose: Firehose, stream: FirehoseDelivery) -> None:
    firehose.trouble = lambda _: refusal("ResourceNotFoundException")

    with pytest.raises(PermanentError, match="apply the infrastructure"):
        stream.put(numbered(3))


def test_a_record_over_the_limit_is_refused_before_anything_is_put(
    firehose: Firehose, stream: FirehoseDelivery
) -> None:
    with pytest.raises(PermanentError, match="1024000 bytes"):
        stream.put([*numbered(1), b"x" * (MAX_RECORD_BYTES + 1)])

    assert firehose.calls == []


def test_an_unreachable_server_is_an_outage_in_one_line() -> None:
    stream = FirehoseDelivery(connect("firehose", endpoint=f"http://127.0.0.1:{free_port()}", attempts=1), "stream")

    with pytest.raises(DeliveryUnavailableError, match=r"does not answer .*try again") as raised:
        stream.put(numbered(1))

    assert "\n" not in str(raised.value)
