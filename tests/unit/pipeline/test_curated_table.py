"""The columns of Curated follow its schema, and only whoever holds the topic changes them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leanops.domain.errors import LeaseLostError, UsageError
from leanops.usecases.leases import HeldTopic, acquire, unlock
from leanops.usecases.pipeline.curate import curated_table
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import column, held_by, platform_in, schema

TABLE = "iceberg_curated_db.orders"
FIRST = schema(column("a", type="INT"))
WIDER = schema(column("a", type="BIGINT"), column("b"))


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path) as platform:
        add_topic(platform, "orders")
        yield platform


def watched(platform: Platform, steps: list[str]) -> HeldTopic:
    """The topic under its lease, and the steps of its worker."""
    return held_by(replace(platform, step=steps.append), acquire(platform, "topic/orders"))


def columns(platform: Platform) -> dict[str, str]:
    view = platform.catalog.load(TABLE)
    assert view is not None
    return {name: view.columns[name] for name in ("a", "b") if name in view.columns}


def test_columns_are_added_and_widened_in_one_durable_step(platform: Platform) -> None:
    steps: list[str] = []
    held = watched(platform, steps)
    curated_table(held, FIRST)
    assert (steps, columns(platform)) == ([], {"a": "int"})
    altered = curated_table(held, WIDER)
    assert (steps, columns(platform)) == (["before alter", "after alter"], {"a": "long", "b": "string"})
    assert altered == platform.catalog.load(TABLE)
    curated_table(held, WIDER)
    assert len(steps) == 2


def test_a_worker_that_lost_the_topic_changes_no_column(platform: Platform) -> None:
    steps: list[str] = []
    held = watched(platform, steps)
    curated_table(held, FIRST)
    unlock(platform, "topic/orders")
    with pytest.raises(LeaseLostError):
        curated_table(held, WIDER)
    assert (steps, columns(platform)) == ([], {"a": "int"})


def test_a_type_that_cannot_be_widened_is_refused_with_the_command_that_rebuilds(platform: Platform) -> None:
    held = watched(platform, [])
    curated_table(held, WIDER)
    with pytest.raises(UsageError, match=r"orders\.a is long .* leanops rebuild orders --curated$"):
        curated_table(held, FIRST)
