"""The laws: every table of a topic is compared with its ledger, message by message."""

from collections.abc import Iterator, Sequence

from leanops.emulation.scenario import QUEUE
from leanops.emulation.verify import drifted
from leanops.emulation.verify.boundaries import Run
from leanops.emulation.verify.drifted import Line
from leanops.emulation.verify.fates import Fates
from leanops.emulation.verify.layers import Layers
from leanops.emulation.verify.outcomes import copying_kills
from leanops.emulation.verify.refusals import Refusals
from leanops.emulation.verify.tables import Check, Wrong, listed, text

_SENT = """
SELECT message_id, count(*) AS copies, min(content) AS content, min(publish_us) AS publish_us,
       sum({0} hash(ingestion_ms)) AS arrivals, min(ingestion_ms) AS first_ms
FROM ledger WHERE NOT is_dead GROUP BY ALL
"""
_LANDED = """
SELECT message_id, count(*) AS copies, min(content) AS content, max(content) AS other_content,
       count(content) AS contents, min(publish_us) AS publish_us, max(publish_us) AS other_us,
       count(publish_us) AS times, sum({0} hash(ingestion_ms)) AS arrivals,
       any_value(e.message_id) IS NOT NULL AS has_wrong_envelope
FROM raw LEFT JOIN wrong_envelope e USING (message_id) GROUP BY ALL
"""
_DRIFT = """
CREATE OR REPLACE VIEW drift_line AS
SELECT *, details->>'path' AS path,
       (SELECT max(batch) FROM standardized_run_id WHERE batch_id = details->>'batch_id') AS batch
FROM found_drift
"""


class Checks:
    """Every law of one topic. Values are compared and never shown, because they may be personal."""

    def __init__(self, fates: Fates) -> None:
        self.fates, self.boundaries = fates, fates.boundaries

    def all(self) -> Iterator[Check]:
        fates, standardized, curated = self.fates, self.boundaries.standardized, self.boundaries.curated
        refusals, layers = Refusals(fates), Layers(fates)
        seen = drifted.seen(fates)
        yield self._raw()
        yield refusals.dead()
        yield refusals.unparsed()
        yield layers.columns(seen.paths.keys())
        yield layers.standardized(standardized, seen.paths)
        yield self._once("keys of Standardized, over all periods", "found_standardized", "record_key")
        yield self._counts("batches of Standardized", standardized, "standardized_count")
        yield layers.curated(curated)
        yield self._once("keys of Curated, over all periods", "found_curated", "idempotency_key")
        yield self._behind()
        yield refusals.quarantined()
        yield self._counts("batches of Curated", curated, "curated_count")
        lines = seen.lines(fates.runtime.platform.rules.pipeline.removed_after_batches)
        yield drifted.compare(lines, self._drift(), layers.paths)
        tables = {**refusals.tables, "found_curated": layers.tables["curated"]}
        clear = [wrong for name, table in tables.items() for wrong in fates.in_clear(name, table, [fates.profile])]
        yield Check.none("personal data in plain text", clear)

    def _raw(self) -> Check:
        """RAW has every message as it was sent, as often and at the times it was sent, and nothing else."""
        self._read_envelopes()
        # Pub/Sub may deliver a message again.
        is_exact = self.fates.scenario.through == QUEUE and not copying_kills(self.fates.scenario)
        # What a killed worker had done is done again, with the same time of ingestion.
        copies, times = ("<>", "") if is_exact else ("<", "DISTINCT")
        return self.fates.compare(
            "messages in RAW",
            _SENT.format(times),
            _LANDED.format(times),
            "message_id",
            {
                "its text": "f.contents <> f.copies OR f.content <> e.content OR f.other_content <> e.content",
                "its copies": f"f.copies {copies} e.copies",
                # Only RAW knows the times of messages that came through Pub/Sub.
                "its publish_time": "f.times <> f.copies OR e.publish_us <> f.publish_us OR e.publish_us <> f.other_us",
                "its ingestion_ts": "e.first_ms IS NOT NULL AND f.arrivals <> e.arrivals",
                "its envelope": "f.has_wrong_envelope",
            },
        )

    def _read_envelopes(self) -> None:
        """Collect the messages of RAW with a topic, a key or attributes that were not sent with them."""
        files, none = self.boundaries.files, "(SELECT *, NULL AS topic_name FROM sent WHERE false)"
        rows = f"read_parquet({listed(files)})" if files else none
        self.fates.connection.execute(
            "CREATE OR REPLACE TABLE wrong_envelope AS SELECT DISTINCT message_id "
            f"FROM (SELECT f.message_id, f.topic_name, f.idempotency_key, f.attributes FROM {rows} f) f "
            "LEFT JOIN (FROM sent WHERE idempotency_key IS NOT NULL OR attributes IS NOT NULL) e USING (message_id) "
            f"WHERE f.topic_name IS DISTINCT FROM {text(self.fates.topic)} "
            "OR f.idempotency_key IS DISTINCT FROM e.idempotency_key OR f.attributes IS DISTINCT FROM e.attributes"
        )

    def _counts(self, name: str, runs: Sequence[Run], table: str) -> Check:
        """Every batch counted what the ledger counts for it."""
        names = list(runs[0].counts) if runs else ["read"]
        counted = self.fates.rows(f"SELECT batch, {', '.join(names)} FROM {table}")
        expected = {row[0]: dict(zip(names, map(int, row[1:]), strict=True)) for row in counted}
        wrong = [
            Wrong(run.batch_id, f"counted {count:,} {what}, the ledger {expected.get(run.number, {}).get(what, 0):,}")
            for run in runs
            for what, count in run.counts.items()
            if expected.get(run.number, {}).get(what, 0) != count
        ]
        return Check.of(name, len(expected), len(runs), wrong)

    def _once(self, name: str, table: str, key: str) -> Check:
        keys, rows = self.fates.rows(f"SELECT count(DISTINCT {key}), count(*) FROM {table}")[0]
        doubled = f"SELECT min(message_id), count(*) FROM {table} GROUP BY {key} HAVING count(*) > 1 ORDER BY 1"
        wrong = [Wrong(message, f"its key has {times} rows") for message, times in self.fates.rows(doubled)]
        return Check.of(name, keys, rows, wrong)

    def _behind(self) -> Check:
        """Exactly the keys whose newest version is invalid show an older one."""
        behind = (
            "SELECT s.record_key, s.message_id FROM found_standardized s JOIN found_curated c "
            "ON s.record_key = 'key:' || c.idempotency_key WHERE s.message_id <> c.message_id"
        )
        return self.fates.compare("keys behind", "FROM behind_key", behind, "record_key", {})

    def _drift(self) -> list[Line]:
        """The lines of drift_log; one without a path or batch cannot be in the ledger."""
        self.fates.load("found_drift", self.fates.names.ops_table("drift_log"), self.fates.topic)
        self.fates.connection.execute(_DRIFT)
        logged = (
            "SELECT coalesce(path, column_name, '-'), coalesce(action, '-'), coalesce(batch, 0), old_value, new_value, "
            "column_name FROM drift_line"
        )
        return [Line(*row) for row in self.fates.rows(logged)]
