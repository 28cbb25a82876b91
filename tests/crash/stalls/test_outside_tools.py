"""Other tools compact, expire, roll back, delete or append between two steps: what is wrong never says balanced."""

from collections.abc import Callable
from typing import Any

import pytest

from leanops.domain.errors import LeanOpsError
from leanops.domain.table.operation import Accept
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.operations.execute import cancel, resume
from leanops.usecases.operations.plan_rollback import plan_rollback, roll_back_topic
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import find_topic, resume_topic
from leanops.views.balance import whole_topic
from leanops.views.status import status
from tests.crash.batches import SCHEMA
from tests.crash.stalls.stalls import (
    Stall,
    assert_no_live_file_is_gone,
    chosen,
    first_point,
    is_whole_run,
    stalled,
)
from tests.crash.stalls.test_stalled_cycles import Stalls
from tests.oracle.model import Model
from tests.support.verify import assert_curated, assert_standardized, sources_of
from tests.support.world import PII_KEY, World

Tool = Callable[[World, str], None]


def compact(world: World, table: str) -> None:
    _sql(world, f"CALL leanops.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")


def compact_and_expire(world: World, table: str) -> None:
    compact(world, table)
    until = "older_than => TIMESTAMP '2099-01-01', retain_last => 1"
    _sql(world, f"CALL leanops.system.expire_snapshots(table => '{table}', {until})")


def roll_back(world: World, table: str) -> None:
    view = world.embedded.platform.catalog.load(table)
    history = view.ancestors() if view else []
    if len(history) > 1:
        _sql(world, f"CALL leanops.system.rollback_to_snapshot('{table}', {history[1].snapshot_id})")


def delete_a_row(world: World, table: str) -> None:
    for row in world.rows(table)[:1]:
        _sql(world, f"DELETE FROM leanops.{table} WHERE message_id = '{row['message_id']}'")


def append_a_row_again(world: World, table: str) -> None:
    for row in world.rows(table)[:1]:
        chosen_row = f"SELECT * FROM leanops.{table} WHERE message_id = '{row['message_id']}'"
        _sql(world, f"INSERT INTO leanops.{table} {chosen_row}")


TOOLS: list[Tool] = [compact, compact_and_expire, roll_back, delete_a_row, append_a_row_again]
KEEPS_ROWS = (compact, compact_and_expire)
"""What others may do to RAW; they must not write to it."""


def _sql(world: World, statement: str) -> Any:
    return world.embedded.spark().sql(statement).collect()


def run_a_cycle(platform: Platform) -> None:
    run_cycle(platform)


def rebuild(platform: Platform) -> None:
    rebuild_topic(platform, "orders", accept=Accept.ALL)


def roll_back_to_the_batch_before(platform: Platform) -> None:
    view = platform.catalog.load(platform.rules.databases.standardized_table("orders"))
    assert view is not None
    plan = plan_rollback(platform, "orders", snapshot=view.ancestors()[1].snapshot_id)
    roll_back_topic(platform, plan, accept=Accept.ALL)


@pytest.mark.slow
@pytest.mark.parametrize("work", [run_a_cycle, rebuild, roll_back_to_the_batch_before])
def test_what_other_tools_make_wrong_never_says_balanced(world: World, work: Callable[[Platform], None]) -> None:
    stalls = Stalls(world)
    for _ in range(2):
        stalls.arrive(4)
        world.settle()
    stalls.arrive(4)
    passed = Stall(None, lambda: None)
    work(world.platform(step=passed))
    make_sound(world)
    # With every step all tools in a whole run, else one of them; the next commit has others.
    tools = len(TOOLS) if is_whole_run() else 1
    pairs = [(point, first_point() + at + other) for at, point in enumerate(passed.points) for other in range(tools)]
    used = 0
    for point, number in chosen(pairs):
        tool, table = TOOLS[number % len(TOOLS)], table_of(world, number)
        stalls.arrive(4)
        if work is not run_a_cycle:
            world.settle()
        before = heads(world)
        stall = Stall(point, lambda tool=tool, table=table: tool(world, table))
        # A snapshot that is gone under its hands may fail the work; whoever comes next begins it again.
        stalled(stall, lambda stall=stall: work(world.platform(step=stall)))
        used += stall.at is not None and heads(world) != before
        world.wait_for_leases()
        world.settle()
        if find_topic(world.platform(), "orders").status == "PAUSED":
            resume_topic(world.platform(), "orders")
            world.settle()
        is_sound, wrong = says_balanced(world), what_is_wrong(world)
        assert not (wrong and is_sound), f"{tool.__name__} on {table} at {point}: {wrong}"
        make_sound(world)
    assert used >= len(chosen(pairs)) * 2 // 3


def table_of(world: World, number: int) -> str:
    """One of the tables that a tool may be used on."""
    databases = world.databases
    tables = [databases.standardized_table("orders"), databases.curated_table("orders")]
    if TOOLS[number % len(TOOLS)] in KEEPS_ROWS:
        tables.append(databases.raw_table("orders"))
    return tables[number // len(TOOLS) % len(tables)]


def heads(world: World) -> list[Any]:
    databases = world.databases
    tables = databases.raw_table("orders"), databases.standardized_table("orders"), databases.curated_table("orders")
    return [world.embedded.platform.catalog.load(table) for table in tables]


def make_sound(world: World) -> None:
    """What a person does: what others wrote is reported until the tables are rebuilt from RAW."""
    if unfinished_operation(world.platform(), "orders"):
        try:
            resume(world.platform(), "orders", accept=Accept.ALL)
        except LeanOpsError:
            cancel(world.platform(), "orders")
    if find_topic(world.platform(), "orders").status == "PAUSED":
        resume_topic(world.platform(), "orders")
    rebuild(world.platform())
    world.settle()
    assert (what_is_wrong(world), says_balanced(world)) == (None, True)
    assert_no_live_file_is_gone(world)


def says_balanced(world: World) -> bool:
    """Whether `leanops status` shows a topic that is balanced and has nothing left to do."""
    (found,) = status(sources_of(world), ["orders"])
    return found.balance.balanced and not found.failures and not found.operation


def what_is_wrong(world: World) -> str | None:
    """The tables against the model, and against each other."""
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    model.standardize([row for _, rows in world.published["orders"] for row in rows])
    model.curate()
    try:
        assert_standardized(world, "orders", model)
        assert_curated(world, "orders", model)
    except AssertionError as wrong:
        return str(wrong)
    balance = whole_topic(sources_of(world), "orders")
    return None if balance.balanced else "; ".join(balance.complaints())
