"""Who did what, recorded in ops_db.audit_log."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from leanops.domain.table.definitions import OPS
from leanops.usecases.platform import Platform


def record_action(
    platform: Platform,
    action: str,
    topics: Sequence[str],
    details: Mapping[str, Any] | None = None,
) -> None:
    """Append a row for each topic once an action is done; details that are None are left out."""
    if not topics:
        return
    log = platform.rules.databases.ops_table("audit_log")
    platform.catalog.create(log, OPS["audit_log"])
    now = platform.clock()
    given = {name: value for name, value in (details or {}).items() if value is not None}
    rows = [
        {
            "at_ts": now,
            "actor": platform.actor.name,
            "channel": platform.actor.channel,
            "action": action,
            "topic_name": topic,
            "details": json.dumps(given, ensure_ascii=False) if given else None,
        }
        for topic in topics
    ]
    platform.catalog.append(log, rows)
