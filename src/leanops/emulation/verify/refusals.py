"""The error tables: exactly the refused messages, each with all that its row must hold."""

import json
from collections.abc import Sequence

import pyarrow as pa

from leanops.emulation import ledger
from leanops.emulation.verify.boundaries import Run
from leanops.emulation.verify.fates import Fates
from leanops.emulation.verify.layers import SCHEMA_VERSION
from leanops.emulation.verify.tables import Check, identifier, text

DEAD, UNPARSED, REFUSED = "found_dead", "found_unparsed", "found_refused"
"""The rows of a topic in the three error tables."""
_UNPARSED = """
SELECT message_id, [rule] AS rules, sent_us, first_ms, batch FROM message JOIN (
    SELECT message_id, batch, min(ingestion_ms) AS first_ms FROM raw WHERE batch IS NOT NULL
    GROUP BY message_id, batch QUALIFY row_number() OVER (PARTITION BY message_id ORDER BY batch) = 1
) USING (message_id) WHERE rule IS NOT NULL
"""
_REFUSED = """
SELECT e.message_id, e.failures AS rules, sent_us, first_ms, batch, e.record_key
FROM error_row e JOIN message USING (message_id)
"""
_RULES = "list_sort([x.rule || coalesce(' ' || x.\"column\", '') FOR x IN failures])"


class Refusals:
    """The error rows of one topic."""

    def __init__(self, fates: Fates) -> None:
        self.fates, names = fates, fates.names
        self.tables = {DEAD: names.dlq_errors, UNPARSED: names.parse_errors, REFUSED: names.errors}
        for name, table in self.tables.items():
            fates.load(name, table, fates.topic)

    def dead(self) -> Check:
        """Messages that cannot land have a row, and their text is in the archive."""
        self._open_archive()
        expected = "SELECT message_id, [m.rule] AS rules, sent_us, content, NULL AS first_ms, NULL AS record_key "
        expected += "FROM message m JOIN sent USING (message_id) WHERE m.is_dead"
        differs = self._common("dlq") | {
            "its archived text": "f.archived IS DISTINCT FROM e.content",
            # The publish time of a message that never landed is unknown if it came through Pub/Sub.
            "its publish_time": f"e.sent_us IS NOT NULL AND ({_PUBLISHED})",
            "its schema_version": "f.schema_version IS NOT NULL",
        }
        found = f"SELECT * FROM ({_once(DEAD)}) LEFT JOIN archive USING (source)"
        return self.fates.compare("dead letters", expected, found, "message_id", differs)

    def unparsed(self) -> Check:
        """Texts that are not events have a row once they have been read."""
        expected = f"SELECT *, NULL AS record_key FROM ({_UNPARSED})"
        return self._in_batch("parse errors", "standardized", expected, UNPARSED, self.fates.boundaries.standardized)

    def quarantined(self) -> Check:
        """Invalid versions have a row, with every rule they break."""
        return self._in_batch("quarantined rows", "curated", _REFUSED, REFUSED, self.fates.boundaries.curated)

    def _in_batch(self, name: str, layer: str, expected: str, table: str, runs: Sequence[Run]) -> Check:
        """Rows that a batch has written, of messages in RAW."""
        raw = self.fates.names.raw_table(self.fates.topic)
        day = "strftime(make_timestamp(e.sent_us), '%Y-%m-%d')"
        ids = f"MAP {{{', '.join(f'{run.number}: {text(run.batch_id)}' for run in runs)}}}" if runs else "MAP {}"
        differs = self._common(layer) | {
            "its publish_time": _PUBLISHED,
            "its source": f"f.source IS DISTINCT FROM {text(f'{raw}/publish_time_day=')} || {day}",
            "its batch_id": f"f.batch_id IS DISTINCT FROM ({ids})[e.batch]",
            "its schema_version": f"f.schema_version IS DISTINCT FROM {SCHEMA_VERSION}",
        }
        return self.fates.compare(name, expected, _once(table), "message_id", differs)

    def _common(self, layer: str) -> dict[str, str]:
        """What every error row must hold."""
        leaves = [leaf for leaf in self.fates.profile.leaves if leaf.type]
        paths = ", ".join(f"{text(leaf.column)}: {text(leaf.canonical)}" for leaf in leaves)
        begin = text(f"{layer}\n{self.fates.topic}\n")
        return {
            "its rules": "list_sort(e.rules) IS DISTINCT FROM f.rules",
            "the number of its rows": "f.rows <> 1",
            "its error_id": f"f.error_id IS DISTINCT FROM sha256({begin} || f.message_id)[:32]",
            "its layer": f"f.layer IS DISTINCT FROM {text(layer)}",
            "its record_key": "f.record_key IS DISTINCT FROM e.record_key",
            "its ingestion_ts": "f.ingestion_ts IS DISTINCT FROM e.first_ms",
            "its status": "f.status IS DISTINCT FROM 'OPEN'",
            "its detected_ts": "f.detected_ts IS NULL",
            "its paths": "len(list_filter(f.failures, lambda x: "
            f'x.path IS DISTINCT FROM (MAP {{{paths}}})[x."column"])) > 0',
        }

    def _open_archive(self) -> None:
        """Load the contents of the files that dead letters name, hashed as in the ledger."""
        sources = [source for (source,) in self.fates.rows(f"SELECT DISTINCT source FROM {DEAD} WHERE source <> ''")]
        contents = [_content(self.fates.runtime.files.get(source)) for source in sources]
        columns = {"source": pa.array(sources, pa.string()), "archived": pa.array(contents, pa.string())}
        self.fates.register("archive", pa.table(columns))


def _content(body: bytes | None) -> str | None:
    """The payload of an archived queue message, hashed as in the ledger."""
    try:
        message = json.loads(body or b"")
    except ValueError:
        return None
    payload = message.get("payload") if isinstance(message, dict) else None
    return ledger.content(payload) if isinstance(payload, str) else None


_PUBLISHED = "f.publish_time IS DISTINCT FROM make_timestamp(e.sent_us) AT TIME ZONE 'UTC'"


def _once(table: str) -> str:
    """One row for each message, with the number of its rows."""
    return (
        f"SELECT *, {_RULES} AS rules, count(*) OVER one AS rows FROM {identifier(table)} "
        "WINDOW one AS (PARTITION BY message_id) "
        "QUALIFY row_number() OVER (PARTITION BY message_id ORDER BY detected_ts) = 1"
    )
