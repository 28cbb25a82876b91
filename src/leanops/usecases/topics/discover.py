"""Discovery: the topics of a Pub/Sub project compared with ours; new ones are registered, gone ones are marked."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from leanops.domain.errors import InvalidTopicError, LeanOpsError
from leanops.domain.event.names import check_new_topic, check_topic, queue_name
from leanops.domain.table.definitions import OPS
from leanops.ports.queue import Queue
from leanops.ports.source import OUR_LABEL, ListedTopic, Subscription, TopicListing
from leanops.usecases.audit import record_action
from leanops.usecases.leases import held
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import GONE, READY, Origin, add_topics, labels_text, list_topics

LEASE = "topics/discover"


class Action(StrEnum):
    """What discovery does with a topic."""

    NEW = "new"
    KNOWN = "known"
    REPAIRED = "repaired"
    """Known, and its subscription was missing."""
    BACK = "back"
    GONE = "gone"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Wanted:
    """Which topics of a project are registered."""

    prefix: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def takes(self, topic: ListedTopic) -> bool:
        return topic.name.startswith(self.prefix) and self.labels.items() <= topic.labels.items()


@dataclass(frozen=True)
class Found:
    """One topic and what is done with it."""

    topic: str
    action: Action
    reason: str | None = None


@dataclass(frozen=True)
class _Comparison:
    """A project compared with the registry."""

    project: str
    listed: Mapping[str, ListedTopic]
    wanted: Collection[str]
    rows: Mapping[str, Mapping[str, Any]]
    subscriptions: Mapping[str, Subscription]
    pattern: str

    def subscription_of(self, topic: str) -> str:
        """The id of the topic's subscription, whether or not it exists."""
        return self.pattern.replace("{topic}", topic)


def discover(
    platform: Platform,
    listing: TopicListing,
    queue: Queue,
    wanted: Wanted,
    *,
    subscription: str,
    dry_run: bool = False,
) -> list[Found]:
    """Every topic of the project that is wanted or was registered from it, and what was done, or would be.

    A topic that fails does not stop the others; what a run left undone, the next one does. `subscription` is the id
    of a topic's subscription, as the bridge looks for it.
    """
    if dry_run:
        return _compare(platform, listing, wanted, subscription)[1]
    with held(platform, LEASE):
        seen, planned = _compare(platform, listing, wanted, subscription)
        _add(platform, seen, planned)
        done = [_done(listing, queue, seen, topic) for topic in planned]
        _mark(platform, seen, done)
        _audit(platform, listing.project, done)
    return done


def _audit(platform: Platform, project: str, done: Sequence[Found]) -> None:
    for action in (Action.NEW, Action.REPAIRED, Action.BACK, Action.GONE):
        names = [found.topic for found in done if found.action is action]
        if names:
            record_action(platform, "topics discover", names, {"project": project, "action": action.value})


def tfvars(platform: Platform, discovered: Iterable[Found]) -> bytes:
    """The variables file of the infrastructure: every registered topic, gone or not, and every new one, by name."""
    names = {topic.name for topic in list_topics(platform)}
    names |= {found.topic for found in discovered if found.action is Action.NEW}
    topics = {
        name: {"queue": queue_name(name), "table": platform.rules.databases.raw_table(name).partition(".")[2]}
        for name in sorted(names)
    }
    return json.dumps({"topics": topics}, indent=2).encode() + b"\n"


def _compare(
    platform: Platform, listing: TopicListing, wanted: Wanted, pattern: str
) -> tuple[_Comparison, list[Found]]:
    """The project compared with the registry, and what is to be done with each topic."""
    listed = {topic.name: topic for topic in listing.topics()}
    chosen = {name for name, topic in listed.items() if wanted.takes(topic)}
    registry = platform.rules.databases.ops_table("topic_registry")
    rows = {row["topic_name"]: row for row in platform.catalog.select(registry, list(OPS["topic_registry"].columns))}
    registered = {topic.name for topic in list_topics(platform)}
    seen = _Comparison(listing.project, listed, chosen, rows, listing.subscriptions(), pattern)
    planned: list[Found] = []
    for name in sorted({*listed, *rows}):
        if judged := _judged(name, seen, registered):
            planned.append(_with_subscription(judged, seen))
            if planned[-1].action is Action.NEW:
                registered.add(name)
    return seen, planned


def _judged(name: str, seen: _Comparison, registered: set[str]) -> Found | None:
    """What is to be done with a topic; None if it is neither wanted nor registered from the project."""
    row = seen.rows.get(name, {})
    if name not in seen.listed:
        is_gone = row.get("project") == seen.project and row.get("status") != GONE
        return Found(name, Action.GONE, "no longer in the project; its data stays") if is_gone else None
    if name in registered:
        if row.get("project") not in (None, seen.project):
            elsewhere = f"it is registered from project {row['project']}"
            return Found(name, Action.REFUSED, elsewhere) if name in seen.wanted else None
        if row.get("status") == GONE:
            return Found(name, Action.BACK)
        return Found(name, Action.KNOWN) if name in seen.wanted else None
    if name not in seen.wanted:
        return None
    try:
        check_new_topic(name, registered)
    except InvalidTopicError as wrong:
        return Found(name, Action.REFUSED, str(wrong))
    return Found(name, Action.NEW)


def _with_subscription(found: Found, seen: _Comparison) -> Found:
    """The topic as its subscription allows: a missing one is created, one that is not ours is reported."""
    name = seen.subscription_of(found.topic)
    if found.action in (Action.REFUSED, Action.GONE) or found.topic not in seen.wanted:
        return found
    subscription = seen.subscriptions.get(name)
    if subscription is None:
        return replace(found, action=Action.REPAIRED) if found.action is Action.KNOWN else found
    reason = _trouble(name, subscription, found.topic)
    return Found(found.topic, Action.FAILED, reason) if reason else found


def _trouble(name: str, subscription: Subscription, topic: str) -> str | None:
    """What a person has to do about a subscription before it can be read for the topic."""
    if subscription.topic is None:
        return (
            f"subscription {name} belongs to a deleted topic or to another project's; "
            "let the bridge empty it first, then delete it and discover again"
        )
    if subscription.topic != topic:
        return f"subscription {name} belongs to topic {subscription.topic}; set another subscription in [bridge]"
    if not subscription.is_ours:
        label = "=".join(OUR_LABEL)
        return f"subscription {name} may have another reader; if it is for the bridge, add the label {label} to it"
    return None


def _is_taken_in(found: Found, seen: _Comparison) -> bool:
    return found.action not in (Action.REFUSED, Action.GONE, Action.FAILED) and found.topic in seen.wanted


def _add(platform: Platform, seen: _Comparison, planned: Iterable[Found]) -> None:
    """Register new topics and those half registered; all at once, because a commit for each would take minutes."""
    names = [found.topic for found in planned if _is_taken_in(found, seen) and found.topic not in seen.rows]
    if names:
        add_topics(platform, {name: Origin(seen.project, seen.listed[name].labels) for name in names})


def _done(listing: TopicListing, queue: Queue, seen: _Comparison, found: Found) -> Found:
    """Give a topic its queue and its subscription last: while the subscription is missing, something is left to do."""
    subscription = seen.subscription_of(found.topic)
    if not _is_taken_in(found, seen) or subscription in seen.subscriptions:
        return found
    try:
        queue.create(queue_name(found.topic))
        listing.subscribe(found.topic, check_topic(subscription))
    except LeanOpsError as failure:
        return Found(found.topic, Action.FAILED, str(failure))
    return found


def _mark(platform: Platform, seen: _Comparison, done: Iterable[Found]) -> None:
    """Bring the rows of known topics up to date, in one commit and only where something changed."""
    now, changed = platform.clock(), []
    for found in done:
        row = seen.rows.get(found.topic)
        if row is None or found.action in (Action.NEW, Action.REFUSED, Action.FAILED):
            continue
        labels = labels_text(seen.listed[found.topic].labels) if found.topic in seen.listed else row["labels"]
        status = GONE if found.action is Action.GONE else READY
        after = {**row, "project": seen.project, "labels": labels, "status": status}
        if after != row:
            changed.append({**after, "updated_ts": now})
    if changed:
        registry = platform.rules.databases.ops_table("topic_registry")
        platform.catalog.replace(registry, {"topic_name": [row["topic_name"] for row in changed]}, changed)
