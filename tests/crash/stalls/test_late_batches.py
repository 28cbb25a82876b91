"""A batch that was given up while its worker stalled, and is committed all the same: it is taken out again."""

import json
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from leanops.domain.table.operation import Accept, Scope
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from tests.crash.batches import BY_ORDER, SCHEMA
from tests.crash.kills.test_operations import Story
from tests.crash.stalls.stalls import Stall, stalled
from tests.crash.stalls.test_stalled_cycles import Stalls
from tests.support.world import World

COMMIT = "before commit"
LAYERS = pytest.mark.parametrize("layer", [1, 2], ids=["standardized", "curated"])


def at_commit(stall: Stall) -> Callable[[str], None]:
    """The stall counts the commits of rows only: Standardized's is the first, Curated's the second."""
    return lambda name: stall(name) if name == COMMIT else None


def deploy(world: World, schema: dict[str, Any], consent: Consent | None = None) -> None:
    world.wait_for_leases()
    deploy_schema(world.platform(), "orders", json.dumps(schema), "f", consent or Consent())


def renamed(version: int) -> dict[str, Any]:
    """The schema with other words and the same rules."""
    return {**SCHEMA, "version": version, "description": f"version {version}"}


@LAYERS
def test_a_batch_that_a_deployment_gave_up_leaves_no_trace(world: World, layer: int) -> None:
    stalls = Stalls(world)
    for first in (True, False):
        # The first batch of a table has nothing before it, every other one has.
        stalls.arrive(4)
        stall = Stall(layer, lambda version=2 + (not first): deploy(world, renamed(version)))
        assert stalled(stall, lambda stall=stall: world.cycle(world.platform(step=at_commit(stall))))
        world.wait_for_leases()
        stalls.arrive(2)
        world.settle()
        stalls.check()


def test_error_rows_of_a_batch_that_was_given_up_are_not_added_beside_those_of_the_next(world: World) -> None:
    stalls = Stalls(world)
    stalls.arrive(4)

    def another_batch() -> None:
        deploy(world, renamed(2))
        world.cycle()

    stall = Stall("before errors", another_batch)
    assert stalled(stall, lambda: world.cycle(world.platform(step=stall)))
    world.wait_for_leases()
    world.settle()
    stalls.check()


def stalled_meanwhile(world: World, layer: int) -> Callable[[], None]:
    """A cycle in a thread of its own that stands before a commit; what is returned lets it go on to its end."""
    stands, goes_on = Event(), Event()

    def wait() -> None:
        stands.set()
        goes_on.wait(120)

    stall = Stall(layer, wait)
    worker = Thread(target=lambda: stalled(stall, lambda: world.cycle(world.platform(step=at_commit(stall)))))
    worker.start()
    assert stands.wait(120)

    def let_go() -> None:
        goes_on.set()
        worker.join(120)

    return let_go


@LAYERS
def test_a_batch_that_a_deployment_gave_up_lands_in_the_middle_of_the_next(world: World, layer: int) -> None:
    stalls = Stalls(world)
    stalls.arrive(4)
    world.settle()
    stalls.arrive(4)
    let_go = stalled_meanwhile(world, layer)
    deploy(world, renamed(2))
    # Standardized is done where Curated stalled, so the next commit is that of the same layer.
    other = Stall(1, let_go)
    world.cycle(world.platform(step=at_commit(other)))
    assert other.at
    world.wait_for_leases()
    world.settle()
    stalls.check()


def test_a_batch_under_other_keys_is_taken_out_of_a_rebuilt_table(world: World) -> None:
    story = Story(world)
    story.arrive(6)
    read = len(story.rows)
    stall = Stall(1, lambda: deploy(world, BY_ORDER, Consent(rebuild=True, missing=Accept.ALL)))
    assert stalled(stall, lambda: world.cycle(world.platform(step=at_commit(stall))))
    story.follow({**BY_ORDER, "version": story.version()}, Scope.BOTH, read)
    world.wait_for_leases()
    story.arrive(2)
    story.catch_up()
    story.check()


def test_a_batch_that_lands_during_a_recuration_is_not_taken_for_curated(world: World) -> None:
    """Two stalls: the recuration pauses before its swap, and there the batch that it had given up comes in."""
    stalls = Stalls(world)
    stalls.arrive(4)
    world.settle()
    stalls.arrive(4)
    let_go = stalled_meanwhile(world, 1)
    world.wait_for_leases()
    other = Stall("before replace curated", let_go)
    rebuild_topic(world.platform(step=other), "orders", scope=Scope.CURATED, accept=Accept.ALL)
    assert other.at
    world.wait_for_leases()
    world.settle()
    stalls.check()
