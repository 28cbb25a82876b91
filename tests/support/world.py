"""A platform of its own on a shared Spark: fresh tables, a clock the test moves, and steps it can stop at."""

import random
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from leanops.adapters.files.folder import Folder
from leanops.adapters.files.schemas import SchemaFiles
from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.adapters.iceberg.batches.spark import SparkRunner
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.sql.state import SqlState
from leanops.domain.errors import LeanOpsError
from leanops.domain.event.names import Databases
from leanops.ports.engine import Engine
from leanops.runtimes.embedded import Embedded
from leanops.usecases.cycle.job import TopicResult
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.platform import Platform, Rules, Secret, no_step
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic
from tests.oracle.rows import LANDED, RawRow
from tests.oracle.streams import split
from tests.support.builders import changed

PII_KEY = b"a key for the tests"
# A schema column without a path needs its Standardized column to exist: this event brings it.
FIRST = RawRow("first", datetime(2024, 1, 1, tzinfo=UTC), "orders", '{"note":"first"}', LANDED)
_numbers = count()


def few_batches(chance: random.Random, rows: list[RawRow]) -> list[list[RawRow]]:
    """The rows in one to four batches, one of them perhaps tiny."""
    cuts = {chance.randrange(1, len(rows)) for _ in range(chance.randrange(3))}
    return split(rows, cuts | ({min(cuts) + 1} if cuts else set()))


class Abandoned(BaseException):
    """A process killed at a step: nothing after it runs, nothing is cleaned up."""


def databases_of(number: int) -> Databases:
    """The databases of one world."""
    return Databases(f"raw{number}", f"standardized{number}", f"curated{number}", f"ops{number}", f"shadow{number}")


class Wrapped:
    """An engine for tests that change one of its answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class World:
    """One test's tables, state and time; every platform it makes is new, as after a restart."""

    def __init__(
        self, embedded: Embedded, folder: Path, number: int | None = None, *, in_process: bool = False
    ) -> None:
        self.embedded, self.folder = embedded, folder
        self.in_process, self.tasks = in_process, TaskRules()
        self.number = next(_numbers) if number is None else number
        self.databases = databases_of(self.number)
        self.rules = Rules(self.databases)
        self.with_rules(pipeline={"backoff_s": 0, "tries": 1000, "workers": 2}, operations={"wait_s": 0})
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.published: dict[str, list[tuple[int, list[RawRow]]]] = {}
        """Per topic: the RAW snapshot of each append, and its rows."""
        self._states: list[SqlState] = []

    def clock(self) -> datetime:
        """Every look at the clock is a millisecond later."""
        self.now += timedelta(milliseconds=1)
        return self.now

    def engine(self) -> Engine:
        """Tasks on the shared Spark, or in this process, without it."""
        runner = InProcess() if self.in_process else SparkRunner(self.embedded.spark)
        return TaskEngine(self.embedded.catalog, runner, self.tasks)

    def platform(
        self,
        step: Callable[[str], None] = no_step,
        engine: Callable[[], Engine] | None = None,
    ) -> Platform:
        """New objects over the same stores."""
        state = SqlState(f"sqlite:///{self.folder}/state.db")
        self._states.append(state)
        return Platform(
            catalog=self.embedded.platform.catalog,
            engine=engine or self.engine,
            state=state,
            schemas=SchemaFiles(Folder(self.folder / "schemas")),
            clock=self.clock,
            owner=f"worker-{len(self._states)}",
            rules=self.rules,
            secret=Secret(PII_KEY, "test-key"),
            step=step,
        )

    def close(self) -> None:
        for state in self._states:
            state.close()

    def add(self, topic: str, schema: str | None = None) -> None:
        platform = self.platform()
        add_topic(platform, topic)
        if schema:
            deploy_schema(platform, topic, schema, "schema.json")

    def publish(self, topic: str, rows: Iterable[RawRow]) -> None:
        """RAW rows in one append."""
        table, events = self.databases.raw_table(topic), list(rows)
        self.embedded.platform.catalog.append(table, [{**asdict(row), "topic_name": topic} for row in events])
        view = self.embedded.platform.catalog.load(table)
        self.published.setdefault(topic, []).append((view.head, events))

    def cycle(self, platform: Platform | None = None, **options: Any) -> dict[str, TopicResult]:
        results = run_cycle(platform or self.platform(), **options)
        for result in results:
            if result.failure and not isinstance(result.failure, LeanOpsError):
                raise result.failure
        return {result.topic: result for result in results}

    def settle(self) -> None:
        """Cycles until there is nothing new: the first may only repeat a batch that was begun before."""
        while any(result.outcome == "done" for result in self.cycle().values()):
            pass

    def know_published(self, topic: str, batches: list[list[RawRow]]) -> None:
        """Note what other processes published: one append per batch, in order."""
        view = self.embedded.platform.catalog.load(self.databases.raw_table(topic))
        snapshots = [snapshot.snapshot_id for snapshot in reversed(view.ancestors())]
        self.published[topic] = list(zip(snapshots, batches, strict=False))

    def wait_for_leases(self) -> None:
        """Let the leases of whoever was killed run out."""
        self.now += timedelta(seconds=self.rules.pipeline.lease_s + 1)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Every row of a table, read without Spark."""
        view = self.embedded.platform.catalog.load(table)
        return self.embedded.platform.catalog.select(table, list(view.columns)) if view else []

    def standardized(self, topic: str) -> list[dict[str, Any]]:
        return self.rows(self.databases.standardized_table(topic))

    def curated(self, table_name: str) -> list[dict[str, Any]]:
        return self.rows(self.databases.curated_table(table_name))

    def errors(self, table: str, topic: str) -> list[dict[str, Any]]:
        return [row for row in self.rows(table) if row["topic_name"] == topic]

    def with_rules(self, **sections: dict[str, Any]) -> None:
        """Change some rules of these sections."""
        self.rules = changed(self.rules, **sections)
