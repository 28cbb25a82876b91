"""The tables as we create them: columns, partitions and the columns whose statistics prune files."""

from collections.abc import Mapping
from dataclasses import dataclass, field

STRING, LONG, INT, TIMESTAMP, DOUBLE, BOOLEAN, DATE = (
    "string",
    "long",
    "int",
    "timestamptz",
    "double",
    "boolean",
    "date",
)
NUMBER = "decimal(38,9)"
"""Any number of up to 29 digits, with up to 9 decimals."""
FAILURE = {"rule": STRING, "column": STRING, "path": STRING, "message": STRING, "value": STRING}
FAILURES = "failures"
"""The one nested type: a list of FAILURE structs."""


@dataclass(frozen=True)
class TableDefinition:
    """All that is needed to create a table; `measured` columns carry the statistics."""

    columns: Mapping[str, str]
    partition_by: tuple[tuple[str, str], ...]
    measured: tuple[str, ...] = ()
    comments: Mapping[str, str] = field(default_factory=dict)
    is_shadow: bool = False
    """Whether other tables may be forked from it: then none of its metadata files may be cleaned up."""

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The names of the partition fields, in order."""
        return tuple(name if how == "identity" else f"{name}_{how}" for name, how in self.partition_by)


_BY_DAY = (("publish_time", "day"),)
_BY_PERIOD_AND_DAY = (("period_reference", "identity"), ("publish_time", "day"))
_MEASURED = (
    "record_key",
    "idempotency_key",
    "message_id",
    "period_reference",
    "publish_time",
    "ingestion_ts",
    "last_updated_ts",
    "_batch_seq",
    "_batch_id",
)

RAW = TableDefinition(
    columns={
        "message_id": STRING,
        "publish_time": TIMESTAMP,
        "topic_name": STRING,
        "json_payload": STRING,
        "ingestion_ts": LONG,
        "idempotency_key": STRING,
        "attributes": STRING,
    },
    partition_by=_BY_DAY,
    measured=("message_id", "publish_time", "ingestion_ts"),
)
STANDARDIZED = TableDefinition(
    columns={
        "record_key": STRING,
        "idempotency_key": STRING,
        "message_id": STRING,
        "topic_name": STRING,
        "period_reference": STRING,
        "publish_time": TIMESTAMP,
        "ingestion_ts": LONG,
        "last_updated_ts": TIMESTAMP,
        "first_seen_ts": LONG,
        "_rescued": STRING,
        "_version": NUMBER,
        "_payload_hash": LONG,
        "_batch_seq": LONG,
        "_batch_id": STRING,
    },
    partition_by=_BY_PERIOD_AND_DAY,
    measured=_MEASURED,
)
CURATED = TableDefinition(
    columns={
        "idempotency_key": STRING,
        "message_id": STRING,
        "topic_name": STRING,
        "period_reference": STRING,
        "publish_time": TIMESTAMP,
        "ingestion_ts": LONG,
        "first_seen_ts": LONG,
        "last_updated_ts": TIMESTAMP,
        "_version": NUMBER,
        "_schema_version": INT,
        "_batch_seq": LONG,
        "_batch_id": STRING,
    },
    partition_by=_BY_PERIOD_AND_DAY,
    measured=_MEASURED,
)
ERRORS = TableDefinition(
    columns={
        "error_id": STRING,
        "topic_name": STRING,
        "layer": STRING,
        "message_id": STRING,
        "record_key": STRING,
        "publish_time": TIMESTAMP,
        "ingestion_ts": LONG,
        "failures": FAILURES,
        "source": STRING,
        "batch_id": STRING,
        "schema_version": INT,
        "detected_ts": TIMESTAMP,
        "status": STRING,
        "status_ts": TIMESTAMP,
        "attempts": INT,
    },
    partition_by=(("topic_name", "identity"), ("detected_ts", "day")),
    measured=("error_id", "message_id", "detected_ts", "batch_id"),
)
OPS = {
    "topic_registry": TableDefinition(
        columns={
            "topic_name": STRING,
            "source_id": STRING,
            "project": STRING,
            "labels": STRING,
            "status": STRING,
            "discovered_ts": TIMESTAMP,
            "updated_ts": TIMESTAMP,
        },
        partition_by=(),
    ),
    "job_run_history": TableDefinition(
        columns={
            "run_id": STRING,
            "cycle_id": STRING,
            "topic_name": STRING,
            "layer": STRING,
            "outcome": STRING,
            "batch_id": STRING,
            "source_from": LONG,
            "source_to": LONG,
            "source_snapshot_id": LONG,
            "target_snapshot_id": LONG,
            "rows_read": LONG,
            "inserted": LONG,
            "updated": LONG,
            "duplicates": LONG,
            "superseded": LONG,
            "parse_errors": LONG,
            "unchanged": LONG,
            "errors": LONG,
            "behind": LONG,
            "version_fallback": LONG,
            "missing_keys": LONG,
            "version_missing": LONG,
            "period_fallback": LONG,
            "publish_time_ahead": LONG,
            "conflicting_copies": LONG,
            "unplaced_paths": LONG,
            "cross_period": LONG,
            "late_corrections": LONG,
            "cde_missing": LONG,
            "bytes": LONG,
            "files": LONG,
            "started_ts": TIMESTAMP,
            "seconds": DOUBLE,
            "error": STRING,
        },
        partition_by=(("started_ts", "day"),),
        measured=("batch_id", "started_ts"),
    ),
    "schema_versions": TableDefinition(
        columns={
            "topic_name": STRING,
            "version": INT,
            "fingerprint": STRING,
            "classification": STRING,
            "actor": STRING,
            "activated_ts": TIMESTAMP,
            "schema": STRING,
        },
        partition_by=(),
    ),
    "drift_log": TableDefinition(
        columns={
            "detected_ts": TIMESTAMP,
            "topic_name": STRING,
            "column_name": STRING,
            "action": STRING,
            "source_layer": STRING,
            "old_value": STRING,
            "new_value": STRING,
            "details": STRING,
        },
        partition_by=(("detected_ts", "day"),),
        measured=("topic_name", "detected_ts"),
    ),
    "reconciliation_log": TableDefinition(
        columns={
            "checked_ts": TIMESTAMP,
            "topic_name": STRING,
            "check": STRING,
            "expected": LONG,
            "found": LONG,
            "balanced": BOOLEAN,
            "details": STRING,
        },
        partition_by=(("checked_ts", "day"),),
    ),
    "reconciliation_results": TableDefinition(
        columns={
            "checked_ts": TIMESTAMP,
            "topic_name": STRING,
            "period_reference": STRING,
            "measure": STRING,
            "expected": DOUBLE,
            "found": DOUBLE,
            "variance": DOUBLE,
            "within_threshold": BOOLEAN,
        },
        partition_by=(("checked_ts", "day"),),
    ),
    "audit_log": TableDefinition(
        columns={
            "at_ts": TIMESTAMP,
            "actor": STRING,
            "channel": STRING,
            "action": STRING,
            "topic_name": STRING,
            "details": STRING,
        },
        partition_by=(("at_ts", "day"),),
    ),
}

STANDARDIZED_SYSTEM_COLUMNS = tuple(STANDARDIZED.columns)
CURATED_SYSTEM_COLUMNS = tuple(CURATED.columns)
# Names Iceberg's readers keep for themselves; a payload column so named would hide them.
ICEBERG_METADATA_COLUMNS = (
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
)
# Columns that Spark's MERGE adds to those of the table and finds again by name.
_SPARK_HELPERS = frozenset(
    {
        "__row_operation",
        "__row_from_source",
        "__row_from_target",
        *(f"__original_row_id_{name}" for name in ICEBERG_METADATA_COLUMNS),
    }
)
_ENGINE_PREFIX = "__"
_ENGINE_NAMES = frozenset((*ICEBERG_METADATA_COLUMNS, *STANDARDIZED.partition_names, *CURATED.partition_names))
RESERVED_TABLES = frozenset({"parse_errors", "errors", "dlq_errors"})


def is_engine_name(name: str) -> bool:
    """Whether Iceberg or Spark may give a name a meaning of their own: no new column gets it.

    Every helper column Spark has had begins with two underscores; the next one will too.
    """
    return name.startswith(_ENGINE_PREFIX) or name in _ENGINE_NAMES


def breaks_merge(name: str) -> bool:
    """Whether a column of this name makes Spark's MERGE fail or write wrong rows."""
    return name in _SPARK_HELPERS
