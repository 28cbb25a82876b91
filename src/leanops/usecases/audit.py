"""Who did what, written to ops_db.audit_log, by the command line or a page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leanops.domain.table.definitions import OPS
from leanops.usecases.platform import Platform


@dataclass(frozen=True)
class Actor:
    """A person or a program, and the way it came."""

    name: str
    channel: str = "cli"


def record_action(
    platform: Platform,
    actor: Actor,
    action: str,
    topics: Sequence[str],
    details: Mapping[str, Any] | None = None,
) -> None:
    """One row per topic in one append; called once the action is done."""
    log = platform.rules.databases.ops_table("audit_log")
    platform.catalog.create(log, OPS["audit_log"])
    now = platform.clock()
    said = json.dumps(details, ensure_ascii=False) if details else None
    rows = [
        {
            "at_ts": now,
            "actor": actor.name,
            "channel": actor.channel,
            "action": action,
            "topic_name": topic,
            "details": said,
        }
        for topic in topics
    ]
    platform.catalog.append(log, rows)
