"""Deploy, rebuild and rollback that stall at every step while another worker finishes them: nothing lost or doubled."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from leanops.domain.table.operation import Accept, Scope
from leanops.usecases.operations.plan_rollback import plan_rollback, roll_back_topic
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from leanops.usecases.topics.registry import find_topic, resume_topic
from tests.crash.kills.test_operations import DEPLOYS, Story, assert_rolled_back, replace_errors
from tests.crash.stalls.stalls import Point, Stall, assert_no_live_file_is_gone, chosen, stalled
from tests.support.world import World


class Stalls:
    """Many operations of one topic, each of which stalls at another step while somebody else finishes it."""

    def __init__(self, world: World) -> None:
        self.world, self.story = world, Story(world)
        self.passed: list[Point] = []

    def take_over(self) -> None:
        """Another worker finishes what the stalled one was at, and goes on to the next event."""
        self.world.wait_for_leases()
        self.world.settle()
        self.story.arrive()
        self.world.settle()

    def points(self) -> Iterator[Point | None]:
        """None, for an operation that passes all its steps; then those of these steps that this run tries."""
        yield None
        assert self.passed
        yield from chosen(self.passed)

    def through(self, where: str | Point | None, work: Callable[[Platform], Any]) -> None:
        """One operation that stalls at a step; without one it only shows which it has."""
        stall = Stall(where, self.take_over)
        assert stalled(stall, lambda: work(self.world.platform(step=stall))) == (where is not None)
        self.passed = self.passed or stall.points
        self.world.wait_for_leases()
        self.world.settle()

    def check(self) -> None:
        self.story.catch_up()
        self.story.check()
        assert_no_live_file_is_gone(self.world)


@pytest.mark.slow
def test_a_rebuild_that_stalls_is_finished_once(world: World) -> None:
    stalls, done = Stalls(world), 0
    story = stalls.story
    for point in stalls.points():
        read = len(story.rows)
        stalls.through(point, lambda at: rebuild_topic(at, "orders", accept=Accept.ALL))
        if story.rebuilds() > done:
            done = story.rebuilds()
            story.model.rebuild(story.rows[:read])
        stalls.check()
    assert done


@pytest.mark.slow
@DEPLOYS
def test_a_deploy_that_stalls_is_finished_once(world: World, schemas: Any, consent: Consent, scope: Scope) -> None:
    stalls, turn = Stalls(world), 0
    story = stalls.story
    for point in stalls.points():
        schema, read, before = schemas[turn % 2], len(story.rows), story.version()
        text = json.dumps(schema)
        stalls.through(point, lambda at, text=text: deploy_schema(at, "orders", text, "f", consent))
        if story.version() != before:
            turn += 1
            story.follow({**schema, "version": story.version()}, scope, read)
        stalls.check()
    assert turn


@pytest.mark.slow
@pytest.mark.parametrize("over_a_rebuild", [False, True], ids=["alone", "over a rebuild"])
def test_a_rollback_that_stalls_is_done_once(world: World, over_a_rebuild: bool) -> None:
    stalls, undone = Stalls(world), 0
    story = stalls.story
    for point in stalls.points():
        head = world.embedded.platform.catalog.load(world.databases.standardized_table("orders")).head
        then = deepcopy(story.model)
        story.arrive()
        story.catch_up()
        if over_a_rebuild:
            rebuild_topic(world.platform(), "orders", accept=Accept.ALL)
            story.model.rebuild(story.rows)
        read = len(story.rows)
        stalls.through(
            point,
            lambda at, to=head: roll_back_topic(at, plan_rollback(at, "orders", snapshot=to), accept=Accept.ALL),
        )
        after = story.model
        if find_topic(world.platform(), "orders").status == "PAUSED":
            undone += 1
            if over_a_rebuild:
                then.recurate()
            story.model = replace_errors(then, after)
            assert_rolled_back(story)
            resume_topic(world.platform(), "orders")
            assert read <= len(story.rows)
            if not over_a_rebuild:
                world.settle()
                # What was undone is read again together with what arrived since, so the counts are those of one batch.
                story.model.standardize(story.rows[story.model.totals["read"] :])
                story.model.curate()
        stalls.check()
    assert undone
