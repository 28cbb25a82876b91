"""The topics and subscriptions of a Google Cloud project, and messages into them."""

from collections.abc import Iterator, Mapping, Sequence
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
from google.pubsub_v1.types import ExpirationPolicy, PublishRequest, PubsubMessage
from google.pubsub_v1.types import Subscription as WantedSubscription
from google.pubsub_v1.types import Topic as WantedTopic

from leanops.domain.errors import PermanentError, SourceUnavailableError
from leanops.domain.groups import in_groups
from leanops.ports.source import ACK_DEADLINE_S, OUR_LABEL, RETENTION_S, ListedTopic, Subscription

CALL_S = 30.0
PAGE = 1_000
MESSAGES_PER_CALL = 1_000
BYTES_PER_CALL = 8_000_000
"""Pub/Sub takes 10 MB."""
NO_TEXT = {"empty": "true"}
"""Pub/Sub takes no message that has neither text nor attributes."""
_Message, _Publish = PubsubMessage.pb(), PublishRequest.pb()


class PubSubTopics:
    """The TopicListing port on Pub/Sub, or on its emulator where PUBSUB_EMULATOR_HOST is set."""

    def __init__(self, project: str, *, patience_s: float = 20.0) -> None:
        self.project = project
        with _answering(project):
            self._publisher: Any = PublisherClient()
            self._subscriber: Any = SubscriberClient()
        self._call = {"retry": Retry(predicate=if_transient_error, timeout=patience_s), "timeout": CALL_S}

    def topics(self) -> list[ListedTopic]:
        """Page by page."""
        request = {"project": f"projects/{self.project}", "page_size": PAGE}
        with _answering(self.project):
            topics = [
                ListedTopic(_id(topic.name), dict(topic.labels))
                for topic in self._publisher.list_topics(request=request, **self._call)
            ]
        return sorted(topics, key=lambda topic: topic.name)

    def subscriptions(self) -> Mapping[str, Subscription]:
        """Page by page."""
        request = {"project": f"projects/{self.project}", "page_size": PAGE}
        with _answering(self.project):
            return {
                _id(listed.name): Subscription(
                    _id(listed.topic) if listed.topic.startswith(self._topic("")) else None,
                    OUR_LABEL in listed.labels.items(),
                )
                for listed in self._subscriber.list_subscriptions(request=request, **self._call)
            }

    def create(self, topic: str, label: tuple[str, str]) -> None:
        """Create a topic with this label; an existing topic is left unchanged."""
        wanted = WantedTopic(name=self._topic(topic), labels=dict([label]))
        with _answering(self.project), suppress(AlreadyExists):
            self._publisher.create_topic(request=wanted, **self._call)

    def publish(self, topic: str, texts: Sequence[bytes]) -> list[str]:
        """The ids that Pub/Sub gave to the messages, in their order."""
        ids: list[str] = []
        for some in in_groups(texts, len, most=MESSAGES_PER_CALL, most_bytes=BYTES_PER_CALL):
            messages = [_Message(data=text, attributes=None if text else NO_TEXT) for text in some]
            request = PublishRequest.wrap(_Publish(topic=self._topic(topic), messages=messages))
            with _answering(self.project):
                # Never retried: if only the answer was lost, a retry would publish messages whose ids nobody knows.
                ids += self._publisher.publish(request=request, retry=None, timeout=CALL_S).message_ids
        return ids

    def subscribe(self, topic: str, subscription: str) -> None:
        """One call."""
        wanted = WantedSubscription(
            name=self._subscription(subscription),
            topic=self._topic(topic),
            ack_deadline_seconds=ACK_DEADLINE_S,
            message_retention_duration=timedelta(seconds=RETENTION_S),
            # It cannot be changed later, and costs nothing where messages have no ordering key.
            enable_message_ordering=True,
            # Without a policy Pub/Sub deletes a subscription that nobody reads for 31 days, with all it holds.
            expiration_policy=ExpirationPolicy(),
            labels=dict([OUR_LABEL]),
        )
        with _answering(self.project), suppress(AlreadyExists):
            self._subscriber.create_subscription(request=wanted, **self._call)

    def unsubscribe(self, subscription: str) -> None:
        """Delete a subscription with all it holds, if it exists."""
        request = {"subscription": self._subscription(subscription)}
        with _answering(self.project), suppress(NotFound):
            self._subscriber.delete_subscription(request=request, **self._call)

    def close(self) -> None:
        """Close the connections."""
        self._publisher.transport.close()
        self._subscriber.transport.close()

    def _topic(self, topic: str) -> str:
        return f"projects/{self.project}/topics/{topic}"

    def _subscription(self, subscription: str) -> str:
        return f"projects/{self.project}/subscriptions/{subscription}"


@contextmanager
def _answering(project: str) -> Iterator[None]:
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
