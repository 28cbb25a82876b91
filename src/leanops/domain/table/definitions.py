"""The tables as we create them: columns, partitions and the columns whose statistics prune files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

STRING, LONG, INT, TIMESTAMP, DOUBLE, BOOLEAN = "string", "long", "int", "timestamptz", "double", "boolean"
NUMBER = "decimal(38,9)"
"""Any number of up to 29 digits, with up to 9 decimals."""
FAILURE = ("rule", "column", "path", "message", "value")
"""The members of a failure, all of them strings."""
FAILURES = "failures"
"""The one nested type: a list of structs of FAILURE."""


@dataclass(frozen=True)
class TableDefinition:
    """All that is needed to create a table; `measured` columns carry the statistics."""

    columns: Mapping[str, str]
    partition_by: tuple[tuple[str, str], ...] = ()
    measured: tuple[str, ...] = ()
    comments: Mapping[str, str] = field(default_factory=dict)
    is_shadow: bool = False
    """Whether other tables may be forked from it: then none of its metadata files may be cleaned up."""

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The names of the partition fields, in order."""
        return tuple(name if how == "identity" else f"{name}_{how}" for name, how in self.partition_by)


def columns_in(listed: str) -> dict[str, str]:
    """Columns in order, from `name type, name type`; a column without a type is a string."""
    pairs = (column.split() for column in re.split(r",\s+", listed))
    return {name: kind[0] if kind else STRING for name, *kind in pairs}


_BY_PERIOD_AND_DAY = (("period_reference", "identity"), ("publish_time", "day"))
_MEASURED = (
    *("record_key", "idempotency_key", "message_id", "period_reference", "publish_time", "ingestion_ts"),
    *("last_updated_ts", "_batch_seq", "_batch_id"),
)

RAW = TableDefinition(
    columns_in(
        """message_id, publish_time timestamptz, topic_name, json_payload, ingestion_ts long, idempotency_key,
        attributes"""
    ),
    partition_by=(("publish_time", "day"),),
    measured=("message_id", "publish_time", "ingestion_ts"),
)
STANDARDIZED = TableDefinition(
    columns_in(
        f"""record_key, idempotency_key, message_id, topic_name, period_reference, publish_time timestamptz,
        ingestion_ts long, last_updated_ts timestamptz, first_seen_ts long, _rescued, _version {NUMBER},
        _payload_hash long, _batch_seq long, _batch_id"""
    ),
    partition_by=_BY_PERIOD_AND_DAY,
    measured=_MEASURED,
)
CURATED = TableDefinition(
    columns_in(
        f"""idempotency_key, message_id, topic_name, period_reference, publish_time timestamptz, ingestion_ts long,
        first_seen_ts long, last_updated_ts timestamptz, _version {NUMBER}, _schema_version int, _batch_seq long,
        _batch_id"""
    ),
    partition_by=_BY_PERIOD_AND_DAY,
    measured=_MEASURED,
)
ERRORS = TableDefinition(
    columns_in(
        f"""error_id, topic_name, layer, message_id, record_key, publish_time timestamptz, ingestion_ts long,
        failures {FAILURES}, source, batch_id, schema_version int, detected_ts timestamptz, status,
        status_ts timestamptz, attempts int"""
    ),
    partition_by=(("topic_name", "identity"), ("detected_ts", "day")),
    measured=("error_id", "message_id", "detected_ts", "batch_id"),
)
OPS = {
    "topic_registry": TableDefinition(
        columns_in("topic_name, source_id, project, labels, status, discovered_ts timestamptz, updated_ts timestamptz"),
    ),
    "job_run_history": TableDefinition(
        columns_in(
            """run_id, cycle_id, topic_name, layer, outcome, batch_id, source_from long, source_to long,
            source_snapshot_id long, target_snapshot_id long, rows_read long, inserted long, updated long,
            duplicates long, superseded long, parse_errors long, unchanged long, errors long, behind long,
            version_fallback long, missing_keys long, version_missing long, period_fallback long,
            publish_time_ahead long, conflicting_copies long, unplaced_paths long, cross_period long,
            late_corrections long, cde_missing long, judged_older long, kept_older long, replaced_older long,
            bytes long, files long, started_ts timestamptz, seconds double, error"""
        ),
        partition_by=(("started_ts", "day"),),
        measured=("batch_id", "started_ts"),
    ),
    "schema_versions": TableDefinition(
        columns_in("topic_name, version int, fingerprint, classification, actor, activated_ts timestamptz, schema"),
    ),
    "drift_log": TableDefinition(
        columns_in(
            """detected_ts timestamptz, topic_name, column_name, action, source_layer, old_value, new_value,
            details"""
        ),
        partition_by=(("detected_ts", "day"),),
        measured=("topic_name", "detected_ts"),
    ),
    "reconciliation_log": TableDefinition(
        columns_in("checked_ts timestamptz, topic_name, check, expected long, found long, balanced boolean, details"),
        partition_by=(("checked_ts", "day"),),
    ),
    "reconciliation_results": TableDefinition(
        columns_in(
            """checked_ts timestamptz, topic_name, period_reference, measure, expected double, found double,
            variance double, within_threshold boolean"""
        ),
        partition_by=(("checked_ts", "day"),),
    ),
    "audit_log": TableDefinition(
        columns_in("at_ts timestamptz, actor, channel, action, topic_name, details"),
        partition_by=(("at_ts", "day"),),
    ),
}

STANDARDIZED_SYSTEM_COLUMNS = tuple(STANDARDIZED.columns)
CURATED_SYSTEM_COLUMNS = tuple(CURATED.columns)
# Names that Iceberg's readers reserve; a payload column of that name would hide them.
ICEBERG_METADATA_COLUMNS = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
)
# Columns that Spark's MERGE adds to those of the table and looks up by name.
_SPARK_HELPERS = frozenset(
    {
        *("__row_operation", "__row_from_source", "__row_from_target"),
        *(f"__original_row_id_{name}" for name in ICEBERG_METADATA_COLUMNS),
    }
)
_ENGINE_NAMES = frozenset((*ICEBERG_METADATA_COLUMNS, *STANDARDIZED.partition_names, *CURATED.partition_names))
RESERVED_TABLES = frozenset({"parse_errors", "errors", "dlq_errors"})


def is_engine_name(name: str) -> bool:
    """Whether Iceberg or Spark may reserve a name, so that no new column gets it."""
    # Every helper column of Spark so far begins with two underscores.
    return name.startswith("__") or name in _ENGINE_NAMES


def breaks_merge(name: str) -> bool:
    """Whether a column of this name makes Spark's MERGE fail or write wrong rows."""
    return name in _SPARK_HELPERS
