"""The phases of the story: each does one thing to the home of an emulation and reports its steps."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leanops.domain.errors import EmulationError, UsageError
from leanops.domain.table.outcome import Outcome
from leanops.emulation import ledger
from leanops.emulation.play.feed import Feed
from leanops.emulation.play.homes import scenario_of
from leanops.emulation.scenario import BACKLOG, CYCLE, Step
from leanops.emulation.verify.verdict import Verdict, verify
from leanops.ports.schemas import Pending
from leanops.runtimes.embedded import Embedded
from leanops.usecases.cycle.run import run_cycle, share_done
from leanops.usecases.platform import Actor
from leanops.usecases.schemas.inbox import take_pending
from leanops.usecases.schemas.validate import Outcome as Judged
from leanops.usecases.topics.registry import add_topics

WHO = Actor("emulation", "files")
Progress = Callable[[str, float], None]
"""What is going on, and the share of it that is done."""


class Emulation:
    """An emulation in its home, open for some phases."""

    def __init__(
        self, home: Path, progress: Progress = lambda _what, _share: None, runtime: Embedded | None = None
    ) -> None:
        self.scenario = scenario_of(home)
        self.runtime = runtime or Embedded(home, actor=WHO)
        self.progress = progress
        self._feed = Feed(self.runtime)

    def close(self) -> None:
        self._feed.close()
        self.runtime.close()

    def play(self, sizes: Mapping[str, int]) -> Iterator[Step]:
        """Play the whole story, without its verification."""
        # Spark takes some seconds to start and is not needed yet.
        threading.Thread(target=self.runtime.spark, daemon=True).start()
        yield from self.day1(sizes["day1"])
        yield from self.schema()
        yield from self.day2(sizes["day2"])
        yield from self.day4(sizes["day4"])

    def day1(self, events: int) -> Iterator[Step]:
        """Clean events and no schema: RAW is filled, and the cycle reports why nothing else is."""
        self._check_turn("day1", events)
        add_topics(self.runtime.platform, dict.fromkeys(self.scenario.names()))
        yield self._published("day1", events)
        yield self._cycled("day1", "cycle without a schema", Outcome.NO_SCHEMA)

    def schema(self) -> Iterator[Step]:
        """An invalid schema file changes nothing; with a valid one the backlog is processed."""
        if "day1" not in self.scenario.events:
            raise UsageError("nothing waits for a schema yet; run first: leanops emulate day1")
        if self._has_schemas():
            raise UsageError("the schemas are already active; start over with: leanops emulate clean")
        yield from self.deploy()
        yield self._cycled("schema", BACKLOG, Outcome.DONE)
        yield self._cycled("schema", "cycle with nothing new", Outcome.NO_NEW_DATA)

    def deploy(self) -> Iterator[Step]:
        """Invalid schema files are refused, valid ones become active."""
        yield self._refused()
        yield self._deployed()

    def day2(self, events: int) -> Iterator[Step]:
        """Corrections, drift and errors of every kind."""
        return self._day("day2", events)

    def day4(self, events: int) -> Iterator[Step]:
        """Corrections that move events to other months."""
        return self._day("day4", events)

    def _day(self, phase: str, events: int) -> Iterator[Step]:
        self._check_turn(phase, events)
        yield self._published(phase, events)
        yield self._cycled(phase, CYCLE, Outcome.DONE)

    def verify(self) -> Verdict:
        """Compare the tables with the ledger."""
        if not self.scenario.events:
            raise UsageError("nothing has been published yet; run first: leanops emulate day1")
        for topic in self.scenario.names():
            if not ledger.parts(self.runtime.home, topic):
                raise UsageError(f"{topic}: none of its events was published; start over with: leanops emulate clean")
        with self.timed("verify", "tables against the ledger") as rows:
            verdict = verify(self.runtime, self.scenario, self.progress)
            rows.append(sum(topic.rows["published"] for topic in verdict.topics))
        return verdict

    def _check_turn(self, phase: str, events: int) -> None:
        """Raise UsageError if it is not the turn of a phase, before anything is done for it."""
        if phase in self.scenario.events:
            raise UsageError(f"{phase} has already been started; start over with: leanops emulate clean")
        if phase != "day1" and not self._has_schemas():
            raise UsageError(f"{phase} needs active schemas; run first: leanops emulate day1, leanops emulate schema")
        self.scenario.check_size(phase, events)

    def _has_schemas(self) -> bool:
        return all(self.runtime.platform.schemas.active(topic) for topic in self.scenario.names())

    def _published(self, phase: str, events: int) -> Step:
        self.scenario.events[phase] = events
        # Saved first: an interrupted phase cannot be told from a whole one, and must not run again.
        self.scenario.save(self.runtime.home)
        with self.timed(phase, "publish and land") as rows:
            rows.append(self._feed.run(self.scenario, phase, lambda done: self.progress(phase, done / events)))
        return self._last()

    def _cycled(self, phase: str, what: str, expected: Outcome) -> Step:
        names = list(self.scenario.names())
        reached: dict[str, float] = {}

        def note(topic: str, step: str) -> None:
            reached[topic] = share_done(step)
            self.progress(f"{phase}: {topic}: {step}", sum(reached.values()) / len(names))

        with self.timed(phase, what) as rows:
            results = run_cycle(self.runtime.platform, names, progress=note)
            rows.append(sum(layer.counts["read"] for result in results for layer in result.layers.values()))
        for result in results:
            if result.outcome != expected:
                raise EmulationError(f"expected {expected.value}, but: {result.sentence()}") from result.failure
        return self._last()

    def _refused(self) -> Step:
        """An invalid file for every topic ends in failed/, and nothing else changes."""
        platform = self.runtime.platform
        with self.timed("schema", "wrong schema files refused"):
            for topic, schema in self._schemas().items():
                columns = [{**column, "type": "MONEY"} for column in schema["payload_columns"]]
                verdict = take_pending(platform, self._put(topic, schema | {"payload_columns": columns}))
                if verdict.outcome != Judged.FAILED or not platform.schemas.failed(topic):
                    raise EmulationError(f"{topic}: an invalid schema file was not refused: {verdict.sentence()}")
                if platform.schemas.active(topic):
                    raise EmulationError(f"{topic}: an invalid schema file became active")
        return self._last()

    def _deployed(self) -> Step:
        with self.timed("schema", "right schema files active"):
            for topic, schema in self._schemas().items():
                verdict = take_pending(self.runtime.platform, self._put(topic, schema))
                if verdict.outcome != Judged.ACTIVE:
                    raise EmulationError(f"{topic}: its schema did not become active: {verdict.sentence()}")
        return self._last()

    def _schemas(self) -> Mapping[str, dict[str, Any]]:
        return {topic: profile.schema(topic) for topic, profile in self.scenario.names().items()}

    def _put(self, topic: str, schema: Mapping[str, Any]) -> Pending:
        """Put a schema file where a person would."""
        folder = self.runtime.home / "schemas" / topic / "pending"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schema.json").write_text(json.dumps(schema, indent=2, ensure_ascii=False))
        return Pending(topic, "schema.json")

    @contextmanager
    def timed(self, phase: str, what: str) -> Iterator[list[int]]:
        """Record how long a step took and how many rows it handled, as appended to what this yields."""
        started, rows = time.monotonic(), list[int]()
        self.progress(f"{phase}: {what}", 0.0)
        yield rows
        self.scenario.steps.append(Step(phase, what, time.monotonic() - started, sum(rows)))
        self.scenario.save(self.runtime.home)

    def _last(self) -> Step:
        return self.scenario.steps[-1]
