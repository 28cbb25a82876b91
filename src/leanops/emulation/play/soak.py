"""A soak: events at a steady rate, while worker processes bring them to Curated and are killed from time to time."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from leanops.domain.errors import EmulationError
from leanops.domain.table.history import rows_in
from leanops.domain.table.outcome import Outcome
from leanops.domain.words import counted
from leanops.emulation.play.crew import LOGS, Crew
from leanops.emulation.play.pace import Kills, Pace
from leanops.emulation.play.phases import Emulation
from leanops.emulation.play.publisher import Publisher
from leanops.emulation.scenario import REST, SOAK
from leanops.emulation.verify.verdict import Verdict
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.topics.registry import add_topics

SETTINGS = """\
# Settings of a soak: everything happens often, and what a killed worker held is soon free.
delivery.flush_s = 1
pipeline.cycle_s = 5
pipeline.lease_s = 20
pipeline.backoff_s = 2
spark.java_options = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
"""
_SERVE = ("from leanops.entrypoints.cli.app import main; main()", "serve")
WORKERS = {
    "processor": (*_SERVE, "--only", "processor", "--only", "dead-letters", "--only", "schemas"),
    "delivery": (*_SERVE, "--only", "delivery"),
    "cycles": (*_SERVE, "--only", "cycles"),
}
LOOK_S, IDLE_S = 1.0, 0.02
LAND_S, STOP_S, STUCK_S = 300.0, 180.0, 120.0
"""What a killed worker had in flight is hidden for a minute; the rest is for slow machines."""


@dataclass
class Wishes:
    """What a user has asked for by signals; it takes effect where no worker is half started."""

    has_workers: bool = False
    is_publishing: bool = False
    stop: bool = False
    """Publish no more, and continue to the end."""
    leave: bool = False
    """End at once."""

    def interrupt(self) -> None:
        """End publishing; if that is over, end everything."""
        if self.is_publishing and not self.stop:
            self.stop = True
        else:
            self.end()

    def end(self) -> None:
        """End at once, or with workers at the next `look`."""
        self.leave = True
        if not self.has_workers:
            raise KeyboardInterrupt

    def look(self) -> None:
        """Raise KeyboardInterrupt if the soak has to end at once."""
        if self.leave:
            raise KeyboardInterrupt

    @contextmanager
    def with_workers(self) -> Iterator[None]:
        """While there are workers, they must be ended first."""
        self.has_workers = True
        try:
            yield
        finally:
            self.has_workers = False


@dataclass(frozen=True)
class Soaked:
    """How a soak went."""

    events: int
    seconds: float
    """Time spent publishing."""
    kills: Mapping[str, int]
    verdict: Verdict

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def batches(self) -> int:
        return sum(len(topic.boundaries.standardized) + len(topic.boundaries.curated) for topic in self.verdict.topics)

    @property
    def extra(self) -> int:
        """Rows of RAW beyond what was sent: a worker was killed between its work and the acknowledgement."""
        return sum(topic.rows["again"] for topic in self.verdict.topics)


class Soak:
    """A soak in the home of an emulation that has published nothing yet."""

    def __init__(
        self,
        emulation: Emulation,
        every_s: float,
        wishes: Wishes | None = None,
        workers: Mapping[str, Sequence[str]] = WORKERS,
        land_s: float = LAND_S,
    ) -> None:
        self._emulation, self._runtime, self._scenario = emulation, emulation.runtime, emulation.scenario
        self._every_s, self._wishes = every_s, wishes or Wishes()
        self._workers, self._land_s = workers, land_s
        self._reported = 0.0

    def run(self) -> Soaked:
        """Publish, let everything land, stop the workers, finish their work and compare it with the ledger."""
        emulation, scenario = self._emulation, self._scenario
        add_topics(emulation.runtime.platform, dict.fromkeys(scenario.names()))
        list(emulation.deploy())
        self._note(Counter(self._workers.keys()))
        with self._wishes.with_workers(), Crew(self._runtime.home, self._workers) as crew:
            pace = Pace(scenario.rate, scenario.events[SOAK] / scenario.rate)
            with emulation.timed(SOAK, "publish") as step:
                step.rows = self._publish(crew, pace)
            seconds = pace.elapsed
            with emulation.timed(SOAK, "land what is left"):
                self._land(crew)
                crew.stop(STOP_S, self._wishes.look)
        self._note(crew.kills)
        with emulation.timed(SOAK, REST):
            self._cycle()
        return Soaked(step.rows, seconds, scenario.kills, emulation.verify())

    def _publish(self, crew: Crew, pace: Pace) -> int:
        publisher = Publisher(self._runtime, self._scenario)
        kills = Kills(self._every_s, list(self._workers), self._scenario.seed)
        self._wishes.is_publishing = True
        try:
            while not (publisher.is_done or (publisher.has_begun and (pace.is_over or self._wishes.stop))):
                if pace.owed(publisher.sent) >= publisher.next_size:
                    publisher.send_next()
                else:
                    time.sleep(IDLE_S)
                self._wishes.look()
                crew.check()
                if doomed := kills.due():
                    self._note(crew.kills + Counter([doomed, *self._workers]))
                    crew.kill(doomed)
                self._report(crew, publisher.sent, pace.elapsed / pace.seconds)
        finally:
            self._wishes.is_publishing = False
            publisher.write()
        return publisher.sent

    def _note(self, kills: Counter[str]) -> None:
        """Save the kills before they happen; a soak that breaks off has killed every worker."""
        self._scenario.kills = dict(kills)
        self._scenario.save(self._runtime.home)

    def _report(self, crew: Crew, sent: int, share: float) -> None:
        if time.monotonic() - self._reported < LOOK_S:
            return
        self._reported = time.monotonic()
        state = f"{sent:,} sent, {sum(self._left().values()):,} on their way, {counted(self._batches(), 'batch')}"
        self._emulation.progress(f"{SOAK}: {state}, {counted(crew.kills.total(), 'kill')}", min(1.0, share))

    def _left(self) -> dict[str, int]:
        """The number of events that are not in their table yet, by where they are."""
        background = self._runtime.background()
        return {
            "in the queues": background.queued,
            "in the delivery buffer": background.delivery.records + background.delivery.claimed,
            "to be drained into dlq_errors": background.undrained,
        }

    def _batches(self) -> int:
        platform = self._runtime.platform
        return rows_in(platform.catalog.load(platform.rules.databases.ops_table("job_run_history")))

    def _land(self, crew: Crew) -> None:
        """Wait until everything that was sent is in RAW or in dlq_errors."""
        deadline = time.monotonic() + self._land_s
        while any(left := self._left().values()):
            if time.monotonic() > deadline:
                rest = ", ".join(f"{count:,} {where}" for where, count in self._left().items() if count)
                logs = self._runtime.home / LOGS
                raise EmulationError(
                    f"after {self._land_s:.0f} s there are still {rest}; see the logs of the workers in {logs}"
                )
            self._emulation.progress(f"{SOAK}: {sum(left):,} on their way", 1.0)
            self._wishes.look()
            crew.check()
            time.sleep(LOOK_S)

    def _cycle(self) -> None:
        """Run cycles in this process until no topic has anything left to do."""
        moved = time.monotonic()
        while True:
            results = run_cycle(self._runtime.platform, list(self._scenario.names()))
            busy = [result for result in results if result.outcome != Outcome.NO_NEW_DATA]
            if not busy:
                return
            if any(result.outcome == Outcome.DONE for result in busy):
                moved = time.monotonic()
                continue
            if time.monotonic() > moved + STUCK_S:
                raise EmulationError(f"no topic made progress for {STUCK_S:.0f} s: {busy[0].sentence()}") from busy[
                    0
                ].failure
            # The lease of a killed worker, or the pause after a failure, has not ended yet.
            time.sleep(LOOK_S)
