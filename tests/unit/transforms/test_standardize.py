"""Rows of Standardized depend on the event alone, not on what its batch expected."""

from datetime import UTC, datetime
from itertools import combinations

import pyarrow as pa

from leanops.domain.limits import Limits
from leanops.domain.payload.fast_flatten import Layout
from leanops.transforms.flatten import FlattenPlan, flattened
from leanops.transforms.standardize import table_rows

PAYLOAD = '{"d": 4, "a": {"x": 1}, "b": "é", "c": null}'
PATHS = {"$.d": "number", "$.a.x": "number", "$.b": "string"}


def rescued(expected: tuple[str, ...]) -> str | None:
    """What is rescued of an event without columns, where these paths were expected."""
    plan = FlattenPlan({path: PATHS[path] for path in expected}, Limits(), "$.key", (), None)
    raw = {
        "message_id": ["m"],
        "publish_time": pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "json_payload": [PAYLOAD],
        "ingestion_ts": [0],
        "idempotency_key": ["k"],
    }
    cells = flattened(pa.RecordBatch.from_pydict(raw), Layout(plan.expected, plan.limits), plan)
    positions = dict(zip(plan.expected, plan.columns, strict=True))
    rows = table_rows(cells, pa.chunked_array([[0]]), {}, positions)
    text: str | None = rows.column("_rescued")[0].as_py()
    return text


def test_what_is_rescued_is_the_same_text_whatever_the_batch_expected() -> None:
    expected = [chosen for size in range(len(PATHS) + 1) for chosen in combinations(PATHS, size)]
    assert {rescued(paths) for paths in expected} == {'{"$.a.x":"1","$.b":"é","$.d":"4"}'}
