"""A topic in detail: its tables, and what they hold."""

from dataclasses import asdict, dataclass
from typing import Any

from leanops.domain.errors import LeanOpsError
from leanops.domain.tables import CURATED_SYSTEM_COLUMNS, RAW, STANDARDIZED_SYSTEM_COLUMNS
from leanops.views.sources import Sources


@dataclass(frozen=True)
class TopicTable:
    """One table of a topic."""

    layer: str
    name: str
    exists: bool
    payload_columns: int
    snapshots: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def tables_of(sources: Sources, topic: str) -> list[TopicTable]:
    """The tables a topic has or will have, in the order data moves."""
    databases = sources.databases
    system = {"raw": tuple(RAW.columns), "standardized": STANDARDIZED_SYSTEM_COLUMNS, "curated": CURATED_SYSTEM_COLUMNS}
    names = {"raw": databases.raw_table(topic), "standardized": databases.standardized_table(topic)}
    table_name = curated_name(sources, topic)
    if table_name:
        names["curated"] = databases.curated_table(table_name)
    found = []
    for layer, name in names.items():
        table = sources.catalog.load(name)
        columns = len(set(table.columns) - set(system[layer])) if table else 0
        found.append(TopicTable(layer, name, table is not None, columns, len(table.snapshots) if table else 0))
    return found


def curated_name(sources: Sources, topic: str) -> str | None:
    """The table name of the active schema, if there is a usable one."""
    try:
        schema = sources.schemas.active(topic)
    except LeanOpsError:
        return None
    return schema.table_name if schema else None
