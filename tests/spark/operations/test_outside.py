"""Outside tools, begun batches and wrong keys: nothing doubles, and nothing leaves Curated unasked."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leanops.adapters.iceberg.tasks.stored import Layout
from leanops.adapters.iceberg.tasks.written import write_rows
from leanops.domain.errors import CommitRefusedError, UsageError
from leanops.domain.table.history import valid_watermark
from leanops.domain.table.operation import Accept, Scope
from leanops.ports.engine import Engine, Target, Written
from leanops.usecases.cycle.retry import retry_topic
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.operations.execute import resume
from leanops.usecases.operations.plan_rollback import plan_rollback, roll_back_topic
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.platform import Platform, Secret
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from leanops.usecases.topics.registry import resume_topic
from leanops.views.balance import whole_topic
from tests.crash.batches import BY_ORDER, SCHEMA, orders
from tests.crash.cycles.test_abandonment import stop_at
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.support.builders import column, schema_text
from tests.support.verify import assert_curated, assert_errors, assert_standardized, sources_of
from tests.support.world import PII_KEY, Abandoned, World, Wrapped


def compact_and_expire(world: World, table: str) -> None:
    """What a table service does by its defaults: rewrite the files, then keep one snapshot."""
    spark = world.embedded.spark()
    spark.sql(f"CALL leanops.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    spark.sql(
        f"CALL leanops.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '2099-01-01', "
        "retain_last => 1)"
    )


def head(world: World, table: str) -> int | None:
    return world.embedded.platform.catalog.load(table).head


def assert_whole(world: World, model: Model) -> None:
    """Every row is the model's, and the books agree with the tables."""
    assert_standardized(world, "orders", model)
    assert_curated(world, "orders", model)
    assert_errors(world.errors(world.databases.errors, "orders"), model.errors)
    mark = valid_watermark(world.embedded.platform.catalog.load(world.databases.standardized_table("orders")))
    assert mark is not None
    mark.totals.check()
    assert mark.totals.rows == len(world.standardized("orders"))
    balance = whole_topic(sources_of(world), "orders")
    assert balance.balanced, balance.complaints()


class Story:
    """Batches of orders, in the tables and in the model."""

    def __init__(self, world: World, schema: dict[str, Any] = SCHEMA) -> None:
        self.world, self.rows = world, iter(orders(random.Random(11), 200))
        world.add("orders", json.dumps(schema))
        self.model = Model("orders", schema, pii_key=PII_KEY)

    def batch(self, size: int = 10) -> str:
        """One batch through both layers; how it ended."""
        rows = [next(self.rows) for _ in range(size)]
        self.world.publish("orders", rows)
        outcome = self.world.cycle()["orders"].outcome
        self.model.standardize(rows)
        self.model.curate()
        return outcome


@pytest.mark.parametrize("layer", ["standardized", "curated", "both"])
def test_a_watermark_expired_from_outside_doubles_nothing(world: World, layer: str) -> None:
    story = Story(world)
    story.batch()
    story.batch()
    if layer != "curated":
        compact_and_expire(world, world.databases.standardized_table("orders"))
    if layer != "standardized":
        compact_and_expire(world, world.databases.curated_table("orders"))
    assert story.batch() == "gap"
    assert_whole(world, story.model)
    assert story.batch() == "done"
    assert_whole(world, story.model)


def test_an_operation_on_a_table_without_its_watermark_says_what_to_do(world: World) -> None:
    story = Story(world)
    story.batch()
    compact_and_expire(world, world.databases.standardized_table("orders"))
    with pytest.raises(UsageError, match="has lost its watermark"):
        rebuild_topic(world.platform(), "orders", scope=Scope.CURATED)
    rebuild_topic(world.platform(), "orders", accept=Accept.ALL)
    assert story.batch() == "done"
    assert_standardized(world, "orders", story.model)


def numbers(first: int, last: int, **more: Any) -> list[RawRow]:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    return [
        RawRow(
            f"m{number}",
            moment,
            "orders",
            json.dumps({"_metadata": {"idempotencyKeyResource": f"k{number}"}, "a": number, **more}),
            1_000 + number,
        )
        for number in range(first, last)
    ]


def test_a_watermark_expired_from_outside_doubles_no_key_of_a_topic_without_a_schema(world: World) -> None:
    world.with_rules(pipeline={"explore": True})
    world.add("orders")
    world.publish("orders", numbers(0, 4))
    assert world.cycle()["orders"].outcome == "standardized_only"
    compact_and_expire(world, world.databases.standardized_table("orders"))
    assert world.cycle()["orders"].outcome == "gap"
    assert len(world.standardized("orders")) == 4
    for turn in (1, 2):
        corrected = [
            replace(row, message_id=f"{row.message_id}-{turn}", publish_time=row.publish_time + timedelta(hours=turn))
            for row in numbers(0, 2, turn=turn)
        ]
        world.publish("orders", corrected)
        assert world.cycle()["orders"].outcome == "standardized_only"
        assert len(world.standardized("orders")) == 4
    found = {row["idempotency_key"]: row["turn"] for row in world.standardized("orders")}
    assert found == {"k0": "2", "k1": "2", "k2": None, "k3": None}
    mark = valid_watermark(world.embedded.platform.catalog.load(world.databases.standardized_table("orders")))
    assert mark is not None
    assert (mark.totals.rows, mark.totals.updated) == (4, 4)
    balance = whole_topic(sources_of(world), "orders")
    assert balance.balanced, balance.complaints()


def test_expiry_takes_no_row_out_of_curated_that_a_stricter_schema_left_there(world: World) -> None:
    world.add("orders", schema_text(column("a", type="BIGINT")))
    world.publish("orders", numbers(0, 4))
    world.cycle()
    stricter = schema_text(column("a", type="BIGINT"), column("b", path="$.b", cde=True), version=2)
    deploy_schema(world.platform(), "orders", stricter, "f", Consent(recurate=False))
    world.publish("orders", numbers(4, 6, b="there"))
    parked = world.platform(engine=lambda: Unable(world.engine(), world.databases.curated_table("orders")))
    assert world.cycle(parked)["orders"].outcome == "failed"
    compact_and_expire(world, world.databases.standardized_table("orders"))
    world.settle()
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(6))
    assert unfinished_operation(world.platform(), "orders") is None


@pytest.mark.parametrize("outside", ["append", "expiry"])
def test_a_swap_that_others_came_between_goes_on_once_a_person_lets_their_rows_go(world: World, outside: str) -> None:
    story = Story(world)
    for _ in range(2):
        story.batch()
    curated = world.databases.curated_table("orders")

    def stop(name: str) -> None:
        if name == "after replace standardized":
            raise Abandoned(name)

    with pytest.raises(Abandoned):
        rebuild_topic(world.platform(step=stop), "orders", accept=Accept.ALL)
    world.wait_for_leases()
    if outside == "append":
        row = world.curated("orders")[0]
        world.embedded.platform.catalog.append(curated, [{**row, "idempotency_key": "foreign"}])
    else:
        compact_and_expire(world, curated)
    with pytest.raises(CommitRefusedError, match=r"changed by another writer.* --resume --accept-missing all"):
        resume(world.platform(), "orders")
    resume(world.platform(), "orders", accept=Accept.ALL)
    assert unfinished_operation(world.platform(), "orders") is None
    world.settle()
    story.model.rebuild([row for _, rows in world.published["orders"] for row in rows])
    assert_whole(world, story.model)


class Unable(Wrapped):
    """An engine that cannot write one of the tables."""

    def __init__(self, engine: Engine, table: str) -> None:
        super().__init__(engine)
        self._table = table

    def commit(self, target: Target, *rest: Any) -> None:
        if target.table == self._table:
            raise UsageError("this table cannot be written now")
        self.engine.commit(target, *rest)


def test_a_table_rolled_back_from_outside_is_seen_even_after_the_next_batch(world: World) -> None:
    story = Story(world)
    story.batch()
    standardized = world.databases.standardized_table("orders")
    before = head(world, standardized)
    story.batch()
    world.embedded.spark().sql(f"CALL leanops.system.rollback_to_snapshot('{standardized}', {before})")
    rows = [next(story.rows) for _ in range(10)]
    world.publish("orders", rows)
    assert world.cycle()["orders"].outcome == "gap"
    story.model.standardize(rows)
    story.model.curate()
    world.settle()
    assert_standardized(world, "orders", story.model)
    assert {row["idempotency_key"] for row in world.curated("orders")} == story.model.curated.keys()


def test_a_rollback_and_the_next_batch_leave_curated_as_it_is(world: World) -> None:
    story = Story(world)
    story.batch()
    before = head(world, world.databases.standardized_table("orders"))
    story.batch()
    planned = plan_rollback(world.platform(), "orders", snapshot=before)
    roll_back_topic(world.platform(), planned, accept=Accept.ALL)
    resume_topic(world.platform(), "orders")
    assert story.batch() == "done"
    assert_standardized(world, "orders", story.model)
    assert {row["idempotency_key"] for row in world.curated("orders")} == story.model.curated.keys()


def test_a_batch_begun_under_other_keys_is_not_repeated_with_them(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    rows = orders(random.Random(4), 20)
    world.publish("orders", rows)
    with pytest.raises(Abandoned):
        world.cycle(world.platform(step=stop_at(2)))
    world.wait_for_leases()
    deploy_schema(world.platform(), "orders", json.dumps(BY_ORDER), "f", Consent(rebuild=True))
    world.settle()
    mark = valid_watermark(world.embedded.platform.catalog.load(world.databases.standardized_table("orders")))
    assert mark is not None
    assert mark.schema_version == 2
    model = Model("orders", {**BY_ORDER, "version": 2}, pii_key=PII_KEY)
    model.standardize(rows)
    model.curate()
    assert_whole(world, model)


SEALED = schema_text(column("a", type="BIGINT"), keys={"pii": "hmac"})


def with_key(platform: Platform, key: bytes) -> Platform:
    return replace(platform, secret=Secret(key, "test-key"))


def test_a_cycle_with_another_key_is_refused_and_changes_nothing(world: World) -> None:
    world.add("orders", SEALED)
    world.publish("orders", numbers(0, 2))
    world.cycle()
    world.publish("orders", numbers(0, 3))
    other = with_key(world.platform(), b"another key of sixteen bytes")
    result = world.cycle(other)["orders"]
    assert (result.outcome, len(world.standardized("orders"))) == ("failed", 2)
    assert "sealed with another HMAC key" in str(result.reason)
    with pytest.raises(UsageError, match="--new-key"):
        rebuild_topic(other, "orders")
    assert world.cycle()["orders"].outcome == "done"
    assert (len(world.standardized("orders")), len(world.curated("orders"))) == (3, 3)


def test_a_rebuild_may_seal_everything_with_a_new_key(world: World) -> None:
    world.add("orders", SEALED)
    world.publish("orders", numbers(0, 3))
    world.cycle()
    before = {row["idempotency_key"] for row in world.curated("orders")}
    other = with_key(world.platform(), b"another key of sixteen bytes")
    rebuild_topic(other, "orders", new_key=True, accept=Accept.ALL)
    after = {row["idempotency_key"] for row in world.curated("orders")}
    assert (len(after), after & before) == (3, set())
    world.publish("orders", numbers(3, 4))
    assert "sealed with another HMAC key" in str(world.cycle()["orders"].reason)
    other = with_key(world.platform(), b"another key of sixteen bytes")
    assert world.cycle(other, force=True)["orders"].outcome == "done"


class Losing(Wrapped):
    """An engine that commits one row less than it was given."""

    def __init__(self, world: World) -> None:
        super().__init__(world.engine())
        self.catalog = world.embedded.catalog

    def commit(self, target: Target, written: Written, summary: Mapping[str, str]) -> None:
        table = self.catalog.load_table(target.table)
        rows = [pq.read_table(urlparse(file.file_path).path) for file in written.files]
        files = write_rows(table.io, Layout.of(table), [pa.concat_tables(rows).slice(1)])
        self.engine.commit(target, replace(written, files=tuple(files)), summary)


WAYS_OUT: list[Callable[[Platform], Any]] = [
    lambda platform: rebuild_topic(platform, "orders", accept=Accept.ALL),
    lambda platform: retry_topic(platform, "orders", accept_counts=True),
]


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=["rebuild", "accept"])
def test_after_a_count_that_does_not_match_there_is_a_way_out(world: World, way_out: Callable[[Platform], Any]) -> None:
    world.add("orders", schema_text(column("a", type="BIGINT")))
    world.publish("orders", numbers(0, 3))
    lossy = world.platform(engine=lambda: Losing(world))
    result = world.cycle(lossy)["orders"]
    assert "added 2 rows, not 3" in str(result.reason)
    assert world.cycle(force=True)["orders"].outcome == "failed"
    way_out(world.platform())
    world.publish("orders", numbers(3, 5))
    assert world.cycle(force=True)["orders"].outcome == "done"
    assert world.cycle()["orders"].outcome == "no_new_data"


def test_a_rebuild_reads_a_day_before_the_gregorian_calendar(world: World) -> None:
    world.add("orders", schema_text(column("a", type="BIGINT")))
    old = [replace(row, publish_time=datetime(1500, 3, 1, tzinfo=UTC)) for row in numbers(0, 2)]
    world.publish("orders", old)
    world.cycle()
    rebuild_topic(world.platform(), "orders")
    assert len(world.curated("orders")) == 2


def test_a_cycle_that_rebuilds_curated_asks_before_keys_leave_that_a_stricter_schema_refuses(world: World) -> None:
    world.add("orders", schema_text(column("a", type="BIGINT")))
    world.publish("orders", numbers(0, 4))
    world.cycle()
    name = world.databases.standardized_table("orders")
    catalog = world.embedded.platform.catalog
    before = catalog.load(name).head
    stricter = schema_text(column("a", type="BIGINT"), column("b", path="$.b", cde=True), version=2)
    deploy_schema(world.platform(), "orders", stricter, "f", Consent(recurate=False))
    world.publish("orders", numbers(4, 6, b="there"))
    world.cycle()
    catalog.roll_back(name, before, only_at=catalog.load(name).head)
    result = world.cycle()["orders"]
    assert "4 keys" in str(result.reason)
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(6))
    assert unfinished_operation(world.platform(), "orders") is not None
    resume(world.platform(), "orders", accept=4)
    assert sorted(row["a"] for row in world.curated("orders")) == [4, 5]
