"""The topics of a project as their publisher's side lists them, and their subscriptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

ACK_DEADLINE_S = 60
RETENTION_S = 7 * 86_400


@dataclass(frozen=True)
class ListedTopic:
    """A topic that is there."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


class TopicListing(Protocol):
    """One project. Raises SourceUnavailableError where it does not answer."""

    project: str

    def topics(self) -> list[ListedTopic]:
        """Every topic of the project, by name."""

    def subscriptions(self) -> Mapping[str, str | None]:
        """Every subscription of the project → its topic; None where that was deleted or is another project's."""

    def subscribe(self, topic: str) -> None:
        """Create the subscription that is called like the topic: unordered, ACK_DEADLINE_S and RETENTION_S.

        One that is there stays as it is.
        """
