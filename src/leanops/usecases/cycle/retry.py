"""A topic that failed or was parked is tried again."""

from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.usecases.attempts import forget_failures
from leanops.usecases.audit import record_action
from leanops.usecases.leases import hold_topic
from leanops.usecases.operations.start import settle
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import Topic, find_topic


def retry_topic(platform: Platform, topic: str, *, accept_counts: bool = False) -> Topic:
    """Forget earlier failures and batches that were started and never committed: the next cycle starts others.

    With `accept_counts` a batch that is committed with other rows than were counted is taken as it is.
    """
    registered = find_topic(platform, topic)
    with hold_topic(platform, topic) as held:
        settle(held, platform.schemas.active(topic), accept_counts=accept_counts)
        for layer in (STANDARDIZED, CURATED):
            forget_failures(platform, topic, layer)
    record_action(platform, "topics retry", [topic], {"reason": "counts accepted" if accept_counts else None})
    return registered
