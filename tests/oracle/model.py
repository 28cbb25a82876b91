"""The whole pipeline as a dict of keys: the oracle the real one is compared with, cell by cell."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from tests.oracle.casts import check, hmac_hex
from tests.oracle.flat import Bad, Limits, flatten
from tests.oracle.names import register
from tests.oracle.rows import (
    KEY_PATH,
    PERIOD_PATHS,
    CuratedRow,
    RawRow,
    Row,
    Schema,
    canonical,
    is_ahead,
    is_period,
    key_of,
    key_path,
    named_paths,
    period_of,
    period_text,
    published,
    version_of,
    version_text,
)

FIVE = ["inserted", "updated", "duplicates", "superseded", "parse_errors"]
FOUR = ["inserted", "updated", "unchanged", "errors"]
ODD = ["version_missing", "version_fallback", "period_fallback", "publish_time_ahead", "missing_keys"]
STANDARDIZED_COUNTS = ["read", *FIVE, *ODD, "conflicting_copies"]
FREE_COUNTS = ["read", "inserted", "parse_errors", *ODD]
CURATED_COUNTS = ["read", *FOUR, "behind", "cross_period", "kept_older", "replaced_older"]

# Where keys and periods are looked for when the schema names no path: as good as named by it.
DEFAULT_PATHS = {KEY_PATH, *PERIOD_PATHS}

Counts = dict[str, int]
Failure = tuple[str, str | None]  # rule and path (parse errors) or rule and column (errors)


@dataclass
class Model:
    """Standardized, Curated, both error tables and the running totals of one topic."""

    topic: str
    schema: Schema | None = None
    limits: Limits = field(default_factory=Limits)
    pii_key: bytes = b""
    names: dict[str, str] = field(default_factory=dict)
    standardized: dict[str, Row] = field(default_factory=dict)
    parse_errors: dict[str, list[Failure]] = field(default_factory=dict)
    curated: dict[str, CuratedRow] = field(default_factory=dict)
    errors: dict[str, list[Failure]] = field(default_factory=dict)
    totals: Counts = field(default_factory=lambda: dict.fromkeys(STANDARDIZED_COUNTS, 0))
    curated_totals: Counts = field(default_factory=lambda: dict.fromkeys(CURATED_COUNTS, 0))
    batch_seq: int = 0
    curated_seq: int = 0
    arrived: dict[str, dict[str, Row]] = field(default_factory=dict)
    """All versions of each key that are in RAW, by message: the first copy of each."""
    _new: set[str] = field(default_factory=set)
    """The keys that have arrivals which Curated has not looked at."""

    def set_schema(self, schema: Schema | None) -> None:
        """Applies to what is standardized and curated from now on."""
        self.schema = schema

    def standardize(self, raw_rows: Iterable[RawRow]) -> Counts:
        """One batch RAW to Standardized."""
        raw_rows = list(raw_rows)
        counts = dict.fromkeys(STANDARDIZED_COUNTS, 0) | {"read": len(raw_rows)}
        if not raw_rows:
            return counts
        self.batch_seq += 1
        by_key: dict[str, list[Row]] = {}
        for raw in raw_rows:
            row = self._parse(raw, counts)
            if row:
                by_key.setdefault(row.record_key, []).append(row)
        flat = [flatten(raw.json_payload, self.limits) for raw in raw_rows]
        seen = {path for found in flat if not isinstance(found, Bad) for path in found.cells}
        self.names = register(self.names, seen & self._exempt())
        self._evolve({path for rows in by_key.values() for row in rows for path in row.cells})
        for key, rows in by_key.items():
            self._upsert(rows, counts)
            self._new.add(key)
            for row in sorted(rows, key=lambda row: (row.ingestion_ts, row.publish_time)):
                self.arrived.setdefault(key, {}).setdefault(row.message_id, row)
        _add(self.totals, counts)
        assert counts["read"] == sum(counts[name] for name in FIVE), counts
        return counts

    def curate(self, again: Iterable[str] = ()) -> Counts:
        """One batch Standardized to Curated; `again` are record_keys replayed under the present schema."""
        counts = dict.fromkeys(CURATED_COUNTS, 0)
        if self.schema is None:
            return counts
        again = set(again)
        for row in self.standardized.values():
            if row.batch_seq > self.curated_seq or row.record_key in again:
                counts["read"] += 1
                self._curate_row(row, counts)
        for key in self._new:
            self._keep_older(self.standardized[key], counts)
        self._new = set()
        self.curated_seq = self.batch_seq
        _add(self.curated_totals, counts)
        assert counts["read"] == sum(counts[name] for name in FOUR), counts
        return counts

    def rebuild(self, raw_rows: Iterable[RawRow]) -> None:
        """Standardized anew from all of RAW, then Curated from it, both under the present schema."""
        self.standardized, self.totals, self.arrived = {}, dict.fromkeys(STANDARDIZED_COUNTS, 0), {}
        self.standardize(raw_rows)
        self.recurate()

    def recurate(self) -> None:
        """Curated anew, from Standardized and all versions in RAW."""
        self.curated, self.curated_seq, self._new = {}, 0, set(self.arrived)
        self.curated_totals = dict.fromkeys(CURATED_COUNTS, 0)
        self.curate()

    def failing(self) -> set[str]:
        """The record_keys whose current version is not the one in Curated."""
        return {key for key, row in self.standardized.items() if self.message_in_curated(row) != row.message_id}

    def behind(self) -> set[str]:
        """The failing record_keys that have an older version in Curated."""
        return {key for key in self.failing() if self.message_in_curated(self.standardized[key]) is not None}

    def assert_laws(self) -> None:
        """The accounting laws; those of Curated once it has read all of Standardized."""
        total, rows = self.totals, len(self.standardized)
        assert total["inserted"] == rows, total
        assert total["read"] == rows + sum(total[name] for name in FIVE[1:]), total
        assert len(self.parse_errors) <= total["parse_errors"], total
        curated = self.curated_totals
        assert curated["inserted"] + curated["kept_older"] - curated["replaced_older"] == len(self.curated), curated
        if self.curated_seq < self.batch_seq:
            return
        failing, behind = self.failing(), self.behind()
        assert rows == len(self.curated) + len(failing) - len(behind), (rows, failing, behind)
        assert all(self.standardized[key].message_id in self.errors for key in failing), failing
        for row in self.curated.values():
            assert row.source.version <= self.standardized[row.source.record_key].version, row

    def newest_passing(self) -> dict[str, str]:
        """What Curated has to be under the present schema, whatever the batches were: of each key a message."""
        found: dict[str, str] = {}
        for versions in self.arrived.values():
            for row in sorted(versions.values(), key=lambda row: row.version):
                if not self.validate(row)[1]:
                    found[row.idempotency_key] = row.message_id
        return found

    def boundary_free(self) -> dict[str, Any]:
        """What may not depend on the batches."""
        total, failing = self.totals, self.failing()
        return {
            "rows": {
                key: (row.idempotency_key, row.version, row.period_reference, row.cells)
                for key, row in self.standardized.items()
            },
            "parse_errors": self.parse_errors,
            "moved": total["updated"] + total["duplicates"] + total["superseded"],
            "totals": {name: total[name] for name in FREE_COUNTS},
            "failing": {key: self.errors.get(self.standardized[key].message_id) for key in failing},
            "curated": {
                key: (row.source.version, row.source.period_reference, row.values) for key, row in self.curated.items()
            },
        }

    def _parse(self, raw: RawRow, counts: Counts) -> Row | None:
        flat = flatten(raw.json_payload, self.limits)
        if isinstance(flat, Bad):
            failures: list[Failure] = [(flat.rule, None)]
        else:
            unknown = sorted(set(flat.cells) - set(self.names) - self._exempt(), key=str.encode)
            failures = [("unknown_field", path) for path in unknown] if self._contract() == "quarantine" else []
        if failures:
            counts["parse_errors"] += 1
            self.parse_errors[raw.message_id] = failures
            return None
        key, version = key_of(raw, flat, self.schema, self.pii_key), version_of(raw, flat, self.schema)
        cells = dict(flat.cells)
        if self._sealed_path() in cells:
            cells[self._sealed_path()] = hmac_hex(cells[self._sealed_path()], self.pii_key)
        counts["missing_keys"] += key is None
        has_path, period = key_path(self.schema, "version") is not None, period_text(flat, self.schema)
        counts["version_missing"] += has_path and version_text(flat, self.schema) is None
        counts["version_fallback"] += version is None
        counts["period_fallback"] += period is not None and not is_period(period)
        counts["publish_time_ahead"] += is_ahead(raw)
        return Row(
            record_key=f"message:{raw.message_id}" if key is None else f"key:{key}",
            idempotency_key=key,
            message_id=raw.message_id,
            topic_name=raw.topic_name,
            period_reference=period_of(raw, flat, self.schema),
            publish_time=raw.publish_time,
            ingestion_ts=raw.ingestion_ts,
            last_updated_ts=version if isinstance(version, datetime) else published(raw),
            number=version if isinstance(version, Decimal) else None,
            payload=raw.json_payload,
            first_seen_ts=raw.ingestion_ts,
            cells=cells,
            batch_seq=self.batch_seq,
        )

    def _evolve(self, paths: set[str]) -> None:
        """Gives columns to new paths in path order, as far as contract and limits allow."""
        others = len(set(self.names) - self._exempt())
        room = max(0, min(self.limits.new_columns, self.limits.columns - others))
        new = sorted(paths - set(self.names), key=str.encode)
        if self._contract() == "evolve":
            self.names = register(self.names, new[:room])

    def _upsert(self, rows: list[Row], counts: Counts) -> None:
        """All valid rows of one key in one batch."""
        current = self.standardized.get(rows[0].record_key)
        first_copies: dict[str, Row] = {}
        for row in sorted(rows, key=lambda row: (row.ingestion_ts, row.publish_time, row.last_updated_ts)):
            first = current if current and row.message_id == current.message_id else row
            first = first_copies.setdefault(row.message_id, first)
            counts["conflicting_copies"] += row.payload != first.payload
        if current:
            first_copies.pop(current.message_id, None)
        counts["duplicates"] += len(rows) - len(first_copies)
        newest = max(first_copies.values(), key=lambda row: row.version, default=None)
        if newest is None or (current and newest.version < current.version):
            counts["superseded"] += len(first_copies)
            return
        counts["superseded"] += len(first_copies) - 1
        counts["updated" if current else "inserted"] += 1
        seen = [row.ingestion_ts for row in rows] + ([current.first_seen_ts] if current else [])
        rescued = frozenset(newest.cells) - set(self.names)
        self.standardized[newest.record_key] = replace(newest, first_seen_ts=min(seen), rescued=rescued)

    def _curate_row(self, row: Row, counts: Counts) -> None:
        values, failures = self.validate(row)
        stored = self.curated.get(row.idempotency_key or "")
        if failures:
            self.errors[row.message_id] = failures
            counts["errors"] += 1
            counts["behind"] += stored is not None and stored.source.message_id != row.message_id
        elif stored and stored.source.version >= row.version:
            counts["unchanged"] += 1
        else:
            counts["updated" if stored else "inserted"] += 1
            counts["cross_period"] += stored is not None and stored.source.period_reference != row.period_reference
            self.curated[row.idempotency_key] = CuratedRow(row, self.schema.get("version"), values)

    def _keep_older(self, newest: Row, counts: Counts) -> None:
        """Where the newest version fails, the next one that passes, unless Curated has that or a newer one."""
        key = newest.idempotency_key
        if key is None or self.message_in_curated(newest) == newest.message_id:
            return
        stored = self.curated.get(key)
        for row in sorted(self.arrived[newest.record_key].values(), key=lambda row: row.version, reverse=True):
            if row.version >= newest.version or (stored and row.version <= stored.source.version):
                continue
            values, failures = self.validate(row)
            if failures:
                self.errors[row.message_id] = failures
                continue
            counts["kept_older"] += 1
            counts["replaced_older"] += stored is not None
            counts["behind"] += stored is None and newest.batch_seq > self.curated_seq
            counts["cross_period"] += stored is not None and stored.source.period_reference != row.period_reference
            kept = replace(row, first_seen_ts=newest.first_seen_ts)
            self.curated[key] = CuratedRow(kept, self.schema.get("version"), values)
            return

    def validate(self, row: Row) -> tuple[dict[str, Any], list[Failure]]:
        values: dict[str, Any] = {}
        failures: list[Failure] = [] if row.idempotency_key is not None else [("cde_missing", "idempotency_key")]
        paths = {name: path for path, name in self.names.items()}
        for column in self.schema["payload_columns"]:
            name = column["name"]
            path = canonical(column["path"]) if column.get("path") else paths.get(name, "")
            values[name], broken = check(column, row.cells.get(path), self.pii_key)
            if column.get("pii") == "hmac" and path == self._sealed_path() and path in row.cells:
                values[name] = row.cells[path]  # no seal over a seal
            failures += [(rule, name) for rule in broken]
        return values, failures

    def message_in_curated(self, row: Row) -> str | None:
        stored = self.curated.get(row.idempotency_key or "")
        return stored.source.message_id if stored else None

    def _sealed_path(self) -> str | None:
        """Where the key stands, if it is sealed."""
        is_sealed = ((self.schema or {}).get("keys") or {}).get("pii") == "hmac"
        return (key_path(self.schema, "idempotency_key") or KEY_PATH) if is_sealed else None

    def _exempt(self) -> set[str]:
        """Paths that have a column from the first event on that has them, whatever contract and limits say."""
        return named_paths(self.schema) | DEFAULT_PATHS

    def _contract(self) -> str:
        return ((self.schema or {}).get("policies") or {}).get("unknown_fields", "evolve")


def _add(totals: Counts, counts: Counts) -> None:
    for name, count in counts.items():
        totals[name] += count
