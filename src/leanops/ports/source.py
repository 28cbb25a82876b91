"""Where events come from: a project's topics, and subscriptions that hand out messages under a lease."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

MAX_IDS = 1_000
"""How many messages one ack, nack or extension may name."""


class Pulled(NamedTuple):
    """A message in flight until its lease ends."""

    ack_id: str
    message_id: str
    publish_time: int
    """Microseconds since 1970."""
    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str


@dataclass(frozen=True)
class PullLimits:
    """What a stream may have outstanding, and how long a message is leased when it comes."""

    lease_s: int
    messages: int = 1_000
    bytes: int = 16 << 20


class Source(Protocol):
    """At least once, and of one ordering key in order. A call that is not answered raises SourceUnavailableError."""

    def pull(self, subscription: str, limits: PullLimits, stopping: asyncio.Event) -> AsyncIterator[Sequence[Pulled]]:
        """Messages as they come, until the stream ends. While nobody asks for the next ones, no more are read.

        The first batch, which may be empty, means that the stream is open.
        Once `stopping` is set, the stream ends in order: messages on their way are still given.
        """

    async def ack(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """These are safe elsewhere; up to MAX_IDS."""

    async def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        """Lease these for `seconds` from now; 0 gives them back to be delivered again. Up to MAX_IDS."""


ACK_DEADLINE_S = 60
RETENTION_S = 7 * 86_400
OUR_LABEL = ("leanops", "bridge")


@dataclass(frozen=True)
class ListedTopic:
    """A topic that is there."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Subscription:
    """A subscription that is there."""

    topic: str | None
    """None where it was deleted or is another project's."""
    is_ours: bool
    """It has OUR_LABEL: someone meant it for the bridge."""


class TopicListing(Protocol):
    """One project. Raises SourceUnavailableError where it does not answer."""

    project: str

    def topics(self) -> list[ListedTopic]:
        """Every topic of the project, by name."""

    def subscriptions(self) -> Mapping[str, Subscription]:
        """Every subscription of the project by its id."""

    def subscribe(self, topic: str, subscription: str) -> None:
        """Create the subscription of this id, ordered, with OUR_LABEL, ACK_DEADLINE_S and RETENTION_S.

        It never expires, however long nobody reads it. One that is there stays as it is.
        """
