"""Dead letters as people look at them: the bytes of one, and whether a topic has any."""

from dataclasses import dataclass
from typing import Any

from leanops.domain.event.names import check_topic
from leanops.ports.files import Files
from leanops.views.sources import Sources


@dataclass(frozen=True)
class Archived:
    """The event of a dead letter as it was received; what is not UTF-8 is written in escapes."""

    text: str
    bytes: int


def archived(files: Files, error: dict[str, Any]) -> Archived | None:
    """The bytes of a dead letter, or None where the file is gone."""
    body = files.get(str(error["source"]))
    return None if body is None else Archived(body.decode("utf-8", "backslashreplace"), len(body))


def has_dead_letters(sources: Sources, topic: str) -> bool:
    """Whether a topic, registered or not, has dead letters."""
    where = {"topic_name": check_topic(topic)}
    return bool(sources.catalog.select(sources.databases.dlq_errors, ["error_id"], where))
