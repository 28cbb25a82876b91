"""The delivery stream on Firehose."""

from collections.abc import Iterator, Sequence
from typing import Any, Self, Unpack

from leanops.adapters.aws.answers import Reach, answering, connect
from leanops.domain.errors import DeliveryUnavailableError, PermanentError
from leanops.ports.delivery import MAX_RECORD_BYTES

RECORDS_PER_CALL = 500
BYTES_PER_CALL = 4 << 20


class FirehoseDelivery:
    """The Delivery port on a boto3 Firehose client, which threads may share."""

    def __init__(self, client: Any, stream: str) -> None:
        self._client, self._stream = client, stream

    @classmethod
    def connect(cls, stream: str, **reach: Unpack[Reach]) -> Self:
        """A stream with a client of its own."""
        return cls(connect("firehose", **reach), stream)

    def put(self, records: Sequence[bytes]) -> list[int]:
        """In as many calls as it takes; an outage after the first makes the rest positions to be put again."""
        if any(len(record) > MAX_RECORD_BYTES for record in records):
            raise PermanentError(f"a record is larger than the {MAX_RECORD_BYTES} bytes the stream takes; set it aside")
        left: list[int] = []
        for positions in _batches(records):
            try:
                left += self._put(records, positions)
            except DeliveryUnavailableError:
                if positions.start == 0:
                    raise
                return [*left, *range(positions.start, len(records))]
        return left

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def _put(self, records: Sequence[bytes], positions: range) -> list[int]:
        """The positions Firehose did not take, by its answer for each record."""
        with answering("Firehose", f"stream {self._stream}", DeliveryUnavailableError):
            answer = self._client.put_record_batch(
                DeliveryStreamName=self._stream, Records=[{"Data": records[position]} for position in positions]
            )
        if not answer["FailedPutCount"]:
            return []
        said = answer["RequestResponses"]
        if len(said) != len(positions):
            return list(positions)
        return [position for position, record in zip(positions, said, strict=True) if record.get("ErrorCode")]


def _batches(records: Sequence[bytes]) -> Iterator[range]:
    start = size = 0
    for position, record in enumerate(records):
        if position > start and (position - start == RECORDS_PER_CALL or size + len(record) > BYTES_PER_CALL):
            yield range(start, position)
            start, size = position, 0
        size += len(record)
    if records:
        yield range(start, len(records))
