"""Comparisons and retired rows against a model of sets, over many small files and tasks."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table.batch import STANDARDIZED as LAYER
from leanops.domain.table.batch import Batch
from leanops.domain.table.definitions import CURATED, ERRORS, RAW, STANDARDIZED
from leanops.ports.engine import Curations, TableAt, Target
from tests.unit.adapters.batches.tables import catalog_in

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
DEFINITIONS = {
    "new": CURATED,
    "live": CURATED,
    "standardized": STANDARDIZED,
    "raw": RAW,
    "errors": ERRORS,
    "parse_errors": ERRORS,
    "kept": STANDARDIZED,
}


@dataclass
class Tables:
    """Some tables of one topic, each row written in some small append."""

    catalog: IcebergCatalog
    engine: TaskEngine

    def write(self, name: str, rows: Sequence[Mapping[str, Any]], chance: random.Random) -> TableAt:
        table, definition = f"db.{name}", DEFINITIONS[name]
        self.catalog.create(table, definition)
        rest = list(rows)
        while rest:
            size = chance.randrange(1, 6)
            self.catalog.append(table, rest[:size])
            rest = rest[size:]
        view = self.catalog.load(table)
        assert view is not None
        return TableAt(table, view.head)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    with catalog_in(tmp_path) as catalog:
        yield Tables(
            IcebergCatalog(catalog), TaskEngine(catalog, InProcess(), TaskRules(task_rows=7, task_bytes=4_000))
        )


def curated(key: str, message: str) -> dict[str, Any]:
    return {
        "idempotency_key": key,
        "message_id": message,
        "topic_name": "orders",
        "period_reference": "2026-03",
        "publish_time": DAY,
        "last_updated_ts": DAY + timedelta(seconds=len(message)),
    }


def standardized(key: str | None, message: str) -> dict[str, Any]:
    record_key = f"key:{key}" if key else f"message:{message}"
    return {**curated(key or "", message), "idempotency_key": key, "record_key": record_key}


def raw(message: str) -> dict[str, Any]:
    return {"message_id": message, "publish_time": DAY, "topic_name": "orders", "json_payload": "{}", "ingestion_ts": 1}


def error(key: str | None, message: str) -> dict[str, Any]:
    record_key = f"key:{key}" if key else None
    known = {"record_key": record_key, "message_id": message, "topic_name": "orders", "failures": []}
    return {**known, "error_id": message, "detected_ts": DAY, "batch_id": "b"}


@pytest.mark.parametrize("same_keys", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_every_key_that_leaves_is_explained_as_the_model_says(tables: Tables, seed: int, same_keys: bool) -> None:
    chance = random.Random(seed)
    keys = [f"k{number}" for number in range(40)]
    live = {key: f"m-{key}" for key in keys if chance.random() < 0.8}
    new = {key: chance.choice([f"m-{key}", f"n-{key}"]) for key in keys if chance.random() < 0.6}
    current = {key: chance.choice([f"m-{key}", f"n-{key}"]) for key in keys if chance.random() < 0.8}
    failed = {key: chance.choice([f"m-{key}", f"n-{key}"]) for key in keys if chance.random() < 0.3}
    unread = {f"m-{key}" for key in keys if chance.random() < 0.1}
    messages = {f"{one}-{key}" for one in "mn" for key in keys if chance.random() < 0.7}
    work = Curations(
        topic="orders",
        new=tables.write("new", [curated(*one) for one in new.items()], chance),
        live=tables.write("live", [curated(*one) for one in live.items()], chance),
        standardized=tables.write("standardized", [standardized(*one) for one in current.items()], chance),
        raw=tables.write("raw", [raw(message) for message in sorted(messages)], chance),
        errors=tables.write("errors", [error(*one) for one in failed.items()], chance),
        parse_errors=tables.write("parse_errors", [error(None, one) for one in sorted(unread)], chance),
        same_keys=same_keys,
    )
    if same_keys:
        leaving = live.keys() - new.keys()
        fails = {key for key in leaving if key in failed or live[key] in unread}
    else:
        refused = {*failed.values(), *unread}
        leaving = {key for key, message in live.items() if message in refused or message not in messages}
        fails = set(leaving)
    known = {*messages, *current.values()}
    failing = {key for key in fails if live[key] in known}
    gone = leaving - failing - current.keys()

    found = tables.engine.compare(work)

    assert (found.rows_before, found.rows_after) == (len(live), len(new))
    assert (found.failing, found.gone, found.lost) == (len(failing), len(gone), len(leaving - failing - gone))
    some = (leaving - failing) or failing
    assert len(found.examples) == min(5, len(some))
    assert set(found.examples) <= {live[key] for key in some}
    assert (found.checksum_before == found.checksum_after) == (live == new)


def test_the_same_rows_in_any_order_and_cut_have_the_same_checksum(tables: Tables) -> None:
    chance, rows = random.Random(1), [curated(f"k{number}", f"m{number}") for number in range(30)]
    nothing = TableAt("db.none", None)
    places = {"standardized": nothing, "raw": nothing, "errors": nothing, "parse_errors": nothing, "topic": "orders"}
    live, new = tables.write("live", rows, chance), tables.write("new", rows[::-1], chance)
    same = tables.engine.compare(Curations(new=new, live=live, same_keys=True, **places))
    assert (same.rows_before, same.checksum_before) == (30, same.checksum_after)
    changed = tables.write("new", [curated("k30", "m30")], chance)
    more = tables.engine.compare(Curations(new=changed, live=live, same_keys=True, **places))
    assert (more.checksum_before, more.missing) == (same.checksum_before, 0)
    assert more.checksum_after != same.checksum_after
    first = tables.engine.compare(Curations(new=new, live=nothing, same_keys=False, **places))
    assert (first.rows_before, first.rows_after, first.checksum_before, first.missing) == (0, 30, "0", 0)


@pytest.mark.parametrize("same_keys", [True, False])
def test_a_new_table_that_has_a_key_twice_is_refused(tables: Tables, same_keys: bool) -> None:
    chance, nothing = random.Random(1), TableAt("db.none", None)
    new = tables.write("new", [curated("a", "m1"), curated("b", "m2"), curated("a", "m3")], chance)
    live = tables.write("live", [curated("a", "m1")], chance)
    raws = tables.write("raw", [raw("m1")], chance)
    work = Curations("orders", new, live, nothing, raws, nothing, nothing, same_keys)
    with pytest.raises(UnbalancedBatchError, match="built 3 rows for 2 keys"):
        tables.engine.compare(work)


@pytest.mark.parametrize("same_keys", [True, False])
def test_a_new_table_with_a_row_that_has_no_key_is_refused(tables: Tables, same_keys: bool) -> None:
    chance, nothing = random.Random(1), TableAt("db.none", None)
    new = tables.write("new", [curated("a", "m1"), {**curated("", "m2"), "idempotency_key": None}], chance)
    work = Curations("orders", new, nothing, nothing, nothing, nothing, nothing, same_keys)
    with pytest.raises(UnbalancedBatchError, match="built 2 rows for 1 key;"):
        tables.engine.compare(work)


@pytest.mark.parametrize("seed", range(3))
def test_rows_whose_event_has_left_raw_are_written_again_as_those_of_the_batch(tables: Tables, seed: int) -> None:
    chance = random.Random(seed)
    rows = [{**standardized(f"k{number}", f"m{number}"), "_batch_seq": 3, "_batch_id": "old"} for number in range(40)]
    stored = tables.write("standardized", rows, chance)
    in_raw = {row["message_id"] for row in rows if chance.random() < 0.5}
    found = tables.engine.retired(stored, tables.write("raw", [raw(one) for one in sorted(in_raw)], chance))
    assert found.rows == 40 - len(in_raw)
    tables.write("kept", [], chance)
    kept = tables.catalog.load("db.kept")
    batch = Batch("new", "orders", LAYER, "u", None, 1, 1, 40, batch_seq=9, batch_time_ms=0, schema_version=1)
    target = Target("db.kept", kept.uuid, None, "db.errors")
    written = tables.engine.keep(found, batch, target, {"first_seen_ts": "first_seen_ts"})
    assert written.added == found.rows
    tables.engine.commit(target, written, {})
    columns = ["record_key", "message_id", "topic_name", "period_reference", "publish_time", "_batch_seq", "_batch_id"]
    expected = [{**row, "_batch_seq": 9, "_batch_id": "new"} for row in rows if row["message_id"] not in in_raw]
    found_rows = sorted(tables.catalog.select("db.kept", columns), key=lambda row: row["record_key"])
    assert found_rows == sorted(
        ({name: row[name] for name in columns} for row in expected), key=lambda row: row["record_key"]
    )
