"""Standardized and Curated: every row and column against the messages that they must have come from."""

import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from leanops.emulation.events.profile import Leaf
from leanops.emulation.verify.boundaries import Run
from leanops.emulation.verify.fates import Fates
from leanops.emulation.verify.tables import Check, Wrong, identifier, text

STRING, LONG, INT, TIMESTAMP = "string", "long", "int", "timestamptz"
NUMBER = "decimal(38, 9)"
"""The type of numeric versions, which no emulated topic has."""
SCHEMA_VERSION = 1
"""An emulation deploys one schema for each topic."""
_SYSTEM = {
    "idempotency_key": (STRING, "e.key"),
    "message_id": (STRING, "e.message_id"),
    "period_reference": (STRING, "e.month"),
    "publish_time": (TIMESTAMP, "make_timestamp(e.sent_us) AT TIME ZONE 'UTC'"),
    "ingestion_ts": (LONG, "e.first_ms"),
    "last_updated_ts": (TIMESTAMP, "make_timestamp(e.last_us) AT TIME ZONE 'UTC'"),
    "first_seen_ts": (LONG, "e.first_seen_ms"),
    "_version": (NUMBER, "NULL"),
    "_batch_seq": (LONG, "e.batch_seq"),
    "_batch_id": (STRING, "e.batch_id"),
}
"""System columns of both layers: their types, and what they must hold."""
_FAILURES = "list<struct<rule string, column string, path string, message string, value string>>"
_RAW = {
    **dict.fromkeys(("message_id", "topic_name", "json_payload", "idempotency_key", "attributes"), STRING),
    "publish_time": TIMESTAMP,
    "ingestion_ts": LONG,
}
_ERRORS = {
    **dict.fromkeys(("error_id", "topic_name", "layer", "message_id", "record_key", "source", "batch_id"), STRING),
    **dict.fromkeys(("publish_time", "detected_ts", "status_ts"), TIMESTAMP),
    **{"ingestion_ts": LONG, "failures": _FAILURES, "schema_version": INT, "status": STRING, "attempts": INT},
}
_STANDARDIZED = {"record_key": STRING, "_rescued": STRING, "_payload_hash": LONG}
_ICEBERG = {"BIGINT": LONG, "TIMESTAMP": TIMESTAMP}
_DUCKDB = {STRING: "VARCHAR", LONG: "BIGINT", INT: "INTEGER", TIMESTAMP: "TIMESTAMP WITH TIME ZONE"}
_WITH_MESSAGE = (
    "SELECT r.*, m.sent_us, m.last_us, m.month, b.batch_id, b.batch_seq, s.* EXCLUDE (message_id, key), m.key "
    "FROM {0}_row r JOIN message m USING (message_id) JOIN sent s USING (message_id) JOIN {0}_batch b USING (batch)"
)
_BATCHES = """
CREATE OR REPLACE TABLE {0}_batch AS
SELECT batch, batch_id, CASE WHEN seq > coalesce(max(seq) OVER earlier, 0) THEN seq END AS batch_seq
FROM {0}_run_id LEFT JOIN (
    SELECT _batch_id AS batch_id, mode(_batch_seq) AS seq FROM found_{0} GROUP BY ALL
) USING (batch_id)
WINDOW earlier AS (ORDER BY batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""
"""The batches of a layer, each with the _batch_seq of most of its rows; NULL if that does not rise."""


class Layers:
    """Both layers of one topic, loaded as found_standardized and found_curated."""

    def __init__(self, fates: Fates) -> None:
        self.fates, self.profile, names = fates, fates.profile, fates.names
        self.tables = {
            "standardized": names.standardized_table(fates.topic),
            "curated": names.curated_table(fates.topic),
        }
        self.paths = fates.load("found_standardized", self.tables["standardized"])
        fates.load("found_curated", self.tables["curated"])
        self._types = {
            layer: {name: kind for name, kind, *_ in fates.rows(f"DESCRIBE found_{layer}")} for layer in self.tables
        }

    def standardized(self, runs: Sequence[Run], paths: Iterable[str]) -> Check:
        """There is one row for each key: its newest version, with exactly the cells of its message."""
        self._number("standardized", runs)
        cells = {path: f"e.extra[{text(path)}]" for path in paths}
        cells |= {leaf.canonical: f"e.{identifier(leaf.canonical)}" for leaf in self.profile.leaves}
        differs = self._system("standardized") | {
            path: self._differs("standardized", self.paths[path], STRING, cell)
            if path in self.paths
            else f"{cell} IS NOT NULL"
            for path, cell in cells.items()
        }
        differs["_rescued"] = self._differs("standardized", "_rescued", STRING, "NULL")
        differs["_payload_hash"] = 'f."_payload_hash" IS NULL'
        expected = _WITH_MESSAGE.format("standardized")
        return self.fates.compare("rows of Standardized", expected, "FROM found_standardized", "record_key", differs)

    def curated(self, runs: Sequence[Run]) -> Check:
        """There is one row for each key that was ever valid, typed and with personal data hidden."""
        self._number("curated", runs)
        expected = _WITH_MESSAGE.format("curated")
        for at, leaf in enumerate(self.profile.leaves):
            if leaf.pii == "hmac":
                self._seal(leaf, f"seal_{at}")
                cell = identifier(leaf.canonical)
                sealed = f"LEFT JOIN seal_{at} ON x.{cell} = seal_{at}.text"
                expected = f"SELECT x.*, sealed AS sealed_{at} FROM ({expected}) x {sealed}"
        differs = self._system("curated") | {
            leaf.column: self._differs("curated", leaf.column, _type(leaf), typed(leaf, at))
            for at, leaf in enumerate(self.profile.leaves)
            if leaf.type
        }
        differs["_schema_version"] = self._differs("curated", "_schema_version", INT, str(SCHEMA_VERSION))
        found = "SELECT *, 'key:' || idempotency_key AS record_key FROM found_curated"
        return self.fates.compare("rows of Curated", expected, found, "record_key", differs)

    def columns(self, expected: Iterable[str]) -> Check:
        """Every table has exactly the columns that it must have, with their names and types."""
        names = self.fates.names
        system = {name: kind for name, (kind, _) in _SYSTEM.items()} | {"topic_name": STRING}
        payload = {self.paths[path]: STRING for path in expected if path in self.paths}
        wanted = {
            names.raw_table(self.fates.topic): _RAW,
            self.tables["standardized"]: system | payload | _STANDARDIZED,
            self.tables["curated"]: system
            | {"_schema_version": INT}
            | {leaf.column: _type(leaf) for leaf in self.profile.leaves if leaf.type},
            **dict.fromkeys((names.dlq_errors, names.parse_errors, names.errors), _ERRORS),
        }
        wrong = [wrong for table, columns in wanted.items() for wrong in self._wrong_types(table, columns)]
        if self.fates.runtime.platform.catalog.load(self.tables["standardized"]):
            wrong += [Wrong(path, "has no column") for path in sorted(set(expected) - self.paths.keys())]
        wrong += [
            Wrong(path, f"must not have the column {name}") for path, name in sorted(misnamed(self.paths).items())
        ]
        count = sum(map(len, wanted.values()))
        return Check.of("columns", count, count, wrong)

    def _wrong_types(self, table: str, wanted: Mapping[str, str]) -> list[Wrong]:
        view = self.fates.runtime.platform.catalog.load(table)
        if view is None:
            return []
        declared = {name: re.sub(r"[0-9]+: (\w+): optional ", r"\1 ", kind) for name, kind in view.columns.items()}
        wrong = [
            Wrong(f"{table}.{name}", f"is {declared.get(name, 'missing')}, not {wanted.get(name, 'to be there')}")
            for name in sorted(declared.keys() | wanted.keys())
            if declared.get(name) != wanted.get(name)
        ]
        stored = next((self._types[layer] for layer, its in self.tables.items() if its == table), {})
        return wrong + [
            Wrong(f"{table}.{name}", f"is {stored[name]} in its files, not {_stored(kind)}")
            for name, kind in sorted(wanted.items())
            if name in stored and declared.get(name) == kind and stored[name] != _stored(kind)
        ]

    def _system(self, layer: str) -> dict[str, str]:
        values = _SYSTEM | {"topic_name": (STRING, text(self.fates.topic))}
        return {name: self._differs(layer, name, kind, value) for name, (kind, value) in values.items()}

    def _differs(self, layer: str, name: str, kind: str, value: str) -> str:
        """Whether a column holds another value; a column of another type is wrong in every row."""
        if self._types[layer].get(name) != _stored(kind):
            return "true"
        return f"{value} IS DISTINCT FROM f.{identifier(name)}"

    def _number(self, layer: str, runs: Sequence[Run]) -> None:
        numbers, names = [run.number for run in runs], [run.batch_id for run in runs]
        ids = pa.table({"batch": pa.array(numbers, pa.int32()), "batch_id": pa.array(names, pa.string())})
        self.fates.register(f"{layer}_run_id", ids)
        self.fates.connection.execute(_BATCHES.format(layer))

    def _seal(self, leaf: Leaf, name: str) -> None:
        """Work out here, not in Spark, what each value of a leaf looks like when it is sealed."""
        secret = self.fates.runtime.platform.secret
        assert secret is not None
        cell = identifier(leaf.canonical)
        clear = [value for (value,) in self.fates.rows(f"SELECT DISTINCT {cell} FROM sent WHERE {cell} IS NOT NULL")]
        sealed = [hmac.new(secret.key, value.encode(), "sha256").hexdigest() for value in clear]
        self.fates.register(
            name, pa.table({"text": pa.array(clear, pa.string()), "sealed": pa.array(sealed, pa.string())})
        )


def typed(leaf: Leaf, at: int) -> str:
    """What Curated must hold for a leaf; DuckDB casts independently of Spark."""
    cell = f"e.{identifier(leaf.canonical)}"
    if leaf.default is not None:
        cell = f"coalesce({cell}, {text(leaf.default)})"
    if leaf.pii == "hmac":
        return f"e.sealed_{at}"
    if leaf.pii == "mask":
        return f"repeat('*', greatest(length({cell}) - 4, 0)) || {cell}[-4:]"
    if leaf.pii == "drop":
        return "NULL"
    return cell if leaf.type == "STRING" else f"CAST({cell} AS {_stored(_type(leaf))})"


def _type(leaf: Leaf) -> str:
    """The type of a leaf's column in Curated."""
    kind = leaf.type or ""
    return _ICEBERG.get(kind, kind.lower().replace(",", ", "))


def _stored(kind: str) -> str:
    """An Iceberg type as DuckDB finds it in a file."""
    return _DUCKDB.get(kind, kind.upper().replace(", ", ","))


_SEGMENT = re.compile(r'\.(\w+)|\[("(?:[^"\\]|\\.)*")\]')
_LONGEST = 128
_METADATA = {"_file", "_pos", "_deleted", "_spec_id", "_partition"}
_TAKEN = {*_SYSTEM, "record_key", "topic_name", "_rescued", "publish_time_day"} | _METADATA


def plain_name(path: str) -> str:
    """The name of the column of a path, unless another path has it."""
    segments = [plain or json.loads(quoted) for plain, quoted in _SEGMENT.findall(path)]
    name = re.sub("[^a-z0-9_]", "_", "_".join(segment or "_" for segment in segments).lower())
    return (f"_{name}" if name[0].isdigit() else name)[:_LONGEST]


def misnamed(columns: Mapping[str, str]) -> dict[str, str]:
    """The paths whose column is not named by the grammar; of paths with one name all but one have a hash."""
    wrong = {}
    wanted = {path: plain_name(path) for path in columns}
    names = list(wanted.values())
    for path, name in columns.items():
        plain = wanted[path]
        is_taken = plain in _TAKEN or plain.startswith("__")
        may_have_hash = is_taken or (names.count(plain) > 1 and plain in columns.values())
        tail = re.search("_[0-9a-f]{6,}$", name)
        is_hashed = tail is not None and name == plain[: _LONGEST - len(tail[0])] + tail[0]
        if not (name == plain and not is_taken) and not (may_have_hash and is_hashed):
            wrong[path] = name
    return wrong
