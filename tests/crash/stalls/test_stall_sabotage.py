"""Each guard against a worker that wakes up late, taken away: the stall it is there for then shows."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from leanops.adapters.iceberg.batches import engine
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.domain.table.operation import Accept
from leanops.usecases import operation_log
from leanops.usecases.leases import HeldTopic
from leanops.usecases.operations import execute
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.pipeline import run_history
from tests.crash.stalls.inside import telling_commits
from tests.crash.stalls.test_stalled_cycles import Stalls as Cycles
from tests.crash.stalls.test_stalled_operations import Stalls as Operations
from tests.support.world import World

Sabotage = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[World], None]


def rebuilds(where: str) -> Story:
    """A rebuild that stalls at a step while another worker finishes it."""

    def story(world: World) -> None:
        stalls = Operations(world)
        read = len(stalls.story.rows)
        stalls.through(where, lambda at: rebuild_topic(at, "orders", accept=Accept.ALL))
        if stalls.story.rebuilds():
            stalls.story.model.rebuild(stalls.story.rows[:read])
        stalls.check()

    return story


def cycles(where: str) -> Story:
    """A cycle that stalls at a step while another worker goes on."""
    return lambda world: Cycles(world).through(where, lambda stall: world.platform(step=stall))


def commits(where: str) -> Story:
    """A cycle that stalls just before a commit, when all that it adds is written."""
    return lambda world: Cycles(world).through(where, lambda stall: telling_commits(world, stall))


def shadows_are_purged(patch: pytest.MonkeyPatch) -> None:
    """As it was: tables that were built are removed with their files, though live tables have them by then."""

    def purge(self: Any, name: str) -> None:
        if self.native.table_exists(name):
            self.native.purge_table(name)

    patch.setattr(IcebergCatalog, "forget", purge)


def always_ours_in(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """In one module nobody notices that the lease is lost."""
    is_ours = HeldTopic.is_ours

    def looked_up(held: HeldTopic) -> bool:
        return sys._getframe(1).f_code.co_filename == module.__file__ or is_ours(held)

    patch.setattr(HeldTopic, "is_ours", looked_up)


def operations_begun_too_late(patch: pytest.MonkeyPatch) -> None:
    """Whoever lost the lease writes its operation down all the same, and nobody finds it stale."""
    always_ours_in(patch, operation_log)
    patch.setattr(execute, "is_stale", lambda *_: False)


def records_of_whoever_comes(patch: pytest.MonkeyPatch) -> None:
    always_ours_in(patch, run_history)


def errors_without_a_look(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether another worker has added error rows of the topic meanwhile."""
    patch.setattr(engine, "_check_errors", lambda *_: None)


STORIES = [
    (shadows_are_purged, rebuilds("before going")),
    (operations_begun_too_late, rebuilds("before operation")),
    (records_of_whoever_comes, cycles("before run record")),
    (errors_without_a_look, commits("inside commit of parse_errors")),
]


@pytest.mark.parametrize(("sabotage", "story"), STORIES, ids=lambda value: getattr(value, "__name__", ""))
def test_without_its_guard_the_stall_shows(
    world: World, monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage, story: Story
) -> None:
    sabotage(monkeypatch)
    with pytest.raises((AssertionError, FileNotFoundError)):
        story(world)


@pytest.mark.parametrize("story", [story for _, story in STORIES], ids=["purge", "begin", "records", "errors"])
def test_with_it_the_same_stall_ends_well(world: World, story: Story) -> None:
    story(world)
