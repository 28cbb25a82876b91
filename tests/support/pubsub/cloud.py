"""What tests do in Pub/Sub beside the bridge: make subscriptions, publish, and look at what was left."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import grpc
from google.pubsub_v1.types import pubsub

from tests.support.pubsub.emulator import PROJECT

CALL_S = 30
MESSAGES_PER_PUBLISH = 1_000


@dataclass
class Cloud:
    """A corner of the emulator: names of topics and subscriptions begin with a word of their own."""

    address: str
    word: str = field(default_factory=lambda: f"t{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        self._channel = grpc.insecure_channel(self.address, options=[("grpc.max_receive_message_length", -1)])

    def __enter__(self) -> "Cloud":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def subscription(self, name: str, *, ordered: bool = False) -> str:
        """A new topic with a subscription of the same id; gives the id."""
        identity = f"{self.word}-{name}"
        self._call("Publisher/CreateTopic", pubsub.Topic(name=_topic(identity)), pubsub.Topic)
        wanted = pubsub.Subscription(
            name=full_name(identity),
            topic=_topic(identity),
            ack_deadline_seconds=10,
            enable_message_ordering=ordered,
        )
        self._call("Subscriber/CreateSubscription", wanted, pubsub.Subscription)
        return identity

    def publish(self, identity: str, data: Sequence[bytes], key: str = "", **attributes: str) -> list[str]:
        """Publish to the topic of a subscription; the ids of the messages."""
        messages = [pubsub.PubsubMessage(data=one, ordering_key=key, attributes=attributes) for one in data]
        names: list[str] = []
        for start in range(0, len(messages), MESSAGES_PER_PUBLISH):
            some = messages[start : start + MESSAGES_PER_PUBLISH]
            request = pubsub.PublishRequest(topic=_topic(identity), messages=some)
            names += self._call("Publisher/Publish", request, pubsub.PublishResponse).message_ids
        return names

    def left(self, identity: str) -> list[str]:
        """The ids of the messages that the subscription hands out now; they are handed out again at once."""
        name = full_name(identity)
        asked = pubsub.PullRequest(subscription=name, max_messages=1_000, return_immediately=True)
        found = self._call("Subscriber/Pull", asked, pubsub.PullResponse).received_messages
        if found:
            back = pubsub.ModifyAckDeadlineRequest(
                subscription=name, ack_ids=[one.ack_id for one in found], ack_deadline_seconds=0
            )
            self._call("Subscriber/ModifyAckDeadline", back, None)
        return [one.message.message_id for one in found]

    def take(self, identity: str) -> str:
        """The id of a message that the subscription hands out now, and never again."""
        name = full_name(identity)
        asked = pubsub.PullRequest(subscription=name, max_messages=1)
        (found,) = self._call("Subscriber/Pull", asked, pubsub.PullResponse).received_messages
        self._call("Subscriber/Acknowledge", pubsub.AcknowledgeRequest(subscription=name, ack_ids=[found.ack_id]), None)
        return str(found.message.message_id)

    def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            f"/google.pubsub.v1.{method}",
            request_serializer=type(request).serialize,
            response_deserializer=answer.deserialize if answer else bytes,
        )
        return call(request, timeout=CALL_S)


def full_name(identity: str) -> str:
    """A subscription as Pub/Sub names it."""
    return f"projects/{PROJECT}/subscriptions/{identity}"


def _topic(identity: str) -> str:
    return f"projects/{PROJECT}/topics/{identity}"
