"""Events through Pub/Sub: published to topics of a project, and brought into the home's queues by a bridge."""

import asyncio
import os
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leanops.domain.errors import PermanentError, UsageError
from leanops.emulation.events.generator import Message
from leanops.emulation.play.homes import BRIDGE_LOG
from leanops.emulation.play.parent import when_gone
from leanops.runtimes.bridge import at_home, bridge_of, pubsub, subscriptions_of
from leanops.runtimes.embedded import Embedded

if TYPE_CHECKING:
    from leanops.adapters.gcp.publisher import PubSubPublisher
    from leanops.adapters.gcp.topics import PubSubTopics

LABEL = ("leanops", "emulation")
"""Marks the topics an emulation may publish to."""


def project() -> str:
    """The project whose topics are used; raises where the environment names no endpoint."""
    found = os.environ.get("GOOGLE_CLOUD_PROJECT")
    if not found:
        raise UsageError(
            "no Pub/Sub endpoint; set GOOGLE_CLOUD_PROJECT to a Google project that is there for tests, or to any word "
            "and PUBSUB_EMULATOR_HOST to the address of the emulator"
        )
    try:
        import leanops.adapters.gcp.publisher  # noqa: F401 - to say now what is missing
    except ModuleNotFoundError as missing:
        raise PermanentError("Pub/Sub needs Google's client; install it with: pip install 'leanops[gcp]'") from missing
    return found


@lru_cache(maxsize=1)
def _publisher(of: str) -> "PubSubPublisher":
    """The publisher of this process."""
    from leanops.adapters.gcp.publisher import PubSubPublisher

    return PubSubPublisher(of)


def publish(topic: str, made: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Messages to the topic; as they were sent, and the ids that Pub/Sub gave them."""
    from leanops.adapters.gcp.publisher import NO_TEXT

    ids = _publisher(project()).publish(topic, [one.text.encode() for one in made])
    without_text = msgspec.json.encode(NO_TEXT).decode()
    return [one if one.text else one._replace(attributes=without_text) for one in made], ids


@contextmanager
def _ours(topics: Collection[str], subscription: str) -> "Iterator[tuple[PubSubTopics, dict[str, str]]]":
    """The project and topic → subscription, none of which is somebody else's; raises UsageError where one is."""
    from leanops.adapters.gcp.topics import PubSubTopics

    listing, names = PubSubTopics(project()), {topic: subscription.replace("{topic}", topic) for topic in topics}
    try:
        for topic in listing.topics():
            if topic.name in names and LABEL not in topic.labels.items():
                raise UsageError(
                    f"topic {topic.name} of project {listing.project} is no emulation's; use a project of its own, or "
                    "the emulator"
                )
        held = listing.subscriptions()
        for name in names.values():
            if name in held and not held[name].is_ours:
                raise UsageError(
                    f"subscription {name} of project {listing.project} is no bridge's; use another project"
                )
        yield listing, names
    finally:
        listing.close()


def check(topics: Collection[str], subscription: str) -> None:
    """Raise UsageError where a topic or its subscription is somebody else's."""
    with _ours(topics, subscription):
        pass


def prepare(topics: Collection[str], subscription: str) -> None:
    """A topic and an empty subscription for each; what an earlier emulation left in one is gone."""
    with _ours(topics, subscription) as (listing, names):
        for topic, name in names.items():
            _publisher(listing.project).create(topic, LABEL)
            listing.unsubscribe(name)
            listing.subscribe(topic, name)


def run_bridge(home: Path, of: str) -> None:
    """The bridge, until it is told to stop or the emulation is gone."""
    # A terminal sends Ctrl-C to every process; the emulation decides when the bridge ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    runtime = Embedded(home)
    try:
        asyncio.run(_bridged(runtime, of))
    finally:
        runtime.close()


async def _bridged(runtime: Embedded, of: str) -> None:
    loop, stopping, side = asyncio.get_running_loop(), asyncio.Event(), at_home(runtime)
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    when_gone(lambda: loop.call_soon_threadsafe(stopping.set))
    source = pubsub()
    with (runtime.home / BRIDGE_LOG).open("a", encoding="utf-8") as log:

        def tell(event: str, **facts: object) -> None:
            log.write(f"{event} {facts}\n")
            log.flush()

        try:
            await bridge_of(side, source, subscriptions_of(side, of, ()), tell).run(stopping)
        finally:
            await source.close()
