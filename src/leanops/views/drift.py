"""Drift in words: paths that arrived, stopped arriving or changed their kind, and what schemas changed in Curated."""

import json
from datetime import datetime
from typing import Any

from leanops.domain.payload.evolution import ADDED, REMOVED
from leanops.domain.table.batch import CURATED
from leanops.domain.table.definitions import OPS
from leanops.ports.tables import Between
from leanops.views.sources import Sources


def list_drift(sources: Sources, *, topic: str | None, after: datetime) -> list[dict[str, Any]]:
    """The rows of drift_log after a time, newest first."""
    log = sources.databases.ops_table("drift_log")
    where = {"detected_ts": Between(after), **({"topic_name": topic} if topic else {})}
    rows = sources.catalog.select(log, list(OPS["drift_log"].columns), where)
    changes = [{**row, "details": json.loads(row["details"] or "{}")} for row in rows]
    return sorted(changes, key=lambda row: (-row["detected_ts"].timestamp(), row["topic_name"], row["column_name"]))


def sentence(row: dict[str, Any]) -> str:
    """One row in words."""
    name, was, now = row["column_name"], row["old_value"], row["new_value"]
    if row["source_layer"] == CURATED:
        version = f"schema version {row['details'].get('schema_version')}"
        changes = {ADDED: f"{version} adds {name} {now}", REMOVED: f"{version} no longer fills {name} {was}"}
        return changes.get(row["action"], f"{version} changes {name} from {was} to {now}")
    path = row["details"].get("path", name)
    if row["action"] == ADDED:
        return f"{name} is new: {path}{f', {_kinds(now)}' if now else ', not in any event yet'}"
    if row["action"] == REMOVED:
        return f"{name} stopped arriving: {path}, last seen as {_kinds(was)}"
    return f"{name} changed: {path} is now {_kinds(now)}, was {_kinds(was)}"


def _kinds(text: str | None) -> str:
    return " or ".join((text or "nothing").split("|"))
