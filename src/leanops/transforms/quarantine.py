"""Rows of the error tables: why, where the event is, and never its payload."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.failures import HIDDEN, ForgetKeys, Hide, Rule, Status, error_id
from leanops.domain.table.batch import Batch
from leanops.transforms.cast import MICROS
from leanops.transforms.judge import FAILURE
from leanops.transforms.keys import PREFIX

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
_RENEWED = ("failures", "schema_version", "batch_id", "record_key")
"""The columns of an error row that are replaced when its message fails again."""
_NO_COLUMN = "no column, and the contract is quarantine"


def failures_of_parsing(cells: pa.Table) -> pa.Table:
    """Rows that are not events, with their one failure; their keys are unknown."""
    rules, problems = cells.column("rule").to_pylist(), cells.column("problem").to_pylist()
    failures = [[_failure(rule, None, problem)] for rule, problem in zip(rules, problems, strict=True)]
    return _bad(cells, pa.nulls(len(cells), pa.string()), failures)


def failures_of_unknown_fields(events: pa.Table, refused: pa.Array) -> pa.Table:
    """Events refused by contract, one failure for each path that has no column."""
    failures = [[_failure(Rule.UNKNOWN_FIELD, path, _NO_COLUMN) for path in paths] for paths in refused.to_pylist()]
    return _bad(events, events.column("record_key"), failures)


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


def renewed(stored: pa.Table, new: pa.Table) -> pa.Table:
    """Those of the stored error rows that a later batch has among the new ones, with one more attempt."""
    at = pc.index_in(stored.column("error_id"), value_set=new.column("error_id").combine_chunks()).combine_chunks()
    failed = new.select(_RENEWED).take(at)
    is_later = pc.not_equal(stored.column("batch_id"), failed.column("batch_id"))
    rows, failed = stored.filter(is_later), failed.filter(is_later)
    columns = {name: failed.column(name) for name in _RENEWED}
    columns["attempts"] = pc.add(rows.column("attempts"), pa.scalar(1, pa.int32()))
    return _with(rows, columns)


def changed(rows: pa.Table, change: Hide | ForgetKeys) -> pa.Table:
    """These error rows as they are after the change, which leaves some of them as they were."""
    return _hidden(rows, change) if isinstance(change, Hide) else _without_keys(rows, change)


def _without_keys(rows: pa.Table, change: ForgetKeys) -> pa.Table:
    is_before = pc.less(rows.column("schema_version"), change.before)
    has_key = pc.starts_with(rows.column("record_key"), PREFIX)
    forgets = pc.and_(is_before, has_key).fill_null(False)
    return _with(rows, {"record_key": pc.if_else(forgets, pa.scalar(None, pa.string()), rows.column("record_key"))})


def _hidden(rows: pa.Table, change: Hide) -> pa.Table:
    rows = rows.combine_chunks()
    failures = rows.column("failures").combine_chunks()
    fields = list(failures.type.value_type)
    members = {field.name: pc.struct_field(failures.flatten(), field.name) for field in fields}
    is_meant = pc.or_(
        pc.is_in(members["column"], value_set=pa.array(change.columns, pa.string())),
        pc.is_in(members["path"], value_set=pa.array(change.paths, pa.string())),
    )
    shows = pc.and_(is_meant, pc.not_equal(members["value"], HIDDEN).fill_null(False))
    members["value"] = pc.if_else(shows, HIDDEN, members["value"])
    # Lists that were sliced begin somewhere in the middle of all failures.
    offsets = pc.subtract(failures.offsets, failures.offsets[0])
    found = pa.StructArray.from_arrays(list(members.values()), fields=fields)
    hidden = pa.ListArray.from_arrays(offsets, found, type=failures.type, mask=failures.is_null())
    return _with(rows, {"failures": hidden})


def _with(rows: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """Rows with other values in some columns."""
    for name, values in columns.items():
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows


def _failure(rule: str, path: str | None, message: str) -> dict[str, str | None]:
    return {"rule": rule, "column": None, "path": path, "message": message, "value": None}


def _bad(rows: pa.Table, keys: Any, failures: list[Any]) -> pa.Table:
    columns = [rows.column("message_id"), keys, rows.column("publish_time"), rows.column("ingestion_ts")]
    return pa.table([*columns, pa.array(failures, BAD.field("failures").type)], schema=BAD)
