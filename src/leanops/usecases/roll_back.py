"""The tables of a topic back to where they were: the head moves, or a replace brings back what is no ancestor."""

from dataclasses import replace

from pyspark.sql import functions as F

from leanops.domain.operations import Operation
from leanops.domain.snapshots import has_batch, is_ancestor, valid_watermark
from leanops.domain.tables import STANDARDIZED as STANDARDIZED_TABLE
from leanops.usecases.leases import Lease, check
from leanops.usecases.platform import Platform
from leanops.usecases.topics import pause_topic


def roll_back(platform: Platform, operation: Operation, lease: Lease) -> None:
    """Standardized, and Curated where it has a snapshot that goes with it; what an earlier try did stays."""
    topic, databases = operation.topic, platform.rules.databases
    pause_topic(
        platform, topic, f"rolled back to snapshot {operation.back_to}; to redo it: leanops topics resume {topic}"
    )
    check(platform, lease)
    _roll_back_standardized(platform, operation)
    if operation.curated_back_to is not None:
        schema = platform.schemas.active(topic)
        assert schema is not None
        platform.step("before rollback curated")
        platform.catalog.roll_back(databases.curated_table(schema.table_name), operation.curated_back_to)
        platform.step("after rollback curated")


def _roll_back_standardized(platform: Platform, operation: Operation) -> None:
    name = platform.rules.databases.standardized_table(operation.topic)
    view = platform.catalog.load(name)
    assert view is not None
    assert operation.back_to is not None
    if view.head == operation.back_to or has_batch(view, operation.standardized_batch):
        return
    platform.step("before rollback standardized")
    if is_ancestor(view, operation.back_to):
        platform.catalog.roll_back(name, operation.back_to)
    else:
        _bring_back(platform, operation, name)
    platform.step("after rollback standardized")


def _bring_back(platform: Platform, operation: Operation, name: str) -> None:
    """The table as it was, in one replace commit with the watermark it had then; columns added since stay, empty."""
    view = platform.catalog.load(name)
    assert view is not None
    assert operation.standardized is not None
    mark = valid_watermark(replace(view, head=operation.back_to))
    assert mark is not None
    seq = operation.standardized.batch_seq
    rows = platform.lake().at(name, operation.back_to)
    missing = {column: F.lit(None).cast("string") for column in view.columns if column not in rows.columns}
    rows = rows.withColumns({**missing, "_batch_seq": F.lit(seq).cast("bigint")})
    comments = {column: path for path, column in view.paths.items()}
    definition = replace(STANDARDIZED_TABLE, columns=view.columns, comments=comments)
    summary = replace(mark, batch_id=operation.standardized_batch, batch_seq=seq).summary()
    platform.lake().replace(rows, name, definition, summary)
