"""The bridge: Pub/Sub into the queue of a home, or into SQS where it runs without one."""

import os
import socket
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leanops.domain.errors import InvalidTopicError, PermanentError, UnknownTopicError, UsageError
from leanops.domain.event.names import check_topic
from leanops.ports.clock import Clock
from leanops.ports.files import Files
from leanops.ports.queue import Queue
from leanops.ports.source import Source
from leanops.ports.state import StateStore
from leanops.settings import Settings
from leanops.usecases.bridge.bridge import Bridge, Look
from leanops.usecases.bridge.inflight import Tell
from leanops.usecases.bridge.target import Target
from leanops.usecases.ingest.known_topics import topic_names

if TYPE_CHECKING:
    from leanops.adapters.gcp.subscriber import PubSub
    from leanops.adapters.gcp.topics import PubSubTopics
    from leanops.runtimes.runtime import Runtime


@dataclass(frozen=True)
class FarSide:
    """What a bridge leads to: queues, a place for claim checks, and the state store that knows the topics."""

    queue: Queue
    files: Files
    state: StateStore
    clock: Clock
    settings: Settings
    owner: str


def at_home(runtime: "Runtime") -> FarSide:
    """The queues of a home."""
    platform = runtime.platform
    return FarSide(runtime.queue, runtime.files, platform.state, platform.clock, runtime.settings, platform.owner)


def on_aws(settings: Settings) -> FarSide:
    """SQS, S3 and DynamoDB; the queues and tables exist already, none is created here."""
    try:
        from leanops.runtimes.aws import Aws
    except ModuleNotFoundError as missing:
        raise PermanentError("a bridge to AWS needs boto3; install it with: pip install 'leanops[aws]'") from missing
    aws = Aws(settings)
    return FarSide(aws.queue, aws.files, aws.state, aws.clock, settings, f"{socket.gethostname()}/{os.getpid()}")


def pubsub() -> "PubSub":
    """Pub/Sub, or its emulator where PUBSUB_EMULATOR_HOST names one."""
    try:
        from leanops.adapters.gcp.subscriber import PubSub
    except ModuleNotFoundError as missing:
        raise PermanentError(
            "the bridge needs Google's client; install it with: pip install 'leanops[gcp]'"
        ) from missing
    return PubSub(os.environ.get("PUBSUB_EMULATOR_HOST"))


def topic_listing(project: str) -> "closing[PubSubTopics]":
    """The topics and subscriptions of a Google project."""
    from leanops.adapters.gcp.topics import PubSubTopics

    return closing(PubSubTopics(project))


def subscriptions_of(side: FarSide, project: str, named: Sequence[str]) -> dict[str, str]:
    """The topic of every subscription by its full name: of those named `ID` or `ID=TOPIC`, else of all topics."""
    known = topic_names(side.state)
    if named:
        pairs = [(pair.partition("=")[0], pair.partition("=")[2] or pair) for pair in named]
    else:
        pattern = side.settings.bridge.subscription
        pairs = [(pattern.replace("{topic}", topic), topic) for topic in known]
    for subscription, topic in pairs:
        _check_subscription(subscription)
        if topic not in known:
            raise UnknownTopicError(topic)
    return {f"projects/{project}/subscriptions/{subscription}": topic for subscription, topic in pairs}


def _check_subscription(subscription: str) -> None:
    """Subscriptions are named by the rules of topics."""
    try:
        check_topic(subscription)
    except InvalidTopicError as wrong:
        reason = str(wrong).replace("topic id", "subscription id")
        raise UsageError(f"{reason}; name it as ID or ID=TOPIC") from None


def bridge_of(
    side: FarSide, source: Source, subscriptions: dict[str, str], tell: Tell, look: Look | None = None
) -> Bridge:
    """A bridge to this side, not yet running; create it where its event loop runs."""
    target = Target(side.queue, side.files, side.state, side.clock, side.settings.bridge.events_per_message)
    return Bridge(source, target, subscriptions, side.settings.bridge, tell, look=look)
