"""What a plan asks for, reads at once and sends: no more than it needs."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess, Shuffled, _Here
from leanops.adapters.iceberg.operations import trial_tasks
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks import places
from leanops.adapters.iceberg.tasks.rows import ROWS_OF_PAYLOADS
from leanops.domain.errors import UsageError
from leanops.domain.schema.plan import SchemaPlan
from leanops.transforms.flatten import FlattenPlan
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.plan import plan_schema
from tests.oracle.rows import LANDED, RawRow
from tests.support.builders import column, schema, schema_text
from tests.support.world import World

KEYS = {"idempotency_key": "$.id"}
SEALED = {**KEYS, "pii": "hmac"}
OTHER = {"idempotency_key": "$.b"}


def with_orders(world: World, batches: int, rows: int, **members: Any) -> Platform:
    """A topic with so many files of so many rows each in RAW, and what a cycle makes of them."""
    world.add("orders", schema_text(column("a"), **members))
    for batch in range(batches):
        world.publish("orders", [_event(batch * rows + at) for at in range(rows)])
    world.cycle()
    return world.platform()


def _event(number: int) -> RawRow:
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    payload = json.dumps({"id": f"k{number}", "a": "x" * (1 + number % 2), "b": f"b{number}"})
    return RawRow(f"m{number}", moment, "orders", payload, LANDED + number)


def planned(platform: Platform, *columns: dict[str, Any], sample: int | None = None, **members: Any) -> SchemaPlan:
    return plan_schema(platform, "orders", schema(*columns, **members), sample=sample)


def test_a_plan_that_does_not_read_raw_needs_no_key_of_hmacs(world: World) -> None:
    platform = replace(with_orders(world, 1, 2, keys=SEALED), secret=None)
    plan = planned(platform, column("a"), column("b"), keys=SEALED)
    assert (plan.source, plan.judged, plan.changed) == ("standardized", 2, 2)
    with pytest.raises(UsageError, match="set LEANOPS_PII_KEY"):
        planned(platform, column("a"), keys={**SEALED, **OTHER})


def test_the_key_of_hmacs_is_gone_as_soon_as_events_are_flattened(world: World, monkeypatch: Any) -> None:
    platform, plans, shuffle = with_orders(world, 1, 2, keys=SEALED), list[FlattenPlan](), _Here.shuffle

    def noted(self: _Here, further: Any, spread: Any, items: Any, parts: int) -> Shuffled:
        plans.extend(one.trying.plan for one in (further, spread))
        return shuffle(self, further, spread, items, parts)

    monkeypatch.setattr(_Here, "shuffle", noted)
    strict = column("a", rules={"max_length": 1})
    assert planned(platform, strict, keys=SEALED).leaving == 1
    assert planned(platform, strict, keys={**SEALED, **OTHER}).source == "raw"
    assert [plan.key_secret for plan in plans] == [None] * 4


class Parts(InProcess):
    """Notes into how many parts rows are shuffled."""

    def __init__(self) -> None:
        self.parts = list[int]()

    def shuffle(self, spread: Any, items: Sequence[Any], parts: int) -> Shuffled:
        self.parts.append(parts)
        return super().shuffle(spread, items, parts)


def test_there_are_as_many_parts_as_the_rows_that_are_read_need(world: World) -> None:
    with_orders(world, 4, 20, keys=KEYS)
    runner = Parts()
    engine = TaskEngine(world.embedded.catalog, runner, TaskRules(task_rows=5))
    platform = world.platform(engine=lambda: engine)
    # Ten rows of 80 are one part, and of the live ones eighty.
    planned(platform, column("a"), column("b"), keys=KEYS)
    planned(platform, column("a"), column("b"), keys=KEYS, sample=10)
    planned(platform, column("a", rules={"max_length": 1}), keys=KEYS)
    planned(platform, column("a"), keys=OTHER)
    assert runner.parts == [9, 2, 9, 17, 9]


def test_what_many_tasks_send_to_a_part_is_judged_at_once(world: World, monkeypatch: Any) -> None:
    platform, calls = with_orders(world, 12, 20, keys=KEYS), Counter[str]()
    world.tasks = TaskRules(task_rows=20)

    def counting(name: str, does: Any, *given: Any, **named: Any) -> Any:
        calls[name] += 1
        return does(*given, **named)

    for name in ("arrivals", "Outcomes", "table_rows"):
        monkeypatch.setattr(trial_tasks, name, partial(counting, name, getattr(trial_tasks, name)))
    plan = planned(platform, column("a"), keys=OTHER)
    assert (plan.source, plan.judged) == ("raw", 240)
    assert calls == {"arrivals": 7, "Outcomes": 7}, "once in every part"
    calls.clear()
    plan = planned(platform, column("a", rules={"max_length": 1}), keys=KEYS)
    assert (plan.source, plan.judged, plan.failing, plan.leaving) == ("standardized", 240, 120, 120)
    assert calls["table_rows"] <= 13


def test_no_plan_reads_more_payloads_at_once_than_a_task_can_hold(world: World, monkeypatch: Any) -> None:
    platform, read, steps = with_orders(world, 1, 2, keys=KEYS), places.live_pieces, set[int]()

    def noted(*given: Any, at_once: int, **named: Any) -> Any:
        steps.add(at_once)
        return read(*given, at_once=at_once, **named)

    monkeypatch.setattr(places, "live_pieces", noted)
    planned(platform, column("a", rules={"max_length": 1}), keys=KEYS)
    planned(platform, column("a"), keys=OTHER)
    assert steps == {ROWS_OF_PAYLOADS}
