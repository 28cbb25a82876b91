"""The delivery stream on Firehose."""

from collections.abc import Sequence
from typing import Any

from leanops.adapters.aws.answers import answering
from leanops.domain.errors import DeliveryUnavailableError, PermanentError
from leanops.domain.groups import in_groups
from leanops.ports.delivery import MAX_RECORD_BYTES

RECORDS_PER_CALL = 500
BYTES_PER_CALL = 4 << 20


class FirehoseDelivery:
    """The Delivery port on a boto3 Firehose client, which threads may share."""

    def __init__(self, client: Any, stream: str) -> None:
        self.client, self._stream = client, stream

    def put(self, records: Sequence[bytes]) -> list[int]:
        """In several calls if needed; after an outage that is not in the first call, the rest is to be put again."""
        if any(len(record) > MAX_RECORD_BYTES for record in records):
            raise PermanentError(
                f"a record is larger than the {MAX_RECORD_BYTES} bytes the stream takes; archive it as a dead letter"
            )
        left: list[int] = []
        positions = range(len(records))
        calls = in_groups(positions, lambda at: len(records[at]), most=RECORDS_PER_CALL, most_bytes=BYTES_PER_CALL)
        for some in calls:
            try:
                left += self._put(records, some)
            except DeliveryUnavailableError:
                if some[0] == 0:
                    raise
                return [*left, *positions[some[0] :]]
        return left

    def _put(self, records: Sequence[bytes], positions: Sequence[int]) -> list[int]:
        """The positions Firehose did not take, by its answer for each record."""
        with answering("Firehose", f"stream {self._stream}", DeliveryUnavailableError):
            answer = self.client.put_record_batch(
                DeliveryStreamName=self._stream, Records=[{"Data": records[position]} for position in positions]
            )
        if not answer["FailedPutCount"]:
            return []
        results = answer["RequestResponses"]
        if len(results) != len(positions):
            return list(positions)
        return [position for position, result in zip(positions, results, strict=True) if result.get("ErrorCode")]
