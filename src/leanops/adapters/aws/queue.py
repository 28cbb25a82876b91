"""Queues in SQS: one per topic and one for its dead letters, both named prefix + name."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, Unpack

from leanops.adapters.aws.answers import Reach, answering, connect, pages
from leanops.domain.errors import PartlySentError, PermanentError, QueueUnavailableError
from leanops.domain.groups import batched, in_groups
from leanops.ports.queue import MAX_RECEIVES, RETENTION_MS, Depth, Outgoing, Receipt, Received, dead_letter_queue

MAX_BYTES = 262_144
"""What Terraform's provider can set; SQS itself accepts four times as much."""
PER_CALL = 10
SENDERS = 8
LONGEST_VISIBILITY_S = 43_200
WAIT_S = 1
"""How long a receive waits for the first message."""
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass
class _Sent:
    """The result for the messages of one queue; those not named here were accepted."""

    again: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    is_closed: bool = False
    """The queue accepts nothing at all."""
    outage: QueueUnavailableError | None = None
    answers: int = 0


class SqsQueue:
    """The Queue port on a boto3 SQS client, which threads may share."""

    def __init__(self, client: Any, *, prefix: str = "", max_bytes: int = MAX_BYTES, wait_s: int = WAIT_S) -> None:
        self._client, self._prefix, self._wait_s = client, prefix, wait_s
        self.max_bytes = max_bytes
        self._pool = ThreadPoolExecutor(SENDERS, thread_name_prefix="sqs")
        self._urls: dict[str, str] = {}

    @classmethod
    def from_url(
        cls,
        url: str,
        _clock_ms: Callable[[], int],
        _shortage: Callable[[], str | None],
        *,
        wait_s: int = WAIT_S,
        **reach: Unpack[Reach],
    ) -> Self:
        """The queues of an account whose names begin with the prefix: sqs:PREFIX."""
        return cls(connect("sqs", **reach), prefix=url.partition(":")[2], wait_s=wait_s)

    def create(self, queue: str) -> None:
        """An existing queue is left unchanged."""
        retention = {"MessageRetentionPeriod": str(RETENTION_MS // 1000)}
        self._make(dead_letter_queue(queue), retention)
        dead = self._attributes(dead_letter_queue(queue), ["QueueArn"])["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": str(MAX_RECEIVES)})
        self._make(queue, {**retention, "MaximumMessageSize": str(self.max_bytes), "RedrivePolicy": policy})

    def send(self, messages: Sequence[Outgoing]) -> list[int]:
        """All queues at once; a queue that is missing fails only its own messages, with PartlySentError."""
        texts: dict[str, dict[int, str]] = defaultdict(dict)
        for position, message in enumerate(messages):
            texts[message.queue][position] = self._text(message)
        results = list(self._pool.map(self._send_all, texts, texts.values()))
        outages = [result.outage for result in results if result.outage and not result.answers]
        if outages and len(outages) == len(results):
            raise outages[0]
        again = sorted(position for result in results for position in result.again)
        refused = {position: reason for result in results for position, reason in result.refused.items()}
        if refused:
            closed = {queue for queue, result in zip(texts, results, strict=True) if result.is_closed}
            raise PartlySentError(refused, closed, again)
        return again

    def receive(self, queue: str, at_most: int, visibility_s: float) -> list[Received]:
        """Ten messages a call, until a call returns fewer."""
        received: list[Received] = []
        while len(received) < at_most:
            count = min(PER_CALL, at_most - len(received))
            try:
                messages = self._receive(queue, count, visibility_s, wait_s=0 if received else self._wait_s)
            except QueueUnavailableError:
                if received:
                    break
                raise
            received += messages
            if len(messages) < count:
                break
        return received

    def delete(self, queue: str, receipts: Sequence[Receipt]) -> list[Receipt]:
        """The receipts that are no longer valid, as far as SQS can tell."""
        return self._each(queue, receipts, self._client.delete_message_batch, {})

    def change_visibility(self, queue: str, receipts: Sequence[Receipt], seconds: float) -> None:
        hidden = {"VisibilityTimeout": _seconds(seconds)}
        self._each(queue, receipts, self._client.change_message_visibility_batch, hidden)

    def give_back(self, queue: str, receipts: Sequence[Receipt]) -> None:
        """SQS counts the receive all the same."""
        self.change_visibility(queue, receipts, 0)

    def depth(self, queue: str) -> Depth:
        """As SQS reports it: approximate, within a minute."""
        waiting, delayed = "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"
        in_flight = "ApproximateNumberOfMessagesNotVisible"
        counts = self._attributes(queue, [waiting, delayed, in_flight])
        return Depth(int(counts[waiting]) + int(counts.get(delayed, 0)), int(counts[in_flight]))

    def depths(self) -> dict[str, Depth]:
        return {name: depth for name in self._names() if (depth := self.depth(name)).messages}

    def ready(self) -> list[str]:
        """Ordered by name: SQS does not report how long messages have waited."""
        return [name for name in self._names() if self.depth(name).visible]

    def close(self) -> None:
        self._pool.shutdown()
        self._client.close()

    def _make(self, queue: str, attributes: dict[str, str]) -> None:
        with self._about(queue), suppress(self._client.exceptions.QueueNameExists):
            self._client.create_queue(QueueName=self._prefix + queue, Attributes=attributes)

    def _names(self) -> list[str]:
        """Every queue with our prefix; a queue that was just deleted may be listed for a minute."""
        listing = pages(self._client, "list_queues", self._about("*"), QueueNamePrefix=self._prefix)
        urls = [url for page in listing for url in page.get("QueueUrls", [])]
        return sorted(url.rpartition("/")[2].removeprefix(self._prefix) for url in urls)

    def _url(self, queue: str) -> str:
        if queue not in self._urls:
            with self._about(queue):
                self._urls[queue] = self._client.get_queue_url(QueueName=self._prefix + queue)["QueueUrl"]
        return self._urls[queue]

    def _about(self, queue: str) -> Any:
        return answering("SQS", f"queue {self._prefix}{queue}", QueueUnavailableError)

    def _attributes(self, queue: str, names: Sequence[str]) -> dict[str, str]:
        url = self._url(queue)
        with self._about(queue):
            answer: dict[str, str] = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return answer

    def _text(self, message: Outgoing) -> str:
        try:
            text = escaped(message.body.decode())
        except UnicodeDecodeError:
            raise PermanentError(f"a message for {message.queue} is not UTF-8; send its bytes in base64") from None
        if len(text.encode()) > self.max_bytes:
            raise PermanentError(
                f"a message is larger than the {self.max_bytes:,} bytes a queue accepts; send it by claim check"
            )
        return text

    def _send_all(self, queue: str, texts: dict[int, str]) -> _Sent:
        """Send the texts in order, call by call; after an outage the rest is not sent, so that the order is kept."""
        sent = _Sent()
        for some in in_groups(texts, lambda at: len(texts[at].encode()), most=PER_CALL, most_bytes=self.max_bytes):
            try:
                failed = self._send(queue, {position: texts[position] for position in some})
            except (PermanentError, QueueUnavailableError) as failure:
                left = [position for position in texts if position >= some[0]]
                if isinstance(failure, QueueUnavailableError):
                    sent.again += left
                    sent.outage = failure
                else:
                    sent.refused |= dict.fromkeys(left, str(failure))
                    sent.is_closed = True
                break
            sent.answers += 1
            sent.again += [position for position, reason in failed.items() if reason is None]
            sent.refused |= {position: reason for position, reason in failed.items() if reason}
        return sent

    def _send(self, queue: str, texts: dict[int, str]) -> dict[int, str | None]:
        """The positions that were not accepted, with a reason if they never will be."""
        entries = [{"Id": str(position), "MessageBody": text} for position, text in texts.items()]
        url = self._url(queue)
        with self._about(queue):
            answer = self._client.send_message_batch(QueueUrl=url, Entries=entries)
        about = f"SQS refuses a message for {self._prefix}{queue}"
        return {
            int(entry["Id"]): f"{about} ({entry['Code']}); see what sends such messages"
            if entry["SenderFault"]
            else None
            for entry in answer.get("Failed", [])
        }

    def _receive(self, queue: str, count: int, visibility_s: float, wait_s: int) -> list[Received]:
        url = self._url(queue)
        with self._about(queue):
            answer = self._client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=count,
                VisibilityTimeout=_seconds(visibility_s),
                WaitTimeSeconds=wait_s,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
        return [
            Received(
                message["Body"].encode(),
                message["ReceiptHandle"],
                int(message["Attributes"]["ApproximateReceiveCount"]),
            )
            for message in answer.get("Messages", [])
        ]

    def _each(
        self, queue: str, receipts: Sequence[Receipt], call: Callable[..., Any], arguments: dict[str, Any]
    ) -> list[Receipt]:
        """Call for ten receipts at once; returns those that failed."""
        failed: list[Receipt] = []
        for some in batched(list(dict.fromkeys(receipts)), PER_CALL):
            entries = [{"Id": str(at), "ReceiptHandle": receipt, **arguments} for at, receipt in enumerate(some)]
            with self._about(queue):
                answer = call(QueueUrl=self._url(queue), Entries=entries)
            failed += [some[int(entry["Id"])] for entry in answer.get("Failed", [])]
        return failed


def escaped(text: str) -> str:
    """JSON text without the characters SQS refuses; it decodes to the same."""
    return _REFUSED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _seconds(seconds: float) -> int:
    return min(math.ceil(seconds), LONGEST_VISIBILITY_S)
