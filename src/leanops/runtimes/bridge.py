"""The bridge of the embedded runtime: Pub/Sub into the queue of a home."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leanops.domain.errors import PermanentError, UsageError
from leanops.domain.topics import check_topic
from leanops.ports.source import Source
from leanops.runtimes.embedded import Embedded
from leanops.usecases.bridge import Bridge
from leanops.usecases.bridge_hand import BridgeRules, Tell
from leanops.usecases.bridge_send import Target
from leanops.usecases.topics import find_topic, list_topics

if TYPE_CHECKING:
    from leanops.adapters.gcp.subscriber import PubSub


def pubsub() -> "PubSub":
    """Pub/Sub, or its emulator where PUBSUB_EMULATOR_HOST names one."""
    try:
        from leanops.adapters.gcp.subscriber import PubSub
    except ModuleNotFoundError as missing:
        raise PermanentError(
            "the bridge needs Google's client; install it with: pip install 'leanops[gcp]'"
        ) from missing
    return PubSub.from_environment()


def subscriptions_of(runtime: Embedded, project: str, named: Sequence[str]) -> dict[str, str]:
    """The topic of every subscription by its full name: of those named `ID` or `ID=TOPIC`, else of all topics."""
    if named:
        pairs = [(one.partition("=")[0], one.partition("=")[2] or one) for one in named]
    else:
        pattern = runtime.settings.bridge_subscription
        pairs = [(pattern.replace("{topic}", topic.name), topic.name) for topic in list_topics(runtime.platform)]
    if not pairs:
        raise UsageError("no subscriptions: add a topic with leanops topics add TOPIC, or name some by --subscription")
    for subscription, topic in pairs:
        check_topic(subscription)
        find_topic(runtime.platform, topic)
    return {f"projects/{project}/subscriptions/{subscription}": topic for subscription, topic in pairs}


def bridge_of(runtime: Embedded, source: Source, subscriptions: dict[str, str], tell: Tell) -> Bridge:
    """A bridge of this home, not yet running; it has to be made where its event loop runs."""
    settings, platform = runtime.settings, runtime.platform
    rules = BridgeRules(
        messages=settings.bridge_messages,
        bytes=settings.bridge_mb * 1_000_000,
        lease_s=settings.bridge_lease_s,
        hold_s=settings.bridge_hold_s,
        drain_s=settings.bridge_drain_s,
    )
    target = Target(runtime.queue, runtime.files, platform.clock, settings.events_per_message)
    return Bridge(source, target, subscriptions, rules, tell)
