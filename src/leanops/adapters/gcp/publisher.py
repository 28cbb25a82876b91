"""Messages into Pub/Sub: topics marked as ours, and as few calls as the messages fit in."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from google.api_core.exceptions import AlreadyExists
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.types import PublishRequest, PubsubMessage
from google.pubsub_v1.types import Topic as Wanted

from leanops.adapters.gcp.topics import CALL_S, answering
from leanops.domain.groups import in_groups

MESSAGES_PER_CALL = 1_000
BYTES_PER_CALL = 8_000_000
"""Pub/Sub takes 10 MB."""
_Message, _Publish = PubsubMessage.pb(), PublishRequest.pb()
NO_TEXT = {"empty": "true"}
"""Pub/Sub takes no message that has neither text nor attributes."""


class PubSubPublisher:
    """Publishes to the topics of a project, or of the emulator where PUBSUB_EMULATOR_HOST is set."""

    def __init__(self, project: str) -> None:
        self.project = project
        with answering(project):
            self._client: Any = PublisherClient()

    def create(self, topic: str, label: tuple[str, str]) -> None:
        """Create a topic with this label; an existing topic is left unchanged."""
        wanted = Wanted(name=self._name(topic), labels=dict([label]))
        with answering(self.project), suppress(AlreadyExists):
            self._client.create_topic(request=wanted, timeout=CALL_S)

    def publish(self, topic: str, texts: Sequence[bytes]) -> list[str]:
        """The ids that Pub/Sub gave to the messages, in their order."""
        ids: list[str] = []
        for some in in_groups(texts, len, most=MESSAGES_PER_CALL, most_bytes=BYTES_PER_CALL):
            messages = [_Message(data=text, attributes=None if text else NO_TEXT) for text in some]
            request = PublishRequest.wrap(_Publish(topic=self._name(topic), messages=messages))
            with answering(self.project):
                # Never retried: if only the answer was lost, a retry would publish messages whose ids nobody knows.
                ids += self._client.publish(request=request, retry=None, timeout=CALL_S).message_ids
        return ids

    def close(self) -> None:
        """Close the connection."""
        self._client.transport.close()

    def _name(self, topic: str) -> str:
        return f"projects/{self.project}/topics/{topic}"
