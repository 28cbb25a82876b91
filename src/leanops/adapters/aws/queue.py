"""Queues in SQS: one per topic and one for its dead letters, both named prefix + name."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, Unpack

from leanops.adapters.aws.answers import Reach, answering, connect
from leanops.domain.errors import PartlySentError, PermanentError, QueueUnavailableError
from leanops.ports.queue import MAX_RECEIVES, RETENTION_MS, Depth, Outgoing, Receipt, Received, dead_letters

MAX_BYTES = 262_144
"""What Terraform's provider can set; SQS itself takes four times as much."""
PER_CALL = 10
LONGEST_VISIBILITY_S = 43_200
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass
class _Sent:
    """What became of the messages of one queue; those not named here were taken."""

    again: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    is_closed: bool = False
    """The queue takes nothing at all."""
    outage: QueueUnavailableError | None = None
    answers: int = 0


class SqsQueue:
    """The Queue port on a boto3 SQS client, which threads may share."""

    def __init__(
        self, client: Any, *, prefix: str = "", max_bytes: int = MAX_BYTES, wait_s: int = 1, senders: int = 8
    ) -> None:
        self._client, self._prefix, self._wait_s = client, prefix, wait_s
        self.max_bytes = max_bytes
        self._pool = ThreadPoolExecutor(senders, thread_name_prefix="sqs")
        self._urls: dict[str, str] = {}

    @classmethod
    def connect(
        cls,
        *,
        prefix: str = "",
        max_bytes: int = MAX_BYTES,
        wait_s: int = 1,
        senders: int = 8,
        **reach: Unpack[Reach],
    ) -> Self:
        """A queue with a client of its own."""
        client = connect("sqs", **reach)
        return cls(client, prefix=prefix, max_bytes=max_bytes, wait_s=wait_s, senders=senders)

    @classmethod
    def from_url(cls, url: str, _clock_ms: Callable[[], int], _shortage: Callable[[], str | None]) -> Self:
        """The queues of an account whose names begin with the prefix: sqs:PREFIX."""
        return cls.connect(prefix=url.partition(":")[2])

    def create(self, queue: str) -> None:
        """Make the queue and its dead-letter queue; one that is there stays as it is."""
        retention = {"MessageRetentionPeriod": str(RETENTION_MS // 1000)}
        self._make(dead_letters(queue), retention)
        dead = self._attributes(dead_letters(queue), ["QueueArn"])["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": str(MAX_RECEIVES)})
        self._make(queue, {**retention, "MaximumMessageSize": str(self.max_bytes), "RedrivePolicy": policy})

    def send(self, messages: Sequence[Outgoing]) -> list[int]:
        """Queues at once, the batches of each in turn; one that is missing fails its own alone, by PartlySentError."""
        batches: dict[str, list[dict[int, str]]] = defaultdict(list)
        for queue, entries in self._batches(messages):
            batches[queue].append(entries)
        sent = list(self._pool.map(self._send_all, batches, batches.values()))
        outages = [one.outage for one in sent if one.outage and not one.answers]
        if outages and len(outages) == len(sent):
            raise outages[0]
        again = sorted(position for one in sent for position in one.again)
        refused = {position: reason for one in sent for position, reason in one.refused.items()}
        if refused:
            closed = {queue for queue, one in zip(batches, sent, strict=True) if one.is_closed}
            raise PartlySentError(refused, closed, again)
        return again

    def receive(self, queue: str, at_most: int, visibility_s: float) -> list[Received]:
        """Messages nobody else has in hand, ten a call for as long as there are as many."""
        received: list[Received] = []
        while len(received) < at_most:
            count = min(PER_CALL, at_most - len(received))
            try:
                found = self._receive(queue, count, visibility_s, wait_s=0 if received else self._wait_s)
            except QueueUnavailableError:
                if received:
                    break
                raise
            received += found
            if len(found) < count:
                break
        return received

    def delete(self, queue: str, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Delete messages in hand; the receipts that were good no longer, as far as SQS can tell."""
        return self._each(queue, receipts, self._client.delete_message_batch, {})

    def change_visibility(self, queue: str, receipts: Sequence[Receipt], seconds: float) -> None:
        """Hide messages in hand for so long from now; what is no longer in hand stays as it is."""
        hidden = {"VisibilityTimeout": _seconds(seconds)}
        self._each(queue, receipts, self._client.change_message_visibility_batch, hidden)

    def give_back(self, queue: str, receipts: Sequence[Receipt]) -> None:
        """At once; SQS counts the receive all the same."""
        self.change_visibility(queue, receipts, 0)

    def depth(self, queue: str) -> Depth:
        """As SQS tells it, which is about right within a minute."""
        waiting, delayed = "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"
        in_flight = "ApproximateNumberOfMessagesNotVisible"
        found = self._attributes(queue, [waiting, delayed, in_flight])
        return Depth(int(found[waiting]) + int(found.get(delayed, 0)), int(found[in_flight]))

    def depths(self) -> dict[str, Depth]:
        """As SQS tells it, of every queue with our prefix."""
        found = {name: self.depth(name) for name in self._names()}
        return {name: depth for name, depth in found.items() if depth.messages}

    def ready(self) -> list[str]:
        """By name: SQS does not tell how long messages wait."""
        return [name for name in self._names() if self.depth(name).visible]

    def close(self) -> None:
        """Close the client's connections."""
        self._pool.shutdown()
        self._client.close()

    def _make(self, queue: str, attributes: dict[str, str]) -> None:
        with self._about(queue), suppress(self._client.exceptions.QueueNameExists):
            self._client.create_queue(QueueName=self._prefix + queue, Attributes=attributes)

    def _names(self) -> list[str]:
        """Every queue with our prefix; one that was just deleted may be among them for a minute."""
        with answering("SQS", f"queues {self._prefix}*", QueueUnavailableError):
            pages = self._client.get_paginator("list_queues").paginate(QueueNamePrefix=self._prefix)
            urls = [url for page in pages for url in page.get("QueueUrls", [])]
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
            found: dict[str, str] = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return found

    def _batches(self, messages: Sequence[Outgoing]) -> Iterator[tuple[str, dict[int, str]]]:
        """The messages of each queue as texts by position, so many and so large together as one call takes."""
        by_queue: dict[str, list[int]] = defaultdict(list)
        for position, message in enumerate(messages):
            by_queue[message.queue].append(position)
        for queue, positions in by_queue.items():
            entries: dict[int, str] = {}
            size = 0
            for position in positions:
                text, length = self._text(messages[position])
                if entries and (len(entries) == PER_CALL or size + length > self.max_bytes):
                    yield queue, entries
                    entries, size = {}, 0
                entries[position] = text
                size += length
            yield queue, entries

    def _text(self, message: Outgoing) -> tuple[str, int]:
        try:
            text = escaped(message.body.decode())
        except UnicodeDecodeError:
            raise PermanentError(f"a message for {message.queue} is not UTF-8; send its bytes in base64") from None
        length = len(text.encode())
        if length > self.max_bytes:
            raise PermanentError(f"a message is larger than the {self.max_bytes} bytes a queue takes; claim-check it")
        return text, length

    def _send_all(self, queue: str, batches: Sequence[dict[int, str]]) -> _Sent:
        """Send one batch after the other; what follows an outage waits with it, so that the order is kept."""
        sent = _Sent()
        for number, entries in enumerate(batches):
            try:
                failed = self._send(queue, entries)
            except (PermanentError, QueueUnavailableError) as failure:
                left = [position for rest in batches[number:] for position in rest]
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

    def _send(self, queue: str, entries: dict[int, str]) -> dict[int, str | None]:
        """The positions not taken, with a reason where they never will be."""
        said = [{"Id": str(position), "MessageBody": text} for position, text in entries.items()]
        url = self._url(queue)
        with self._about(queue):
            answer = self._client.send_message_batch(QueueUrl=url, Entries=said)
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
        """Call for ten receipts at once; those that failed."""
        if not receipts:
            return []
        url, failed = self._url(queue), list[Receipt]()
        unique = list(dict.fromkeys(receipts))
        for some in (unique[start : start + PER_CALL] for start in range(0, len(unique), PER_CALL)):
            entries = [{"Id": str(at), "ReceiptHandle": receipt, **arguments} for at, receipt in enumerate(some)]
            with self._about(queue):
                answer = call(QueueUrl=url, Entries=entries)
            failed += [some[int(entry["Id"])] for entry in answer.get("Failed", [])]
        return failed


def escaped(text: str) -> str:
    """JSON text without the characters SQS refuses; it decodes to the same."""
    return _REFUSED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _seconds(seconds: float) -> int:
    return min(math.ceil(seconds), LONGEST_VISIBILITY_S)
