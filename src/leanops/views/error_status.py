"""The current status of quarantined rows: derived from the tables, so that no crash leaves it wrong."""

from collections.abc import Iterator
from dataclasses import dataclass

from leanops.domain.failures import Status
from leanops.domain.table.batch import CURATED, STANDARDIZED
from leanops.domain.table.history import valid_watermark
from leanops.ports.query import quoted
from leanops.views.sources import Sources
from leanops.views.topics import curated_name

RESOLVED = "RESOLVED"
"""Its message, or a newer version of its key, is in the table it was kept out of."""
SUPERSEDED = "SUPERSEDED"
"""A newer version of its key replaced it, and is not in that table either."""
UNSETTLED = (Status.OPEN.value, Status.REPLAYED.value)
"""Stored statuses that the tables may have overtaken."""


@dataclass(frozen=True)
class Settled:
    """A row that needs no more attention."""

    error_id: str
    stored: str
    status: str


def settled(sources: Sources, layer: str, topic: str) -> Iterator[Settled]:
    """The rows of a topic's error table that are resolved or superseded now; reads the topic's tables once."""
    standardized = sources.catalog.load(sources.databases.standardized_table(topic))
    if layer not in (STANDARDIZED, CURATED) or standardized is None:
        return
    statement, values = _statement(sources, layer, topic, quoted(standardized.name)), [topic]
    if layer == CURATED:
        newest = valid_watermark(standardized)
        values.append(newest.batch_id if newest else "")
    for error_id, stored, status in sources.query.ask(statement, values).rows:
        yield Settled(error_id, stored, status)


def _statement(sources: Sources, layer: str, topic: str, standardized: str) -> str:
    databases = sources.databases
    if layer == STANDARDIZED:
        return _PARSE_ERRORS.format(quoted(databases.parse_errors), standardized)
    table_name = curated_name(sources, topic)
    name = databases.curated_table(table_name) if table_name else None
    curated = _CURATED.format(quoted(name)) if name and sources.catalog.load(name) else _NOTHING
    return _ERRORS.format(quoted(databases.errors), standardized, curated)


_CURATED = "SELECT 'key:' || idempotency_key AS record_key, message_id, publish_time, ingestion_ts FROM {0}"
_NOTHING = "SELECT record_key, message_id, publish_time, ingestion_ts FROM e WHERE false"
# The tables are read once; only rows related to an error are kept.
_NEAR = "record_key IN (SELECT record_key FROM e) OR message_id IN (SELECT message_id FROM e)"
_OPEN = f"""
WITH e AS (SELECT error_id, message_id, record_key, publish_time, ingestion_ts, batch_id, status
           FROM {{0}} WHERE topic_name = ? AND status IN ('{UNSETTLED[0]}', '{UNSETTLED[1]}')),
     s AS MATERIALIZED (
       SELECT record_key, message_id, publish_time, ingestion_ts, _batch_id FROM {{1}} WHERE {_NEAR})"""

# An error row does not hold its version. But it was once the newest of its key, so the newest now is newer,
# unless it was there before: written by an earlier batch, and arrived earlier. Then a rollback restored it.
_ERRORS = f"""{_OPEN},
     c AS MATERIALIZED (SELECT * FROM ({{2}}) WHERE {_NEAR}),
     judged AS (
       SELECT e.error_id, e.status AS stored, CASE
         WHEN e.message_id IN (SELECT message_id FROM c) THEN '{RESOLVED}'
         WHEN e.message_id IN (SELECT message_id FROM s) THEN NULL
         WHEN now.message_id IS NULL THEN CASE WHEN e.batch_id < ? THEN '{SUPERSEDED}' END
         WHEN now._batch_id < e.batch_id AND
              (now.ingestion_ts, now.publish_time, now.message_id)
              < (e.ingestion_ts, e.publish_time, e.message_id) THEN NULL
         WHEN good.message_id IS NULL THEN '{SUPERSEDED}'
         WHEN good.message_id = now.message_id
           OR (good.ingestion_ts, good.publish_time, good.message_id)
              > (e.ingestion_ts, e.publish_time, e.message_id) THEN '{RESOLVED}'
         ELSE '{SUPERSEDED}' END AS status
       FROM e LEFT JOIN s now USING (record_key) LEFT JOIN c good USING (record_key))
SELECT error_id, stored, status FROM judged WHERE status IS NOT NULL
"""
# A message with a parse error was never the newest of its key: what came later need not be newer.
_PARSE_ERRORS = f"""{_OPEN},
     judged AS (
       SELECT e.error_id, e.status AS stored, CASE
         WHEN e.message_id IN (SELECT message_id FROM s) THEN '{RESOLVED}'
         WHEN now.message_id IS NULL THEN NULL
         WHEN (now.publish_time, now.message_id) > (e.publish_time, e.message_id) THEN '{SUPERSEDED}' END AS status
       FROM e LEFT JOIN s now USING (record_key))
SELECT error_id, stored, status FROM judged WHERE status IS NOT NULL
"""
