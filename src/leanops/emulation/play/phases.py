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
from leanops.usecases.schemas.validate import Verdict as SchemaVerdict
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
        for phase in ("day2", "day4"):
            yield from self.day(phase, sizes[phase])

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

    def day(self, phase: str, events: int) -> Iterator[Step]:
        """Day 2: corrections, drift and errors of every kind. Day 4: corrections that move events to other months."""
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
        with self.timed("verify", "tables against the ledger") as step:
            verdict = verify(self.runtime, self.scenario, self.progress)
            step.rows = sum(topic.rows["published"] for topic in verdict.topics)
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
        # Saved first: an interrupted phase looks like a whole one, and must not run again.
        self.scenario.save(self.runtime.home)
        with self.timed(phase, "publish and land") as step:
            step.rows = self._feed.run(self.scenario, phase, lambda done: self.progress(phase, done / events))
        return step

    def _cycled(self, phase: str, what: str, expected: Outcome) -> Step:
        names = list(self.scenario.names())
        reached: dict[str, float] = {}

        def note(topic: str, doing: str) -> None:
            reached[topic] = share_done(doing)
            self.progress(f"{phase}: {topic}: {doing}", sum(reached.values()) / len(names))

        with self.timed(phase, what) as step:
            results = run_cycle(self.runtime.platform, names, progress=note)
            step.rows = sum(layer.counts["read"] for result in results for layer in result.layers.values())
        for result in results:
            if result.outcome != expected:
                raise EmulationError(f"expected {expected.value}, but: {result.sentence()}") from result.failure
        return step

    def _refused(self) -> Step:
        """An invalid file for every topic ends in failed/, and nothing else changes."""
        schemas = self.runtime.platform.schemas
        with self.timed("schema", "wrong schema files refused") as step:
            for topic, profile in self.scenario.names().items():
                schema = profile.schema(topic)
                columns = [{**column, "type": "MONEY"} for column in schema["payload_columns"]]
                verdict = self._taken(topic, schema | {"payload_columns": columns})
                if verdict.outcome != Judged.FAILED or not schemas.failed(topic):
                    raise EmulationError(f"{topic}: an invalid schema file was not refused: {verdict.sentence()}")
                if schemas.active(topic):
                    raise EmulationError(f"{topic}: an invalid schema file became active")
        return step

    def _deployed(self) -> Step:
        with self.timed("schema", "right schema files active") as step:
            for topic, profile in self.scenario.names().items():
                verdict = self._taken(topic, profile.schema(topic))
                if verdict.outcome != Judged.ACTIVE:
                    raise EmulationError(f"{topic}: its schema did not become active: {verdict.sentence()}")
        return step

    def _taken(self, topic: str, schema: Mapping[str, Any]) -> SchemaVerdict:
        """Put a schema file where a person would, and let the inbox take it."""
        folder = self.runtime.home / "schemas" / topic / "pending"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schema.json").write_text(json.dumps(schema, indent=2, ensure_ascii=False))
        return take_pending(self.runtime.platform, Pending(topic, "schema.json"))

    @contextmanager
    def timed(self, phase: str, what: str) -> Iterator[Step]:
        """Record how long a step took, and the rows it handled as set by the caller."""
        step, started = Step(phase, what, 0.0), time.monotonic()
        self.progress(f"{phase}: {what}", 0.0)
        yield step
        step.seconds = time.monotonic() - started
        self.scenario.steps.append(step)
        self.scenario.save(self.runtime.home)
