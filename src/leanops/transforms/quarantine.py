"""Rows of the error tables: why, where the event is, and never its payload."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.failures import Rule, Status, error_id
from leanops.domain.table.batch import Batch
from leanops.transforms.cast import MICROS
from leanops.transforms.judge import FAILURE

BAD = pa.schema(
    [
        ("message_id", pa.string()),
        ("record_key", pa.string()),
        ("publish_time", MICROS),
        ("ingestion_ts", pa.int64()),
        ("failures", pa.list_(FAILURE)),
    ]
)
"""A message with all that is wrong with it."""
_NO_COLUMN = "no column, and the contract is quarantine"


def failures_of_parsing(cells: pa.Table) -> pa.Table:
    """Rows that are no events, with their one failure; no key is known of them."""
    rules, problems = cells.column("rule").to_pylist(), cells.column("problem").to_pylist()
    found = [[_failure(rule, None, problem)] for rule, problem in zip(rules, problems, strict=True)]
    return _bad(cells, pa.nulls(len(cells), pa.string()), found)


def failures_of_unknown_fields(events: pa.Table, refused: pa.Array) -> pa.Table:
    """Events refused by contract, one failure for each path that has no column."""
    found = [[_failure(Rule.UNKNOWN_FIELD, path, _NO_COLUMN) for path in paths] for paths in refused.to_pylist()]
    return _bad(events, events.column("record_key"), found)


def error_rows(bad: pa.Table, batch: Batch, raw_table: str) -> pa.Table:
    """One row per message in the shape of the error tables: that of its first copy."""
    bad = bad.take(first_copies(bad))
    rows, messages = len(bad), bad.column("message_id").to_pylist()
    when = pa.scalar(datetime.fromtimestamp(batch.batch_time_ms / 1000, UTC), MICROS)
    days = pc.strftime(bad.column("publish_time"), "%Y-%m-%d")

    def always(value: Any, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), rows)

    text = pa.string()
    return pa.table(
        {
            "error_id": pa.array([error_id(batch.layer, batch.topic, message) for message in messages], text),
            "topic_name": always(batch.topic, text),
            "layer": always(batch.layer, text),
            **{name: bad.column(name) for name in BAD.names},
            "source": pc.binary_join_element_wise(f"{raw_table}/publish_time_day=", days, ""),
            "batch_id": always(batch.batch_id, text),
            "schema_version": always(batch.schema_version, pa.int32()),
            "detected_ts": pa.repeat(when, rows),
            "status": always(Status.OPEN.value, text),
            "status_ts": pa.repeat(when, rows),
            "attempts": always(1, pa.int32()),
        }
    )


def first_copies(bad: pa.Table) -> pa.Array:
    """The places of one row per message: the copy that landed first."""
    order = [(name, "ascending") for name in ("ingestion_ts", "publish_time", "record_key")]
    by_time = pc.sort_indices(bad, order).to_numpy()
    codes = bad.column("message_id").combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
    _, first = np.unique(codes[by_time], return_index=True)
    return pa.array(np.sort(by_time[first]))


def _failure(rule: str, path: str | None, message: str) -> dict[str, str | None]:
    return {"rule": rule, "column": None, "path": path, "message": message, "value": None}


def _bad(rows: pa.Table, keys: Any, failures: list[Any]) -> pa.Table:
    columns = [rows.column("message_id"), keys, rows.column("publish_time"), rows.column("ingestion_ts")]
    return pa.table([*columns, pa.array(failures, BAD.field("failures").type)], schema=BAD)
