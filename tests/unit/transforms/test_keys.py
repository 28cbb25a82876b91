"""Keys, periods and versions of events are the model's."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.domain.schema.model import VersionFormat
from leanops.transforms.keys import COUNTED, Texts, keyed
from tests.oracle.flat import Flat, flatten
from tests.oracle.model import Limits
from tests.oracle.rows import RawRow, is_ahead, is_period, key_of, period_of, period_text, published, version_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9998, 12, 31)) | st.datetimes(
    datetime(2026, 1, 1), datetime(2026, 1, 5)
)
LANDED = st.integers(0, 253_000_000_000_000) | st.integers(1_767_225_600_000, 1_767_571_200_000)
PERIODS = st.sampled_from(
    ["2026-01", "1970-01", "1969-12", "2100-12", "2101-01", "2026-13", "2026-1", "2026-01\n", "", "x"]
)
VERSIONS = st.one_of(
    st.sampled_from(["", "x", "7", "-7.5", "1e30", "2026-01-01", "2026-01-02T03:04:05.123456789Z", "1767312000000"]),
    st.integers(1_767_225_600, 1_767_571_200).map(str),
    TIMES.map(lambda time: time.isoformat() + "Z"),
)


@st.composite
def events(draw: st.DrawFn) -> RawRow:
    members = {"k": st.sampled_from(["a", " ", "b"]), "v": VERSIONS, "p": PERIODS}
    payload = draw(st.fixed_dictionaries({}, optional=members))
    time = draw(TIMES).replace(tzinfo=UTC)
    return RawRow(draw(st.sampled_from(["m1", "m2"])), time, "orders", json.dumps(payload), draw(LANDED))


def texts_of(rows: list[RawRow], schema: dict[str, object]) -> tuple[list[Flat], Texts]:
    flats = [flatten(row.json_payload, Limits()) for row in rows]
    keys = [key_of(row, flat, schema, b"") for row, flat in zip(rows, flats, strict=True)]
    columns = (keys, [flat.cells.get("$.p") for flat in flats], [flat.cells.get("$.v") for flat in flats])
    return flats, Texts(*(pa.array(column, pa.string()) for column in columns))


def batch_of(rows: list[RawRow]) -> pa.RecordBatch:
    micros = [(row.publish_time - EPOCH) // timedelta(microseconds=1) for row in rows]
    return pa.RecordBatch.from_pydict(
        {
            "message_id": pa.array([row.message_id for row in rows], pa.string()),
            "publish_time": pa.array(micros, pa.timestamp("us", "UTC")),
            "ingestion_ts": pa.array([row.ingestion_ts for row in rows], pa.int64()),
        }
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(events(), max_size=20), st.sampled_from([None, "iso", "epoch_s", "epoch_ms", "number"]))
def test_what_identifies_and_orders_an_event_is_the_models(rows: list[RawRow], form: VersionFormat | None) -> None:
    version_keys = {"version": "$.v", "version_format": form} if form else {}
    schema = {"keys": {"idempotency_key": "$.k", "period": "$.p", **version_keys}}
    flats, texts = texts_of(rows, schema)
    if form is None:
        texts = texts._replace(version=pa.nulls(len(rows), pa.string()))
    found = pa.RecordBatch.from_pydict(keyed(batch_of(rows), texts, form)).to_pylist()
    for row, flat, got in zip(rows, flats, found, strict=True):
        version, key, period = version_of(row, flat, schema), key_of(row, flat, schema, b""), period_text(flat, schema)
        assert got["record_key"] == (f"message:{row.message_id}" if key is None else f"key:{key}")
        assert got["period_reference"] == period_of(row, flat, schema)
        assert got["order_ts"] == published(row)
        assert got["last_updated_ts"] == (version if isinstance(version, datetime) else published(row))
        assert got["_version"] == (version if isinstance(version, Decimal) else None)
        assert [got[name] for name in COUNTED] == [
            form is not None and "$.v" not in flat.cells,
            version is None,
            period is not None and not is_period(period),
            is_ahead(row),
        ]
