"""The laws: every table of a topic against its ledger, message by message."""

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from leanops.emulation.boundaries import Boundaries, Run
from leanops.emulation.fates import Fates
from leanops.emulation.found import EXAMPLES, Check, Found, Wrong, identifier, text
from leanops.emulation.leaves import Leaf
from leanops.emulation.profile import Profile
from leanops.runtimes.embedded import Embedded

_SAME = {
    "message_id": "e.message_id",
    "idempotency_key": "e.key",
    "period_reference": "e.month",
    "ingestion_ts": "e.first_ms",
    "first_seen_ts": "e.first_seen_ms",
    "publish_time": "make_timestamp(e.sent_us) AT TIME ZONE 'UTC'",
    "last_updated_ts": "make_timestamp(e.last_us) AT TIME ZONE 'UTC'",
}
"""System columns and what they must hold."""
_WITH_MESSAGE = (
    "SELECT r.*, m.sent_us, m.last_us, m.month, s.* EXCLUDE (message_id) "
    "FROM {} r JOIN message m USING (message_id) JOIN sent s USING (message_id)"
)
_RULES = "list_sort([x.rule || coalesce(' ' || x.\"column\", '') FOR x IN failures])"


@dataclass
class Checks:
    """Every law of one topic. Values are compared and never shown, for they may be personal."""

    runtime: Embedded
    topic: str
    profile: Profile
    boundaries: Boundaries
    fates: Fates
    is_exact: bool = True
    """Whether RAW has every message as often as it was sent; after a kill it may have it more often."""

    def __post_init__(self) -> None:
        self._found = Found(self.runtime, self.topic, self.fates)
        self._databases = self.runtime.platform.rules.databases

    def all(self) -> Iterator[Check]:
        databases = self._databases
        yield self._raw()
        yield self._errors("dead letters", databases.dlq_errors, "message WHERE is_dead", "[rule]")
        read = "message WHERE rule IS NOT NULL AND message_id IN (SELECT message_id FROM raw WHERE batch IS NOT NULL)"
        yield self._errors("parse errors", databases.parse_errors, read, "[rule]")
        yield self._standardized()
        yield self._once("keys of Standardized, across periods", "found_standardized", "record_key")
        yield self._counts("batches of Standardized", self.boundaries.standardized, "standardized_count")
        yield self._curated()
        yield self._once("keys of Curated, across periods", "found_curated", "idempotency_key")
        yield self._behind()
        yield self._errors("quarantined rows", databases.errors, "error_row", "failures")
        yield self._counts("batches of Curated", self.boundaries.curated, "curated_count")
        yield self._drift()
        yield self._personal()

    def _raw(self) -> Check:
        """Every message is in RAW as it was sent, as often as it was sent, and nothing else is."""
        copies = "IS DISTINCT FROM" if self.is_exact else "<"
        return self._found.compare(
            "messages in RAW",
            "SELECT message_id, count(*) AS copies, min(content) AS content FROM ledger WHERE NOT is_dead GROUP BY ALL",
            "SELECT message_id, count(*) AS copies, min(content) AS content, count(DISTINCT content) AS contents "
            "FROM raw GROUP BY ALL",
            "message_id",
            {"its text": "e.content <> f.content OR f.contents <> 1", "its copies": f"f.copies {copies} e.copies"},
        )

    def _standardized(self) -> Check:
        paths = self._found.load("found_standardized", self._databases.standardized_table(self.topic))
        cells = {leaf.canonical: f"e.{identifier(leaf.canonical)}" for leaf in self.profile.leaves}
        cells |= {path: f"e.extra[{text(path)}]" for path in self._paths("added")}
        differs = _system() | {
            path: f"{cell} IS DISTINCT FROM {f'f.{identifier(paths[path])}' if path in paths else 'NULL'}"
            for path, cell in cells.items()
        }
        expected = _WITH_MESSAGE.format("standardized_row")
        return self._found.compare("rows of Standardized", expected, "FROM found_standardized", "record_key", differs)

    def _curated(self) -> Check:
        self._found.load("found_curated", self._databases.curated_table(self.topic))
        expected = _WITH_MESSAGE.format("curated_row")
        for at, leaf in enumerate(self.profile.leaves):
            if leaf.pii == "hmac":
                self._seal(leaf, f"seal_{at}")
                cell = identifier(leaf.canonical)
                sealed = f"LEFT JOIN seal_{at} ON x.{cell} = seal_{at}.text"
                expected = f"SELECT x.*, sealed AS sealed_{at} FROM ({expected}) x {sealed}"
        # Before the first batch there is no table whose columns could be named.
        leaves = enumerate(self.profile.leaves) if self._has("found_curated", "filename") else ()
        values = {leaf.column: typed(leaf, at) for at, leaf in leaves if leaf.type}
        differs = _system() | {
            column: f"{value} IS DISTINCT FROM f.{identifier(column)}" for column, value in values.items()
        }
        found = "SELECT *, 'key:' || idempotency_key AS record_key FROM found_curated"
        return self._found.compare("rows of Curated", expected, found, "record_key", differs)

    def _seal(self, leaf: Leaf, name: str) -> None:
        """What each value of a leaf looks like when it is sealed, worked out here and not by Spark."""
        secret = self.runtime.platform.secret
        assert secret is not None
        cell = identifier(leaf.canonical)
        clear = [value for (value,) in self.fates.rows(f"SELECT DISTINCT {cell} FROM sent WHERE {cell} IS NOT NULL")]
        sealed = [hmac.new(secret.key, value.encode(), "sha256").hexdigest() for value in clear]
        self.fates.register(
            name, pa.table({"text": pa.array(clear, pa.string()), "sealed": pa.array(sealed, pa.string())})
        )

    def _errors(self, name: str, table: str, expected: str, failures: str) -> Check:
        """Exactly these messages have an error row, one each, with exactly these rules."""
        is_there = self._found.load("found_errors", table, topic_only=True) is not None
        rules = _RULES if self._has("found_errors", "failures") and is_there else "NULL::VARCHAR[]"
        return self._found.compare(
            name,
            f"SELECT message_id, list_sort({failures}) AS rules FROM {expected}",
            f"SELECT message_id, count(*) AS rows, min({rules}) AS rules FROM found_errors GROUP BY ALL",
            "message_id",
            {"its rules": "e.rules IS DISTINCT FROM f.rules", "the number of its rows": "f.rows <> 1"},
        )

    def _counts(self, name: str, runs: Sequence[Run], table: str) -> Check:
        """What every batch counted is what the ledger counts for it."""
        names = list(runs[0].counts) if runs else ["read"]
        counted = self.fates.rows(f"SELECT batch, {', '.join(names)} FROM {table}")
        expected = {row[0]: dict(zip(names, map(int, row[1:]), strict=True)) for row in counted}
        wrong = [
            Wrong(run.batch_id, f"counted {count:,} {what}, the ledger {expected.get(run.number, {}).get(what, 0):,}")
            for run in runs
            for what, count in run.counts.items()
            if expected.get(run.number, {}).get(what, 0) != count
        ]
        return Check(name, len(expected), len(runs), len(wrong), tuple(wrong[:EXAMPLES]))

    def _once(self, name: str, table: str, key: str) -> Check:
        keys, rows = self.fates.rows(f"SELECT count(DISTINCT {key}), count(*) FROM {table}")[0]
        doubled = f"SELECT min(message_id), count(*) FROM {table} GROUP BY {key} HAVING count(*) > 1 ORDER BY 1"
        wrong = [Wrong(message, f"its key has {times} rows") for message, times in self.fates.rows(doubled)]
        return Check(name, keys, rows, len(wrong), tuple(wrong[:EXAMPLES]))

    def _behind(self) -> Check:
        """Where the newest version of a key is not right, exactly these keys show an older one."""
        found = (
            "SELECT s.record_key, s.message_id FROM found_standardized s JOIN found_curated c "
            "ON s.record_key = 'key:' || c.idempotency_key WHERE s.message_id <> c.message_id"
        )
        return self._found.compare("keys behind", "FROM behind_key", found, "record_key", {})

    def _drift(self) -> Check:
        """Every path that came has one line in drift_log, and so has every change of kind."""
        self._found.load("found_drift", self._databases.ops_table("drift_log"), topic_only=True)
        expected = {(path, "ADDED") for path in self._came()}
        expected |= {(path, "ADDED") for path in self._paths("added")}
        expected |= {(path, "TYPE_CHANGED") for path in self._paths("changed")}
        logged = "SELECT details->>'path', action FROM found_drift WHERE action IN ('ADDED', 'TYPE_CHANGED')"
        found = self.fates.rows(logged) if self._has("found_drift", "details") else []
        # A column named by the schema is added though no event fills it.
        named = {(leaf.canonical, "ADDED") for leaf in self.profile.leaves}
        wrong = [Wrong(path, f"is not in drift_log as {action}") for path, action in sorted(expected - set(found))]
        wrong += [Wrong(path, f"never came, but is {action}") for path, action in sorted(set(found) - expected - named)]
        return Check("drift", len(expected), len(expected & set(found)), len(wrong), tuple(wrong[:EXAMPLES]))

    def _personal(self) -> Check:
        """No value of personal data stands in clear in Curated or in an error table."""
        shapes = "|".join(sorted({leaf.shape for leaf in self.profile.leaves if leaf.shape}))
        wrong: list[Wrong] = []
        databases = self._databases
        curated = databases.curated_table(self.topic)
        for table in (curated, databases.errors, databases.parse_errors, databases.dlq_errors) if shapes else ():
            name = "found_curated" if table == curated else "found_texts"
            if table != curated:
                self._found.load(name, table, topic_only=True)
            described = self.fates.rows(f"DESCRIBE {name}")
            texts = [f"{identifier(column)}::VARCHAR" for column, kind, *_ in described if "VARCHAR" in kind]
            clear = f"SELECT message_id FROM {name} WHERE regexp_matches(concat_ws(' ', {', '.join(texts)}), ?)"
            wrong += [Wrong(message, f"is in clear in {table}") for (message,) in self.fates.rows(clear, [shapes])]
        return Check("personal data in clear", 0, len(wrong), len(wrong), tuple(wrong[:EXAMPLES]))

    def _paths(self, column: str) -> list[str]:
        """The paths in a column of the ledger, of events that were read."""
        arrived = "rule IS NULL AND message_id IN (SELECT message_id FROM arrival)"
        return [
            path
            for (path,) in self.fates.rows(f"SELECT DISTINCT unnest({column}) FROM message WHERE {arrived} ORDER BY 1")
        ]

    def _came(self) -> list[str]:
        """The paths of the profile that events which were read have."""
        paths = [leaf.canonical for leaf in self.profile.leaves]
        counts = ", ".join(f"count({identifier(path)})" for path in paths)
        found = self.fates.rows(f"SELECT {counts} FROM sent SEMI JOIN arrival USING (message_id)")[0]
        return [path for path, count in zip(paths, found, strict=True) if count]

    def _has(self, table: str, column: str) -> bool:
        return column in [name for name, *_ in self.fates.rows(f"DESCRIBE {table}")]


def _system() -> dict[str, str]:
    return {name: f"{value} IS DISTINCT FROM f.{name}" for name, value in _SAME.items()}


def typed(leaf: Leaf, at: int) -> str:
    """What Curated must hold of a leaf; DuckDB's casts know nothing of Spark's."""
    cell = f"e.{identifier(leaf.canonical)}"
    if leaf.default is not None:
        cell = f"coalesce({cell}, {text(leaf.default)})"
    if leaf.pii == "hmac":
        return f"e.sealed_{at}"
    if leaf.pii == "mask":
        return f"repeat('*', greatest(length({cell}) - 4, 0)) || {cell}[-4:]"
    if leaf.pii == "drop":
        return "NULL"
    return cell if leaf.type == "STRING" else f"CAST({cell} AS {_DUCKDB.get(leaf.type or '', leaf.type)})"


_DUCKDB = {"TIMESTAMP": "TIMESTAMPTZ"}
