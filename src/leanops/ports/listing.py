"""The topics of a project as their publisher's side lists them, and their subscriptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

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
