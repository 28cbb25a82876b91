"""Firehose's transform: names for every record the RAW table it belongs to."""

import base64
import json
from collections.abc import Container, Mapping
from typing import Any, TypeAlias

from leanops.domain.event.names import Databases
from leanops.domain.event.record import routed
from leanops.entrypoints.lambdas.invocation import Context, log, runtime

Entry: TypeAlias = dict[str, Any]

MAX_BYTES = 6_000_000
"""Lambda answers with 6 MB at most; beyond that Firehose would treat every record as failed."""
COMMA = 2
BRACKETS = 64


def handler(event: Mapping[str, Any], context: Context) -> dict[str, list[Entry]]:
    """Every record once and in order, with its table; Firehose writes the failed ones to its error output."""
    aws = runtime(context)
    return transform(event, aws.registered, aws.settings.databases)


def transform(
    event: Mapping[str, Any], registered: Container[str], databases: Databases, limit: int = MAX_BYTES
) -> dict[str, list[Entry]]:
    """The answer to Firehose; a record that would make it too large fails, and so does a record without a table."""
    failures = [{"recordId": record["recordId"], "result": "ProcessingFailed"} for record in event["records"]]
    size = BRACKETS + sum(_size(failure) for failure in failures)
    answers: list[Entry] = []
    for record, failure in zip(event["records"], failures, strict=True):
        entry = _routed(record, registered, databases) or failure
        grown = size + _size(entry) - _size(failure)
        answers.append(entry if grown <= limit else failure)
        size = grown if grown <= limit else size
    failed = sum(1 for entry in answers if entry["result"] != "Ok")
    if failed:
        log.warning("records go to the error output", records=len(answers), failed=failed)
    return {"records": answers}


def _routed(record: Entry, registered: Container[str], databases: Databases) -> Entry | None:
    """The record with its table; None where it has none, or is not exactly one row."""
    try:
        data = base64.b64decode(record["data"], validate=True)
    except ValueError:
        return None
    result = routed(data, registered)
    if result.rest or [len(rows) for rows in result.rows.values()] != [1]:
        return None
    database, _, table = databases.raw_table(next(iter(result.rows))).rpartition(".")
    destination = {"destinationDatabaseName": database, "destinationTableName": table, "operation": "insert"}
    return {
        "recordId": record["recordId"],
        "result": "Ok",
        "data": record["data"],
        "metadata": {"otfMetadata": destination},
    }


def _size(entry: Entry) -> int:
    return len(json.dumps(entry)) + COMMA
