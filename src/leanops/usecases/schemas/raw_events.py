"""RAW as a schema would read it, before it is deployed."""

from functools import partial

from leanops.domain.schema.model import Keys
from leanops.domain.table.history import TableView
from leanops.ports.engine import Events, TableAt
from leanops.usecases.platform import Platform, secret_key


def raw_rows(raw: TableView | None) -> int:
    """How many rows RAW has at its head, as its own summary counts them."""
    if raw is None or raw.head is None:
        return 0
    return int(raw.snapshots[raw.head].summary.get("total-records", 0))


def events_of(platform: Platform, topic: str, raw: TableView, keys: Keys, share: float) -> Events:
    """The events of RAW at its head, or about a share of them; the key of HMACs is asked for when they are read."""
    rules = platform.rules
    return Events(
        TableAt(raw.name, raw.head), keys, rules.limits, rules.tables, share, partial(secret_key, platform, topic)
    )
