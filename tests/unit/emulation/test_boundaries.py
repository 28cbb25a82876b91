"""Which batch read which row of RAW, over everything that happens to a table meanwhile."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from leanops.domain.errors import EmulationError
from leanops.domain.table.balance import StandardizedCounts
from leanops.domain.table.batch import CURATED, STANDARDIZED, Batch
from leanops.domain.table.definitions import OPS, RAW
from leanops.domain.table.definitions import STANDARDIZED as STANDARDIZED_TABLE
from leanops.domain.table.history import TableView, watermark_of
from leanops.emulation.verify.boundaries import boundaries_of, local
from leanops.runtimes.embedded import Embedded, create_home

TOPIC, RAW_TABLE, TABLE = "orders", "iceberg_raw_db.orders_staging", "iceberg_standardized_db.orders"
HISTORY = "ops_db.job_run_history"
NOW = datetime(2026, 10, 30, tzinfo=UTC)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Embedded]:
    runtime = Embedded(create_home(tmp_path / "home"))
    yield runtime
    runtime.close()


def land(runtime: Embedded, flush: int, expired: Sequence[int] = ()) -> int:
    """One row in RAW, perhaps with an expiry in the same commit; the snapshot that has it."""
    row = dict.fromkeys(RAW.columns) | {"message_id": str(flush), "publish_time": NOW, "ingestion_ts": flush}
    columns = {name: [value] for name, value in row.items()}
    runtime.platform.catalog.land(RAW_TABLE, RAW, columns, {}, lambda _table: expired)
    head = raw(runtime).head
    assert head is not None
    return head


def raw(runtime: Embedded) -> TableView:
    table = runtime.platform.catalog.load(RAW_TABLE)
    assert table is not None
    return table


def run(layer: str, batch_id: str, source_from: int | None, source_to: int) -> dict[str, Any]:
    """A line of the run history."""
    return {
        "topic_name": TOPIC, "layer": layer, "batch_id": batch_id, "source_from": source_from, "source_to": source_to
    }  # fmt: skip


def record(runtime: Embedded, *runs: dict[str, Any]) -> None:
    runtime.platform.catalog.create(HISTORY, OPS["job_run_history"])
    for one in runs:
        runtime.platform.catalog.append(HISTORY, [one])


def read_by(runtime: Embedded) -> dict[int, int | None]:
    """Flush → the batch that read it."""
    files = boundaries_of(runtime, TOPIC).files
    return {pq.read_table(file)["ingestion_ts"][0].as_py(): batch for file, batch in files.items()}


def committed(runtime: Embedded, batch_id: str, batch_seq: int) -> None:
    """A batch of Standardized, as its snapshot tells of it."""
    batch = Batch(batch_id, TOPIC, STANDARDIZED, "", None, 0, 0, 1, batch_seq, 0, 1)
    mark = watermark_of(batch, StandardizedCounts(1, 1, 0, 0, 0, 0))
    runtime.platform.catalog.append(TABLE, [{"record_key": batch_id}], mark.summary())


def test_a_batch_that_was_recorded_late_stands_where_it_read(runtime: Embedded) -> None:
    at = [land(runtime, flush) for flush in range(6)]
    record(
        runtime,
        run(STANDARDIZED, "second", at[1], at[3]),
        run(STANDARDIZED, "third", at[3], at[4]),
        run(STANDARDIZED, "first", None, at[1]),
    )
    assert [one.batch_id for one in boundaries_of(runtime, TOPIC).standardized] == ["first", "second", "third"]
    assert read_by(runtime) == {0: 1, 1: 1, 2: 2, 3: 2, 4: 3, 5: None}


def test_without_a_batch_nothing_is_read(runtime: Embedded) -> None:
    land(runtime, 0)
    assert read_by(runtime) == {0: None}


def test_expired_snapshots_and_merged_manifests_change_no_boundary(runtime: Embedded) -> None:
    flushes, at = 120, list[int]()
    for flush in range(flushes):
        at.append(land(runtime, flush, at[flush - 30 : flush - 29] if flush >= 30 else ()))
    table = runtime.catalog.load_table(RAW_TABLE)
    head = table.current_snapshot()
    assert head is not None
    assert len(head.manifests(table.io)) < flushes
    assert at[40] not in raw(runtime).snapshots
    record(
        runtime,
        run(STANDARDIZED, "third", at[60], at[110]),
        run(STANDARDIZED, "first", None, at[40]),
        run(STANDARDIZED, "second", at[40], at[60]),
    )
    expected = {flush: 1 if flush <= 40 else 2 if flush <= 60 else 3 if flush <= 110 else None for flush in range(120)}
    assert read_by(runtime) == expected


def test_a_curated_batch_reads_the_batches_its_batch_seqs_name_though_some_are_no_batch(runtime: Embedded) -> None:
    at = [land(runtime, flush) for flush in range(4)]
    runtime.platform.catalog.create(TABLE, STANDARDIZED_TABLE)
    committed(runtime, "first", 1)
    # What a stalled writer commits late holds nothing, and still takes a number.
    runtime.platform.catalog.append(TABLE, [{"record_key": "nothing"}])
    for batch_seq, name in ((3, "second"), (4, "third"), (5, "fourth")):
        committed(runtime, name, batch_seq)
    names = ("first", "second", "third", "fourth")
    starts = (None, *at)
    record(
        runtime,
        *(run(STANDARDIZED, name, starts[number], at[number]) for number, name in enumerate(names)),
        run(CURATED, "c-2", 1, 4),
        run(CURATED, "c-3", 4, 5),
        run(CURATED, "c-1", 0, 1),
    )
    ranges = [(one.batch_id, one.source_from, one.source_to) for one in boundaries_of(runtime, TOPIC).curated]
    assert ranges == [("c-1", 0, 1), ("c-2", 1, 3), ("c-3", 3, 4)]


def test_a_batch_that_ended_at_a_snapshot_nobody_knows_is_refused(runtime: Embedded) -> None:
    at = land(runtime, 0)
    record(runtime, run(STANDARDIZED, "first", None, at), run(STANDARDIZED, "second", at, at + 1))
    with pytest.raises(EmulationError, match=r"^batch second ended at a snapshot that iceberg_raw_db\.orders_staging"):
        boundaries_of(runtime, TOPIC)


def test_a_batch_that_standardized_does_not_have_is_refused_where_its_place_is_needed(runtime: Embedded) -> None:
    at = [land(runtime, flush) for flush in range(2)]
    runtime.platform.catalog.create(TABLE, STANDARDIZED_TABLE)
    committed(runtime, "first", 1)
    record(runtime, run(STANDARDIZED, "first", None, at[0]), run(STANDARDIZED, "lost", *at), run(CURATED, "c-1", 0, 2))
    with pytest.raises(EmulationError, match=r"^the run history has batch lost, which Standardized does not know"):
        boundaries_of(runtime, TOPIC)


def test_batches_that_do_not_begin_where_the_one_before_ended_are_told(runtime: Embedded) -> None:
    at = [land(runtime, flush) for flush in range(4)]
    runtime.platform.catalog.create(TABLE, STANDARDIZED_TABLE)
    for batch_seq, name in enumerate(("first", "second", "third"), start=1):
        committed(runtime, name, batch_seq)
    record(
        runtime,
        run(STANDARDIZED, "first", None, at[0]),
        run(STANDARDIZED, "second", at[1], at[2]),
        run(STANDARDIZED, "third", at[2], at[3]),
        run(CURATED, "c-1", 0, 1),
        run(CURATED, "c-2", 2, 3),
    )
    assert boundaries_of(runtime, TOPIC).apart == {
        "second": f"began at {at[1]}, but the batch before it ended at {at[0]}",
        "c-2": "began at 2, but the batch before it ended at 1",
    }


def test_a_count_that_is_null_is_none(runtime: Embedded) -> None:
    at = land(runtime, 0)
    record(runtime, run(STANDARDIZED, "first", None, at) | {"rows_read": 7, "inserted": 0, "updated": None})
    (found,) = boundaries_of(runtime, TOPIC).standardized
    assert found.counts == {"read": 7, "inserted": 0}


@pytest.mark.parametrize("uri", ["/data/a:b/x", "file:/data/a:b/x", "file:///data/a:b/x"])
def test_a_file_has_one_path_however_it_is_written(uri: str) -> None:
    assert local(uri) == "/data/a:b/x"
