"""RAW rows become cells, in the workers."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.payload.fast_flatten import Layout
from leanops.domain.table.definitions import NUMBER
from leanops.transforms.flatten import RAW_COLUMNS, FlattenPlan, flattened
from leanops.transforms.keys import COUNTED


def cells(raw: DataFrame, plan: FlattenPlan) -> DataFrame:
    """The RAW rows, flattened, with a number each in `row`."""
    types = (
        "message_id string, publish_time timestamp, ingestion_ts bigint, _payload_hash bigint, idempotency_key string, "
        f"record_key string, period_reference string, order_ts timestamp, last_updated_ts timestamp, _version {NUMBER}"
    )
    columns = [
        types,
        *(f"{name} boolean" for name in COUNTED),
        "rule string, problem string",
        *(f"{name} string" for name in plan.columns),
        "extra map<string,string>, observed string",
    ]
    read = raw.select(*RAW_COLUMNS).mapInArrow(_Flattener(plan), ", ".join(columns))
    return read.select(F.monotonically_increasing_id().alias("row"), "*")


class _Flattener:
    """The function that runs in the workers; the layout is compiled there, once per task."""

    def __init__(self, plan: FlattenPlan) -> None:
        self.plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = Layout(self.plan.expected, self.plan.limits)
        for batch in batches:
            if batch.num_rows:
                yield flattened(batch, layout, self.plan)
