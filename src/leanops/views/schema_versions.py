"""The schema versions of a topic, as they were recorded."""

from typing import Any

from leanops.views.sources import Sources

COLUMNS = ("version", "activated_ts", "actor", "classification", "fingerprint")


def schema_versions(sources: Sources, topic: str) -> list[dict[str, Any]]:
    """Every version that was activated, oldest first, and which is active now."""
    table = sources.databases.ops_table("schema_versions")
    active = sources.schemas.active(topic)
    rows = sources.catalog.select(table, COLUMNS, f"topic_name = '{topic}'")
    return [
        {**row, "active": active is not None and row["version"] == active.version}
        for row in sorted(rows, key=lambda row: int(row["version"]))
    ]
