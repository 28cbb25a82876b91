"""The topics and subscriptions of a Google Cloud project."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from google.api_core.exceptions import (
    AlreadyExists,
    GoogleAPICallError,
    NotFound,
    RetryError,
    ServerError,
    TooManyRequests,
)
from google.api_core.retry import Retry, if_transient_error
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.types import ExpirationPolicy
from google.pubsub_v1.types import Subscription as Wanted

from leanops.domain.errors import PermanentError, SourceUnavailableError
from leanops.ports.source import ACK_DEADLINE_S, OUR_LABEL, RETENTION_S, ListedTopic, Subscription

CALL_S = 30.0
PAGE = 1_000


class PubSubTopics:
    """The TopicListing port on Pub/Sub, or on its emulator where PUBSUB_EMULATOR_HOST is set."""

    def __init__(self, project: str, *, patience_s: float = 20.0) -> None:
        self.project = project
        with answering(self.project):
            self._publisher: Any = PublisherClient()
            self._subscriber: Any = SubscriberClient()
        self._call = {"retry": Retry(predicate=if_transient_error, timeout=patience_s), "timeout": CALL_S}

    def topics(self) -> list[ListedTopic]:
        """Page by page."""
        request = {"project": f"projects/{self.project}", "page_size": PAGE}
        with answering(self.project):
            found = [
                ListedTopic(_id(topic.name), dict(topic.labels))
                for topic in self._publisher.list_topics(request=request, **self._call)
            ]
        return sorted(found, key=lambda topic: topic.name)

    def subscriptions(self) -> Mapping[str, Subscription]:
        """Page by page."""
        request = {"project": f"projects/{self.project}", "page_size": PAGE}
        ours = f"projects/{self.project}/topics/"
        with answering(self.project):
            return {
                _id(found.name): Subscription(
                    _id(found.topic) if found.topic.startswith(ours) else None, OUR_LABEL in found.labels.items()
                )
                for found in self._subscriber.list_subscriptions(request=request, **self._call)
            }

    def subscribe(self, topic: str, subscription: str) -> None:
        """One call."""
        wanted = Wanted(
            name=f"projects/{self.project}/subscriptions/{subscription}",
            topic=f"projects/{self.project}/topics/{topic}",
            ack_deadline_seconds=ACK_DEADLINE_S,
            message_retention_duration=timedelta(seconds=RETENTION_S),
            # It cannot be changed later, and costs nothing where messages have no ordering key.
            enable_message_ordering=True,
            # Without a policy Pub/Sub deletes a subscription that nobody reads for 31 days, with all it holds.
            expiration_policy=ExpirationPolicy(),
            labels=dict([OUR_LABEL]),
        )
        with answering(self.project), suppress(AlreadyExists):
            self._subscriber.create_subscription(request=wanted, **self._call)

    def unsubscribe(self, subscription: str) -> None:
        """Delete a subscription with all it holds; none is needed."""
        name = f"projects/{self.project}/subscriptions/{subscription}"
        with answering(self.project), suppress(NotFound):
            self._subscriber.delete_subscription(request={"subscription": name}, **self._call)

    def close(self) -> None:
        """Close the connections."""
        self._publisher.transport.close()
        self._subscriber.transport.close()


@contextmanager
def answering(project: str) -> Iterator[None]:
    """One line for whatever Google's clients raise."""
    try:
        yield
    except (ServerError, TooManyRequests, RetryError) as away:
        raise SourceUnavailableError(
            f"Pub/Sub does not answer for project {project} ({type(away).__name__}); check the network, then try again"
        ) from away
    except GoogleAPICallError as refused:
        raise PermanentError(
            f"Pub/Sub refuses project {project} ({type(refused).__name__}); "
            "check its name and what these credentials may do"
        ) from refused
    except GoogleAuthError as unknown:
        raise PermanentError(
            "no Google credentials; name their file in GOOGLE_APPLICATION_CREDENTIALS, then try again"
        ) from unknown


def _id(name: str) -> str:
    return name.rpartition("/")[2]
