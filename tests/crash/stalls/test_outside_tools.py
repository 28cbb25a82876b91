"""Other tools compact, expire, roll back, delete or append between two steps: what is wrong never says balanced."""

from collections.abc import Callable
from typing import Any

from leanops.domain.table.operation import Accept
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.operations.start import rebuild_topic
from leanops.views.balance import whole_topic
from leanops.views.status import status
from tests.crash.batches import SCHEMA
from tests.crash.stalls.stalls import Stall, chosen, stalled
from tests.crash.stalls.test_stalled_cycles import STEPS, Stalls
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


def test_what_other_tools_make_wrong_never_says_balanced(world: World) -> None:
    stalls = Stalls(world)
    stalls.arrive(4)
    world.settle()
    for number in chosen(STEPS):
        tool, databases = TOOLS[number % len(TOOLS)], world.databases
        tables = [databases.standardized_table("orders"), databases.curated_table("orders")]
        if tool in KEEPS_ROWS:
            tables.append(databases.raw_table("orders"))
        table = tables[number // len(TOOLS) % len(tables)]
        stalls.arrive(4)
        stall = Stall(number, lambda tool=tool, table=table: tool(world, table))
        # A snapshot that is gone under its hands may fail a cycle; the next one begins another batch.
        stalled(stall, lambda stall=stall: run_cycle(world.platform(step=stall)))
        world.wait_for_leases()
        world.settle()
        is_sound = says_balanced(world)
        wrong = what_is_wrong(world)
        assert not (wrong and is_sound), f"{tool.__name__} on {table} at step {number}: {wrong}"
        # What another tool wrote is told until the tables are rebuilt; the next tool shall meet sound ones.
        rebuild_topic(world.platform(), "orders", accept=Accept.ALL)
        assert (what_is_wrong(world), says_balanced(world)) == (None, True), tool.__name__


def says_balanced(world: World) -> bool:
    """What `leanops status` shows."""
    (found,) = status(sources_of(world), ["orders"])
    return found.balance.balanced and not found.failures


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
