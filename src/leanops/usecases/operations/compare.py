"""Compares the new Curated with the live one before it replaces it."""

from leanops.domain.table.comparison import Comparison
from leanops.ports.engine import Curations, TableAt
from leanops.usecases.journal import schema_of_version
from leanops.usecases.operations.shadow import Shadow


def compare(shadow: Shadow) -> Comparison:
    """Counts and a checksum of both tables, and why keys leave the live one."""
    view, snapshot = shadow.source()
    live = shadow.operation.curated
    return shadow.platform.engine().compare(
        Curations(
            topic=shadow.operation.topic,
            new=shadow.built(shadow.curated),
            live=TableAt(shadow.live_curated, live.snapshot if live else None),
            standardized=TableAt(view.name, snapshot),
            raw=shadow.raw_rows(),
            errors=shadow.built(shadow.errors),
            parse_errors=shadow.built(shadow.parse_errors),
            same_keys=_names_keys_alike(shadow),
        )
    )


def _names_keys_alike(shadow: Shadow) -> bool:
    """Whether an event has the key it had before, though it may have another version or period."""
    if shadow.operation.previous is None or shadow.is_resealed:
        return False
    before = schema_of_version(shadow.platform, shadow.operation.topic, shadow.operation.previous).keys
    return (before.idempotency_key, before.pii) == (shadow.schema.keys.idempotency_key, shadow.schema.keys.pii)
