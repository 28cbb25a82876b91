"""Deploy, rebuild and rollback abandoned at every step: after the restart finished or undone, never half."""

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from leanops.domain.errors import LeanOpsError
from leanops.domain.table.history import valid_watermark
from leanops.domain.table.operation import Accept, Scope
from leanops.ports.state import BATCHES
from leanops.usecases.operation_log import unfinished_operation, unfinished_operations
from leanops.usecases.operations.plan_rollback import plan_rollback, roll_back_topic
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from leanops.usecases.topics.registry import find_topic, resume_topic
from leanops.views.balance import whole_topic
from tests.crash.batches import BY_ORDER, SCHEMA, orders
from tests.crash.cycles.test_abandonment import stop_at
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.support.verify import assert_tables, sources_of
from tests.support.world import PII_KEY, Abandoned, World

STRIDE = 7
"""The next operation is abandoned so many steps later than the one before."""


def with_least(least: int) -> dict[str, Any]:
    """The schema with another limit of the amount."""
    columns = [
        {**column, "rules": {"min": least}} if column["name"] == "amount" else column
        for column in SCHEMA["payload_columns"]
    ]
    return {**SCHEMA, "payload_columns": columns}


class Killer:
    """Ends the work at every step once; the steps of each portion that is built are steps of their own."""

    def __init__(self) -> None:
        self.ended: set[tuple[str, int]] = set()
        self.built = 0

    def __call__(self, name: str) -> None:
        here = (name, self.built)
        self.built += name in ("after shadow standardized", "after shadow curated")
        if here not in self.ended:
            self.ended.add(here)
            raise Abandoned(name)


class Story:
    """One topic and its model through many operations, each abandoned one step later than the one before."""

    def __init__(self, world: World) -> None:
        self.world = world
        # Several portions, so that a rebuild can stop between two.
        world.with_rules(operations={"rebuild_rows": 20})
        self.events = iter(orders(random.Random(5), 400))
        self.rows: list[RawRow] = []
        self.model = Model("orders", SCHEMA, pii_key=PII_KEY)
        world.add("orders", json.dumps(SCHEMA))
        for size in (12, 12):
            self.arrive(size)
            self.catch_up()

    def arrive(self, size: int = 1) -> None:
        """More events in RAW."""
        batch = [next(self.events) for _ in range(size)]
        self.world.publish("orders", batch)
        self.rows += batch

    def catch_up(self) -> None:
        """Cycles until nothing is left, here and in the model."""
        self.world.settle()
        new = self.rows[self.model.totals["read"] :]
        if new:
            self.model.standardize(new)
            self.model.curate()

    def abandoned(self, step: Callable[[str], None], work: Callable[[Platform], Any]) -> bool:
        """Do the work until it is killed at a step; whether it was."""
        try:
            work(self.world.platform(step=step))
        except Abandoned:
            self.world.wait_for_leases()
            return True
        return False

    def killed_at_every_step(self, work: Callable[[Platform], Any], old: frozenset[Any]) -> int:
        """Begin the work and go on by cycles, each killed at the first step where none was killed yet; how many were.

        Whatever moment a reader chooses, Curated is the old table until it is the new one.
        """
        kills, seen, going_on, killer = 0, {old}, work, Killer()
        while self.abandoned(killer, going_on):
            kills += 1
            seen.add(self.curated())
            if unfinished_operation(self.world.platform(), "orders"):
                going_on = self.world.cycle
        assert len(seen | {self.curated()}) <= 2
        return kills

    def follow(self, schema: dict[str, Any], scope: Scope, read: int) -> None:
        """The model under the new schema, made anew as far as the tables were."""
        self.model.set_schema(schema)
        if scope == Scope.BOTH:
            self.model.rebuild(self.rows[:read])
        elif scope == Scope.CURATED:
            self.model.recurate()

    def curated(self) -> frozenset[Any]:
        """The versions and values a reader of Curated sees."""
        rows = self.world.curated("orders")
        return frozenset((row["idempotency_key"], row["message_id"], row["amount"]) for row in rows)

    def check(self) -> None:
        """Nothing is left half, and every table is the model's."""
        world, platform = self.world, self.world.platform()
        assert unfinished_operations(platform) == {}
        assert [stored.row for stored in platform.state.rows(BATCHES)] == []
        shadows = (
            [name for _, name in world.embedded.catalog.list_tables(world.databases.shadow)]
            if self._has_shadows()
            else []
        )
        assert shadows == []
        assert_tables(world, "orders", self.model)
        balance = whole_topic(sources_of(world), "orders")
        assert balance.balanced, balance.complaints()
        runs = [row["batch_id"] for row in world.rows(world.databases.ops_table("job_run_history"))]
        assert len(set(runs)) == len(runs)
        versions = [row["version"] for row in world.rows(world.databases.ops_table("schema_versions"))]
        assert sorted(versions) == list(range(1, self.version() + 1))

    def _has_shadows(self) -> bool:
        return bool(self.world.embedded.catalog.namespace_exists(self.world.databases.shadow))

    def rebuilds(self) -> int:
        """How many rebuilds were recorded."""
        runs = self.world.rows(self.world.databases.ops_table("job_run_history"))
        return sum(row["cycle_id"].startswith("rebuild-") and row["layer"] == "curated" for row in runs)

    def version(self) -> int:
        active = self.world.platform().schemas.active("orders")
        assert active
        return active.version


DEPLOYS = pytest.mark.parametrize(
    ("schemas", "consent", "scope"),
    [
        pytest.param((BY_ORDER, SCHEMA), Consent(rebuild=True, missing=Accept.ALL), Scope.BOTH, id="breaking"),
        pytest.param((with_least(2), SCHEMA), Consent(recurate=True, missing=Accept.ALL), Scope.CURATED, id="recurate"),
        pytest.param((with_least(2), SCHEMA), Consent(recurate=False), Scope.NONE, id="plain"),
    ],
)


@DEPLOYS
def test_a_deploy_killed_at_each_of_its_steps_comes_to_its_end(
    world: World, schemas: Any, consent: Consent, scope: Scope
) -> None:
    story, text, read = Story(world), json.dumps(schemas[0]), 24
    old = story.curated()
    kills = story.killed_at_every_step(lambda at: deploy_schema(at, "orders", text, "f", consent), old)
    assert kills > {Scope.BOTH: 30, Scope.CURATED: 15, Scope.NONE: 6}[scope]
    story.follow({**schemas[0], "version": story.version()}, scope, read)
    story.check()


def test_a_rollback_killed_at_each_of_its_steps_comes_to_its_end(world: World) -> None:
    story = Story(world)
    view = world.embedded.platform.catalog.load(world.databases.standardized_table("orders"))
    then = deepcopy(story.model)
    story.arrive(4)
    story.catch_up()

    def work(at: Platform) -> None:
        roll_back_topic(at, plan_rollback(at, "orders", snapshot=view.head), accept=Accept.ALL)

    assert story.killed_at_every_step(work, story.curated()) > 6
    after, story.model = story.model, replace_errors(then, story.model)
    assert_rolled_back(story)
    resume_topic(world.platform(), "orders")
    world.settle()
    story.model = after
    story.check()


def test_a_rollback_over_a_rebuild_killed_at_each_of_its_steps_comes_to_its_end(world: World) -> None:
    story = Story(world)
    head = world.embedded.platform.catalog.load(world.databases.standardized_table("orders")).head
    then = deepcopy(story.model)
    story.arrive(4)
    story.catch_up()
    rebuild_topic(world.platform(), "orders", accept=Accept.ALL)
    story.model.rebuild(story.rows)

    def work(at: Platform) -> None:
        roll_back_topic(at, plan_rollback(at, "orders", snapshot=head), accept=Accept.ALL)

    assert story.killed_at_every_step(work, story.curated()) > 15
    # Curated is rebuilt from the Standardized that is back, and from RAW as far as that one had read it.
    then.recurate()
    story.model = replace_errors(then, story.model)
    assert_rolled_back(story)
    resume_topic(world.platform(), "orders")
    story.catch_up()
    story.check()


@pytest.mark.slow
@DEPLOYS
def test_a_deploy_is_finished_or_undone(world: World, schemas: Any, consent: Consent, scope: Scope) -> None:
    story, turn, step, went_on = Story(world), 0, 1, True
    while went_on:
        schema, read, before = schemas[turn % 2], len(story.rows), story.version()
        text = json.dumps(schema)
        went_on = story.abandoned(stop_at(step), lambda at, text=text: deploy_schema(at, "orders", text, "f", consent))
        if step % 5 == 1:
            story.arrive()
        world.settle()
        if story.version() != before:
            turn += 1
            story.follow({**schema, "version": story.version()}, scope, read)
        story.catch_up()
        story.check()
        step += STRIDE
    assert turn


@pytest.mark.slow
def test_a_rebuild_is_finished_or_undone(world: World) -> None:
    story, step, went_on, done = Story(world), 1, True, 0
    while went_on:
        read = len(story.rows)
        went_on = story.abandoned(stop_at(step), lambda at: rebuild_topic(at, "orders", accept=Accept.ALL))
        story.arrive()
        world.settle()
        if story.rebuilds() > done:
            done = story.rebuilds()
            story.model.rebuild(story.rows[:read])
        story.catch_up()
        story.check()
        step += STRIDE
    assert done


@pytest.mark.slow
def test_a_rollback_is_finished_or_undone_and_the_next_cycle_catches_up(world: World) -> None:
    story, step, went_on = Story(world), 1, True
    undone = 0
    while went_on:
        view = world.embedded.platform.catalog.load(world.databases.standardized_table("orders"))
        then, before = deepcopy(story.model), view.head
        story.arrive()
        story.catch_up()
        went_on = story.abandoned(
            stop_at(step),
            lambda at, to=before: roll_back_topic(at, plan_rollback(at, "orders", snapshot=to), accept=Accept.ALL),
        )
        world.settle()
        after = story.model
        if find_topic(world.platform(), "orders").status == "PAUSED":
            undone += 1
            story.model = replace_errors(then, after)
            assert_rolled_back(story)
            resume_topic(world.platform(), "orders")
        world.settle()
        story.model = after
        story.check()
        step += STRIDE
    assert undone


def replace_errors(then: Model, now: Model) -> Model:
    """The model of before; error rows tell of messages, which do not go back."""
    then.errors, then.parse_errors = now.errors, now.parse_errors
    return then


def assert_rolled_back(story: Story) -> None:
    world = story.world
    view = world.embedded.platform.catalog.load(world.databases.standardized_table("orders"))
    mark = valid_watermark(view)
    assert mark is not None
    assert mark.totals.read == story.model.totals["read"]
    assert {row["record_key"] for row in world.standardized("orders")} == story.model.standardized.keys()
    assert {row["idempotency_key"] for row in world.curated("orders")} == story.model.curated.keys()
    assert world.cycle()["orders"].outcome == "paused"
    with pytest.raises(LeanOpsError, match="no snapshot 7"):
        plan_rollback(world.platform(), "orders", snapshot=7)
