"""A schema inferred from RAW takes every event it was made from."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leanops.adapters.iceberg.operations import measure
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks import raw
from leanops.domain.errors import UsageError
from leanops.domain.schema.model import schema_from_json
from leanops.usecases.schemas.infer import Inferred, infer_schema
from leanops.usecases.schemas.plan import plan_schema
from tests.oracle.rows import LANDED, RawRow
from tests.oracle.streams import make_stream
from tests.support.world import World

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = 40


def _event(number: int) -> dict[str, Any]:
    """An order; every member tests one guess."""
    return {
        "order": {
            "id": f"o-{number // 2 * 2}",
            "amount": f"RAW{number}.{number % 10}5",
            "items": number,
            "total": 10_000_000_000 + number,
            "rate": "RAW1e-25",
            "zip": f"{number:05d}",
            "digits": str(100 + number),
            "gift": number % 2 == 0,
            "flag": "true" if number % 2 else "False",
            "placed": f"2026-01-01T10:{number:02d}:00Z",
            "due": f"{1 + number % 28:02d}.01.2026",
            "createdAt": 1_767_225_600_000 + number,
            "tags": ["a", number],
            "mixed": number if number % 2 else "n",
            "never": None,
        },
        "customer": {"email": f"u{number}@example.com", "contact": "+49 30 123456", "card": "4111 1111 1111 1111"},
        "updatedAt": f"2026-01-02T10:{number:02d}:00.5+01:00",
        "billing": {"month": "2026-01"},
        **({"note": "seldom"} if number % 4 == 0 else {}),
    }


def _payload(number: int) -> str:
    """Numbers marked RAW stand in the text with exactly these digits."""
    text = json.dumps(_event(number))
    while '"RAW' in text:
        before, _, rest = text.partition('"RAW')
        digits, _, after = rest.partition('"')
        text = f"{before}{digits}{after}"
    return text


def _rows(count: int = EVENTS) -> list[RawRow]:
    return [
        RawRow(f"m{number}", START + timedelta(seconds=number), "orders", _payload(number), LANDED + number)
        for number in range(count)
    ]


def _infer(world: World, sample: int = 100_000) -> Inferred:
    platform = world.platform()
    return infer_schema(platform, "orders", sample=sample)


def test_types_keys_and_personal_data_are_proposed_with_what_speaks_for_them(world: World) -> None:
    world.add("orders")
    world.publish("orders", [*_rows(), RawRow("bad", START, "orders", "{", LANDED)])
    found = _infer(world)
    columns = {column["path"]: column for column in json.loads(found.text)["payload_columns"]}
    types = {path.removeprefix("$.order."): column["type"] for path, column in columns.items() if "order" in path}
    assert types == {
        "id": "STRING",
        "amount": "DECIMAL(18,2)",
        "items": "INT",
        "total": "BIGINT",
        "rate": "DOUBLE",
        "zip": "STRING",
        "digits": "STRING",
        "gift": "BOOLEAN",
        "flag": "BOOLEAN",
        "placed": "TIMESTAMP",
        "due": "DATE",
        "createdAt": "TIMESTAMP",
        "tags": "STRING",
        "mixed": "STRING",
    }
    assert columns["$.order.due"]["format"] == "dd.MM.yyyy"
    assert columns["$.order.createdAt"]["format"] == "epoch_ms"
    personal = {path: column["pii"] for path, column in columns.items() if "pii" in column}
    assert personal == {"$.customer.email": "hmac", "$.customer.contact": "mask", "$.customer.card": "mask"}
    assert found.keys == {"version": "$.updatedAt", "period": "$.billing.month"}
    assert any("keys.idempotency_key" in note for note in found.notes), "half of the ids are of two events"
    assert not columns["$.note"].get("cde")
    assert columns["$.order.items"]["cde"]
    assert columns["$.note"]["description"] == "STRING of up to 6 characters; in 25.0 % of events"
    assert columns["$.order.items"]["description"] == "INT in all 40 values; in all events; never missing"
    assert (found.rows, found.events, found.never_filled) == (EVENTS + 1, EVENTS, ("$.order.never",))


def test_an_epoch_may_be_written_with_an_exponent(world: World) -> None:
    world.add("orders")
    payloads = [f'{{"createdAt": {text}, "updatedAt": 1760000000}}' for text in ("1.76e9", "1760000000")]
    world.publish("orders", [RawRow(f"m{at}", START, "orders", text, LANDED + at) for at, text in enumerate(payloads)])
    found = _infer(world)
    assert {column.path: str(column.type) for column in found.columns} == {
        "$.createdAt": "TIMESTAMP",
        "$.updatedAt": "TIMESTAMP",
    }


@pytest.mark.parametrize("seed", range(2))
def test_no_event_fails_under_the_schema_inferred_from_it(world: World, seed: int) -> None:
    world.add("orders")
    world.publish("orders", [*_rows(12), *make_stream(random.Random(seed), 80)])
    found = _infer(world)
    platform = world.platform()
    plan = plan_schema(platform, "orders", schema_from_json(found.text, "draft"))
    assert plan.rows == found.rows
    assert {(group.rule, group.column) for group in plan.failures} <= {("cde_missing", "idempotency_key")}


def test_a_sample_is_the_same_every_time(world: World) -> None:
    world.add("orders")
    world.publish("orders", _rows())
    first, second = _infer(world, 20), _infer(world, 20)
    assert first == second
    assert first.is_sample
    assert 0 < first.rows < EVENTS


def test_a_topic_without_events_says_what_to_do(world: World) -> None:
    world.add("orders")
    with pytest.raises(UsageError, match="publish some"):
        _infer(world)


def test_many_small_tasks_infer_what_one_does(world: World) -> None:
    world.add("orders")
    rows = _rows()
    for first in range(0, EVENTS, 10):
        world.publish("orders", rows[first : first + 10])
    whole = _infer(world)
    world.tasks = TaskRules(task_rows=5, task_memory=4_000)
    assert _infer(world) == whole


@pytest.mark.parametrize(("most", "has_more"), [(20, False), (19, True), (3, True)])
def test_of_too_many_paths_those_of_the_first_events_are_told_and_a_bounded_number_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch, most: int, has_more: bool
) -> None:
    monkeypatch.setattr(measure, "_MOST_PATHS", most)
    monkeypatch.setattr(raw, "SAMPLE", 5)
    world.tasks = TaskRules(task_memory=2_000)
    world.add("orders")
    users = [{"users": {f"u{number:02d}": number}, "z": 1} for number in range(20)]
    payloads = [*([{"z": 1}] * 5), *users[10:], *users[:10]]
    rows = [RawRow(f"m{at}", START, "orders", json.dumps(one), LANDED + at) for at, one in enumerate(payloads)]
    world.publish("orders", rows)
    found = _infer(world)
    assert [column.path for column in found.columns] == [*(f"$.users.u{at:02d}" for at in range(most)), "$.z"]
    assert {column.path: column.events for column in found.columns}["$.z"] == 25
    assert any("because there are too many" in note for note in found.notes) == has_more
