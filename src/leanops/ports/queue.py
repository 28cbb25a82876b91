"""Queues: one per topic, each with a dead-letter queue beside it."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

Receipt: TypeAlias = Hashable


MAX_RECEIVES = 5
PLATFORM_RECEIVES = 250
"""SQS's maxReceiveCount where Lambda receives: there a receive in an outage counts as well, about one in six minutes,
and these last for a day. The function itself gives a message up after far fewer failures of its own."""
RETENTION_MS = 14 * 86_400_000
DEAD = "-dlq"


def dead_letter_queue(queue: str) -> str:
    """The dead-letter queue of a queue."""
    return queue + DEAD


class Outgoing(NamedTuple):
    """A message to be sent: UTF-8 text."""

    queue: str
    body: bytes


class Received(NamedTuple):
    """A message in flight until its visibility ends; the receipt is good for as long."""

    body: bytes
    receipt: Receipt
    receives: int
    """How often it was received, this time included."""


@dataclass(frozen=True)
class Depth:
    """What a queue holds."""

    visible: int
    in_flight: int
    oldest_ms: int | None = None
    """When the oldest message was sent, where the queue can tell."""

    @property
    def messages(self) -> int:
        return self.visible + self.in_flight


class Queue(Protocol):
    """At least once, in no promised order. A queue that does not answer raises QueueUnavailableError.

    A message that was received MAX_RECEIVES times and not deleted is in the dead-letter queue, and after
    RETENTION_MS it is gone from its queue.
    """

    max_bytes: int
    """The largest body it takes."""

    def create(self, queue: str) -> None:
        """Make the queue and its dead-letter queue; one that is there stays as it is."""

    def send(self, messages: Sequence[Outgoing]) -> list[int]:
        """Send them, of one sender in order; the positions of those that were not taken and may be sent again.

        Where some will never be taken it raises PermanentError and has sent none, or PartlySentError, which names them.
        """

    def receive(self, queue: str, at_most: int, visibility_s: float) -> list[Received]:
        """Messages nobody else has in flight; they are hidden from others for this long."""

    def delete(self, queue: str, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Delete messages in flight; the receipts that were good no longer, whose messages may come again."""

    def change_visibility(self, queue: str, receipts: Sequence[Receipt], seconds: float) -> None:
        """Hide messages in flight for this long; 0 gives them back. Others are left unchanged."""

    def give_back(self, queue: str, receipts: Sequence[Receipt]) -> None:
        """Give messages in flight back untried; a queue that can takes the receive back, too."""

    def depth(self, queue: str) -> Depth:
        """How many messages wait and are in flight."""

    def depths(self) -> Mapping[str, Depth]:
        """The depth of every queue that holds messages, dead-letter queues included."""

    def ready(self) -> Sequence[str]:
        """The queues with messages to be received, dead-letter queues included; the longest waiting first, if known."""

    def close(self) -> None:
        """Close every connection."""


class ConsumptionSwitch(Protocol):
    """Stops and starts the consumption of a queue; stopping what is stopped and starting what runs changes nothing."""

    def stop(self, queue: str) -> None:
        """Let nothing be received from the queue."""

    def start(self, queue: str) -> None:
        """Let the queue be consumed again, from where it stopped."""
