"""Topics: added, paused and resumed; their events keep landing in RAW whatever happens."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from leanops.domain.errors import TopicPausedError, UnknownTopicError
from leanops.domain.event.names import check_new_topic
from leanops.domain.table.definitions import OPS, RAW
from leanops.ports.state import SCHEMA_REGISTRY, Row, Stored
from leanops.usecases.audit import record_action
from leanops.usecases.platform import Platform

READY, PAUSED, ERROR = "READY", "PAUSED", "ERROR"
GONE = "GONE"
"""In topic_registry: no longer in the project where it was discovered."""


@dataclass(frozen=True)
class Topic:
    """A registered topic."""

    name: str
    status: str
    processing_enabled: bool
    schema_version: int | None
    reason: str | None


@dataclass(frozen=True)
class Origin:
    """Where a topic was discovered."""

    project: str
    labels: Mapping[str, str] = field(default_factory=dict)


def labels_text(labels: Mapping[str, str]) -> str | None:
    """Labels as topic_registry holds them."""
    return json.dumps(dict(sorted(labels.items())), ensure_ascii=False) if labels else None


def add_topic(platform: Platform, topic: str, origin: Origin | None = None) -> Topic:
    """Register a topic and create its RAW table; adding it again changes nothing."""
    add_topics(platform, {topic: origin})
    return find_topic(platform, topic)


def register_topics(platform: Platform, topics: Sequence[str]) -> list[str]:
    """Register topics for a person; returns the names of those that were not registered before."""
    known = {topic.name for topic in list_topics(platform)}
    add_topics(platform, dict.fromkeys(topics))
    new = [topic for topic in dict.fromkeys(topics) if topic not in known]
    record_action(platform, "topics add", new)
    return new


def pause_topics(platform: Platform, topics: Sequence[str], reason: str | None) -> None:
    """Stop processing topics for a person; their events keep arriving in RAW."""
    for topic in topics:
        pause_topic(platform, topic, reason)
    record_action(platform, "topics pause", topics, {"reason": reason})


def resume_topics(platform: Platform, topics: Sequence[str], reason: str | None) -> None:
    """Process topics again for a person, from where they stopped."""
    for topic in topics:
        resume_topic(platform, topic)
    record_action(platform, "topics resume", topics, {"reason": reason})


def add_topics(platform: Platform, topics: Mapping[str, Origin | None]) -> None:
    """Register topics and create their RAW tables, or none of them if one of the names is not allowed."""
    known = {topic.name for topic in list_topics(platform)}
    for topic in topics:
        check_new_topic(topic, {*known, *topics})
    for topic in topics:
        platform.catalog.create(platform.rules.databases.raw_table(topic), RAW)
        if topic not in known:
            platform.schemas.make_place(topic)
            row: Row = {"topic_name": topic, "status": READY, "processing_enabled": False}
            platform.state.put(SCHEMA_REGISTRY, {**row, "updated_at": platform.now_ms()}, expected=None)
    _register(platform, topics)


def _register(platform: Platform, topics: Mapping[str, Origin | None]) -> None:
    """Write the topics to topic_registry, each once and all in one commit; after a crash some may be missing there."""
    registry = platform.rules.databases.ops_table("topic_registry")
    platform.catalog.create(registry, OPS["topic_registry"])
    now = platform.clock()
    rows = [
        {
            "topic_name": topic,
            "source_id": topic,
            "project": origin.project if origin else None,
            "labels": labels_text(origin.labels) if origin else None,
            "status": READY,
            "discovered_ts": now,
            "updated_ts": now,
        }
        for topic, origin in topics.items()
    ]

    def missing() -> list[dict[str, Any]]:
        written = {row["topic_name"] for row in platform.catalog.select(registry, ["topic_name"])}
        return [row for row in rows if row["topic_name"] not in written]

    platform.catalog.append_planned(registry, missing)


def list_topics(platform: Platform) -> list[Topic]:
    """Every registered topic, by name."""
    return sorted((_topic(stored.row) for stored in platform.state.rows(SCHEMA_REGISTRY)), key=attrgetter("name"))


def find_topic(platform: Platform, topic: str) -> Topic:
    """One registered topic; raises UnknownTopicError."""
    return _topic(_stored(platform, topic).row)


def check_running(platform: Platform, topic: str) -> None:
    """Raise if a topic is paused: its tables are not replaced or moved meanwhile."""
    registered = find_topic(platform, topic)
    if registered.status == PAUSED:
        raise TopicPausedError(topic, registered.reason)


def pause_topic(platform: Platform, topic: str, reason: str | None, guard: Callable[[], None] = lambda: None) -> Topic:
    """Stop processing a topic; its events keep arriving in RAW. The guard may refuse it after the topic is read."""
    stored = _stored(platform, topic)
    guard()
    return _change(platform, stored, status=PAUSED, reason=reason)


def resume_topic(platform: Platform, topic: str) -> Topic:
    """Process a topic again, from where it stopped."""
    return _change(platform, _stored(platform, topic), status=READY, reason=None)


def undo_pause(platform: Platform, topic: str, reason: str) -> None:
    """Process a topic again if it was paused for this reason; a pause that is about to be written is refused."""
    stored = _stored(platform, topic)
    is_ours = stored.row["status"] == PAUSED and stored.row["reason"] == reason
    _change(platform, stored, **({"status": READY, "reason": None} if is_ours else {}))


def enable_topic(platform: Platform, topic: str, schema_version: int) -> Topic:
    """Let cycles process a topic under this schema version; the error of an earlier file is cleared."""
    stored = _stored(platform, topic)
    forget = {"status": READY, "reason": None} if stored.row["status"] == ERROR else {}
    return _change(platform, stored, processing_enabled=True, schema_version=schema_version, **forget)


def _change(platform: Platform, stored: Stored, **changes: str | int | bool | None) -> Topic:
    row: Row = {**stored.row, **changes, "updated_at": platform.now_ms()}
    platform.state.put(SCHEMA_REGISTRY, row, expected=stored.revision)
    return _topic(row)


def _stored(platform: Platform, topic: str) -> Stored:
    # A variable of the shell that is not set makes an empty name, which is not even a key.
    stored = platform.state.get(SCHEMA_REGISTRY, (topic,)) if topic else None
    if stored is None:
        raise UnknownTopicError(topic)
    return stored


def _topic(row: Row) -> Topic:
    version, reason = row["schema_version"], row["reason"]
    return Topic(
        name=str(row["topic_name"]),
        status=str(row["status"]),
        processing_enabled=bool(row["processing_enabled"]),
        schema_version=int(version) if version is not None else None,
        reason=str(reason) if reason is not None else None,
    )
