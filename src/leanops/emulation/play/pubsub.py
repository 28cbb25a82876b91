"""Events through Pub/Sub: published to the topics of a project, and brought into the home's queues by a bridge."""

import asyncio
import os
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leanops.domain.errors import PermanentError, UsageError
from leanops.emulation.events.generator import Message
from leanops.runtimes.bridge import at_home, bridge_of, pubsub, subscriptions_of
from leanops.runtimes.embedded import Embedded
from leanops.settings import load_settings

if TYPE_CHECKING:
    from leanops.adapters.gcp.topics import PubSubTopics

LABEL = ("leanops", "emulation")
"""Marks the topics an emulation may publish to."""


def project() -> str:
    """The project whose topics are used; raises UsageError if the environment does not name one."""
    name = os.environ.get("GOOGLE_CLOUD_PROJECT")
    if not name:
        raise UsageError(
            "no Pub/Sub endpoint; set GOOGLE_CLOUD_PROJECT to a Google project for tests, or to any word and "
            "PUBSUB_EMULATOR_HOST to the address of the emulator"
        )
    try:
        import leanops.adapters.gcp.topics  # noqa: F401 - to fail now if it is missing
    except ModuleNotFoundError as missing:
        raise PermanentError("Pub/Sub needs Google's client; install it with: pip install 'leanops[gcp]'") from missing
    return name


@lru_cache(maxsize=1)
def _publisher(project_id: str) -> "PubSubTopics":
    """The publisher of this process."""
    from leanops.adapters.gcp.topics import PubSubTopics

    return PubSubTopics(project_id)


def publish(topic: str, made: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Publish messages; returns them as they were sent, and the ids that Pub/Sub gave them."""
    project_id = project()
    from leanops.adapters.gcp.topics import NO_TEXT

    ids = _publisher(project_id).publish(topic, [message.text.encode() for message in made])
    without_text = msgspec.json.encode(NO_TEXT).decode()
    return [message if message.text else message._replace(attributes=without_text) for message in made], ids


@contextmanager
def _ours(topics: Collection[str], subscription: str) -> "Iterator[tuple[PubSubTopics, dict[str, str]]]":
    """The project and topic → subscription; raises UsageError if one of them belongs to somebody else."""
    project_id = project()
    from leanops.adapters.gcp.topics import PubSubTopics

    names = {topic: subscription.replace("{topic}", topic) for topic in topics}
    with closing(PubSubTopics(project_id)) as listing:
        for topic in listing.topics():
            if topic.name in names and LABEL not in topic.labels.items():
                raise UsageError(
                    f"topic {topic.name} of project {listing.project} does not belong to an emulation; use a project "
                    "of its own, or the emulator"
                )
        held = listing.subscriptions()
        for name in names.values():
            if name in held and not held[name].is_ours:
                raise UsageError(
                    f"subscription {name} of project {listing.project} does not belong to a bridge; use another project"
                )
        yield listing, names


def check(topics: Collection[str]) -> None:
    """Raise UsageError if a topic or its subscription belongs to somebody else; nothing is created."""
    with _ours(topics, load_settings(None).bridge.subscription):
        pass


def prepare(topics: Collection[str], subscription: str) -> None:
    """Create every topic with an empty subscription; what an earlier emulation left in one is removed."""
    with _ours(topics, subscription) as (listing, names):
        for topic, name in names.items():
            listing.create(topic, LABEL)
            listing.unsubscribe(name)
            listing.subscribe(topic, name)


def run_bridge(home: str) -> None:
    """Run a bridge into the queues of a home until SIGTERM."""
    with closing(Embedded(Path(home))) as runtime:
        asyncio.run(_bridge(runtime))


async def _bridge(runtime: Embedded) -> None:
    stopping, side, source = asyncio.Event(), at_home(runtime), pubsub()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    def log(event: str, **facts: object) -> None:
        sys.stderr.write(f"{event} {facts}\n")

    try:
        await bridge_of(side, source, subscriptions_of(side, project(), ()), log).run(stopping)
    finally:
        await source.close()
