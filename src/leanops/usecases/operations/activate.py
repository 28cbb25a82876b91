"""Activates a schema version of the archive and records it, once."""

import json
from hashlib import sha256
from typing import Any

from leanops.domain.failures import ForgetKeys, Hide
from leanops.domain.payload.evolution import ADDED, REMOVED, TYPE_CHANGED
from leanops.domain.schema.diff import Kind
from leanops.domain.schema.model import Schema
from leanops.domain.table.definitions import OPS
from leanops.domain.table.operation import Operation
from leanops.usecases.leases import HeldTopic
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import enable_topic


def activate(held: HeldTopic, operation: Operation) -> Schema:
    """Activate the operation's version; what an earlier attempt did is kept."""
    platform, topic, version = held.platform, held.topic, operation.version
    held.check()
    _hide_errors(platform, operation)
    with platform.durable("activate"):
        platform.schemas.activate(topic, version)
    schema = platform.schemas.active(topic)
    assert schema is not None
    record_version(platform, topic, schema, operation.classification, operation.actor)
    _log_columns(platform, operation, schema)
    platform.schemas.clear_failed(topic)
    enable_topic(platform, topic, version)
    platform.step("after enable")
    return schema


def _hide_errors(platform: Platform, operation: Operation) -> None:
    """Hide values in existing error rows that become PII with this version; safe to repeat."""
    before = platform.schemas.version(operation.topic, operation.previous) if operation.previous else None
    after = platform.schemas.version(operation.topic, operation.version)
    if before is None or after is None:
        return
    known = {(column.name, column.path) for column in before.payload_columns if column.pii}
    hidden = [column for column in after.payload_columns if column.pii and (column.name, column.path) not in known]
    databases = platform.rules.databases
    if hidden and _has_errors(platform, databases.errors, operation.topic):
        paths = tuple(column.path for column in hidden if column.path)
        change = Hide(tuple(column.name for column in hidden), paths)
        with platform.durable("hide"):
            platform.engine().change_errors(databases.errors, operation.topic, change)
    if after.keys.pii and not before.keys.pii:
        for name in (databases.errors, databases.parse_errors):
            if _has_errors(platform, name, operation.topic):
                with platform.durable("forget keys"):
                    platform.engine().change_errors(name, operation.topic, ForgetKeys(operation.version))


def _has_errors(platform: Platform, name: str, topic: str) -> bool:
    """Whether there is anything to hide, so that Spark is not started in vain."""
    return bool(platform.catalog.select(name, ["error_id"], {"topic_name": topic}))


def fingerprint(schema: Schema) -> str:
    """What makes two schemas the same, whatever their version number."""
    content = schema.model_dump_json(exclude={"version"})
    return sha256(content.encode()).hexdigest()[:16]


def record_version(platform: Platform, topic: str, schema: Schema, classification: str, actor: str) -> None:
    """Write the version to schema_versions, once."""
    versions = platform.rules.databases.ops_table("schema_versions")
    platform.catalog.create(versions, OPS["schema_versions"])
    row = {
        "topic_name": topic,
        "version": schema.version,
        "fingerprint": fingerprint(schema),
        "classification": classification or Kind.NEUTRAL.value,
        "actor": actor,
        "activated_ts": platform.clock(),
        "schema": platform.schemas.text(topic, schema.version),
    }

    def missing() -> list[dict[str, Any]]:
        ours = {"topic_name": topic, "version": schema.version}
        return [] if platform.catalog.select(versions, ["version"], ours) else [row]

    with platform.durable("version"):
        platform.catalog.append_planned(versions, missing)


def _log_columns(platform: Platform, operation: Operation, schema: Schema) -> None:
    """Write what became of Curated's columns to drift_log, once for each version; a first schema is not drift."""
    before = platform.schemas.version(operation.topic, operation.previous) if operation.previous else None
    drift = _column_drift(before, schema) if before else []
    if not drift:
        return
    log = platform.rules.databases.ops_table("drift_log")
    platform.catalog.create(log, OPS["drift_log"])
    details = json.dumps({"schema_version": schema.version})
    now = platform.clock()
    common = {"detected_ts": now, "topic_name": operation.topic, "source_layer": "curated", "details": details}

    def missing() -> list[dict[str, Any]]:
        where = {"topic_name": operation.topic, "source_layer": "curated"}
        logged = platform.catalog.select(log, ["details"], where)
        return [] if any(row["details"] == details for row in logged) else [{**common, **row} for row in drift]

    with platform.durable("drift"):
        platform.catalog.append_planned(log, missing)


def _column_drift(before: Schema, after: Schema) -> list[dict[str, Any]]:
    old = {column.name: str(column.type) for column in before.payload_columns}
    new = {column.name: str(column.type) for column in after.payload_columns}
    drift = []
    for name in sorted(old.keys() | new.keys()):
        was, becomes = old.get(name), new.get(name)
        if was != becomes:
            action = ADDED if was is None else REMOVED if becomes is None else TYPE_CHANGED
            drift.append({"column_name": name, "action": action, "old_value": was, "new_value": becomes})
    return drift
