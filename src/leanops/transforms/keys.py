"""What identifies and orders events: record key, period, version, and what is odd about them."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.schema.model import VersionFormat
from leanops.transforms.cast import MICROS, VERSION_DIGITS, versions

PREFIX = "key:"
"""How a record_key begins that was made of an idempotency_key. Any other belongs to one message: it has no versions."""
COUNTED = ("version_missing", "version_fallback", "period_fallback", "publish_time_ahead")
"""What is odd about an event that is kept all the same."""
PERIOD = r"\A(?:19[7-9][0-9]|20[0-9]{2}|2100)-(?:0[1-9]|1[0-2])\z"
"""A month as period_reference holds it."""
DAY_MS = 86_400_000
"""How far ahead a clock may be."""
_DAY = pa.scalar(DAY_MS * 1_000, pa.duration("us"))


class Texts(NamedTuple):
    """What the payloads of events say of them."""

    key: pa.Array
    period: pa.Array
    version: pa.Array


def keyed(raw: pa.RecordBatch, texts: Texts, form: VersionFormat | None) -> dict[str, pa.Array]:
    """The columns that the keys of a schema decide, and those of COUNTED; `form` is None where it names no version."""
    published, landed = raw.column("publish_time"), raw.column("ingestion_ts")
    is_ahead, order_ts = _is_ahead(published, landed), order_time(published, landed)
    version, is_number = versions(texts.version, form or "iso"), form == "number"
    is_usable = version.is_valid() if is_number else pc.less_equal(version, pc.add(order_ts, _DAY)).fill_null(False)
    is_period = pc.match_substring_regex(texts.period, PERIOD).fill_null(False)
    return {
        "record_key": pc.coalesce(_prefixed(PREFIX, texts.key), _prefixed("message:", raw.column("message_id"))),
        "period_reference": pc.if_else(is_period, texts.period, _months(order_ts)),
        "order_ts": order_ts,
        "last_updated_ts": order_ts if is_number else pc.if_else(is_usable, version, order_ts),
        "_version": version if is_number else pa.nulls(len(version), pa.decimal128(*VERSION_DIGITS)),
        "version_missing": pc.and_(form is not None, texts.version.is_null()),
        "version_fallback": pc.and_not(texts.version.is_valid(), is_usable),
        "period_fallback": pc.and_not(texts.period.is_valid(), is_period),
        "publish_time_ahead": is_ahead,
    }


def check_distinct(keys: pa.ChunkedArray, layer: str, rebuild: str) -> None:
    """Raise where a key is there more than once; `rebuild` is the command that repairs the table."""
    keys = keys.drop_null()
    if len(pc.unique(keys)) != len(keys):
        raise UnbalancedBatchError(
            f"{layer} has several rows of one key, which another tool must have written; rebuild it with: {rebuild}"
        )


def _prefixed(prefix: str, texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(prefix, texts, "")


def order_time(published: pa.Array, landed_ms: pa.Array) -> pa.Array:
    """When a message was published; of one whose clock is ahead, when it landed."""
    landed = pc.multiply(landed_ms, 1_000)
    return pc.if_else(_is_ahead(published, landed_ms), landed, published.cast(pa.int64())).cast(MICROS)


def _is_ahead(published: pa.Array, landed_ms: pa.Array) -> pa.Array:
    """Whether a message says it was published more than a day after it landed; never NULL."""
    is_late = pc.greater(pc.subtract(pc.divide(published.cast(pa.int64()), 1_000), landed_ms), DAY_MS)
    return pc.and_(is_late, pc.greater_equal(landed_ms, 0)).fill_null(False)


def _months(times: pa.Array) -> pa.Array:
    """The month of each time as yyyy-MM."""
    months = times.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).astype("datetime64[M]")
    distinct, places = np.unique(months, return_inverse=True)
    names = [None if np.isnat(month) else str(month) for month in distinct]
    return pa.array(names, pa.string()).take(pa.array(places))
