"""Stall points inside: between what was read and what is made of it, and just before a commit."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.usecases.platform import Platform
from tests.support.world import World

Step = Callable[[str], None]


class Commits:
    """A PyIceberg catalog that tells of every commit before it is made."""

    def __init__(self, catalog: Any, step: Step) -> None:
        self._catalog, self._step = catalog, step

    def load_table(self, name: Any) -> Any:
        table = self._catalog.load_table(name)
        table.catalog = self
        return table

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        self._step(f"inside commit of {table.name()[-1]}")
        return self._catalog.commit_table(table, requirements, updates)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


def telling_commits(world: World, step: Step) -> Platform:
    """A platform that tells of every commit before it is made."""
    catalog: Any = Commits(world.embedded.catalog, step)
    engine = TaskEngine(catalog, InProcess(), world.tasks)
    return replace(world.platform(), catalog=IcebergCatalog(catalog), engine=lambda: engine)


class TellingTasks(InProcess):
    """Tells when files are planned and not yet read, and when others are written."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def run(self, function: Any, items: Sequence[Any]) -> Any:
        self._step("before tasks")
        done = super().run(function, items)
        self._step("after tasks")
        return done


def telling_tasks(world: World, step: Step) -> Platform:
    """A platform that tells of tasks before and after they run."""
    engine = TaskEngine(world.embedded.catalog, TellingTasks(step), world.tasks)
    return replace(world.platform(), engine=lambda: engine)
