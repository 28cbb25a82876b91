"""An emulation whose home can be put back to a step of its story, and what a verdict on it must name."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.emulation.play.phases import Emulation
from leanops.emulation.scenario import Scenario
from leanops.emulation.verify.tables import Check
from leanops.emulation.verify.verdict import TopicVerdict, Verdict
from leanops.runtimes.embedded import Embedded
from tests.support.emulation.stories import EVERYTHING

SIZES = {"day1": 3_000, "day2": 1_500, "day4": 600}
TOPICS = ("orders", "payments")
WHOLE = Scenario(seed=11, topics=len(TOPICS), rates=EVERYTHING.replace("oversized=0", "oversized=0.006"), events=SIZES)
SCHEMA, LANDED, DONE = "schema", "landed", "done"


@dataclass
class Story:
    """A story as it was at some of its steps; its home can be put back to each of them."""

    home: Path
    kept: Path
    spark: Any

    def keep(self, name: str) -> None:
        shutil.copytree(self.home, self.kept / name)

    def at(self, name: str) -> Emulation:
        """The story as it was at a step; tables know their places, so the home is always the same folder."""
        shutil.rmtree(self.home)
        shutil.copytree(self.kept / name, self.home)
        return Emulation(self.home, runtime=in_process(Embedded(self.home, spark=self.spark)))

    def opened(self) -> Emulation:
        """The story as it is, its batches worked on by the workers of Spark."""
        return Emulation(self.home, runtime=Embedded(self.home, spark=self.spark))


def in_process(runtime: Embedded) -> Embedded:
    """A runtime whose batches are worked on in this process, where a test can change what is done to their rows."""
    engine = TaskEngine(runtime.catalog, InProcess(), runtime.settings.spark)
    runtime.platform = replace(runtime.platform, engine=lambda: engine)
    return runtime


def opened(story: Story, step: str) -> Iterator[Emulation]:
    emulation = story.at(step)
    yield emulation
    emulation.close()


def of(verdict: Verdict, topic: str) -> TopicVerdict:
    return next(found for found in verdict.topics if found.topic == topic)


def failed(verdict: Verdict, topic: str) -> dict[str, Check]:
    assert not verdict.passed
    return {check.name: check for check in of(verdict, topic).checks if not check.passed}


def named(check: Check) -> set[str]:
    return {wrong.message_id for wrong in check.examples}


def assert_names(check: Check, affected: set[str], what: str) -> None:
    """The check counts every message it happened to, and its examples are some of those and say what it is."""
    assert affected
    assert check.wrong == len(affected)
    assert check.examples
    assert named(check) <= affected
    assert len(named(check)) == len(check.examples)
    assert {wrong.what for wrong in check.examples if what not in wrong.what} == set()
