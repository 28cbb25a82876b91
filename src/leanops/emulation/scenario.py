"""The scenario of an emulation; it is kept in the home, so that phases can run one by one."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec

from leanops.adapters.files.folder import write_whole
from leanops.domain.errors import UsageError
from leanops.emulation.events.generator import Phase, Stream, phases, soak
from leanops.emulation.events.kinds import DAY2, QUEUE_ONLY, with_rates
from leanops.emulation.events.profile import Profile
from leanops.emulation.events.profiles import PROFILES

FILE, REPORT = "emulation.json", "report.html"
QUEUE, PUBSUB = "queue", "pubsub"
"""Where events enter."""
SOAK, TURNS_PER_SECOND, LEAST_CHUNK = "soak", 10, 20
DAYS = {"day1": 1_000_000, "day2": 50_000, "day4": 5_000}
"""The default number of events of each day."""
BACKLOG, CYCLE, REST = "cycle over the backlog", "cycle", "process what is left"
READ_BY = {"day1": ("schema", BACKLOG), "day2": ("day2", CYCLE), "day4": ("day4", CYCLE), SOAK: (SOAK, REST)}
"""Phase → phase and name of the step that must read what it published."""


class Step(msgspec.Struct):
    """A step of an emulation, and how long it took."""

    phase: str
    what: str
    seconds: float
    rows: int = 0


class Scenario(msgspec.Struct, tag_field="made_by", tag="leanops emulate", forbid_unknown_fields=True):
    """Everything that decides the events of an emulation, and what it has done so far."""

    seed: int = 1
    topics: int = 2
    rates: str = ""
    through: str = QUEUE
    events: dict[str, int] = {}
    """Phase that ran → the events it published; for a soak, the events it was to publish."""
    rate: int = 0
    """Events per second of a soak."""
    kills: dict[str, int] = {}
    """Worker → how often a soak killed it."""
    steps: list[Step] = []

    def names(self) -> dict[str, Profile]:
        """The topics and their profiles, which take turns."""
        rounds = (divmod(at, len(PROFILES)) for at in range(self.topics))
        profiles = ((round_, PROFILES[at]) for round_, at in rounds)
        return {f"{profile.name}_{round_ + 1}" if round_ else profile.name: profile for round_, profile in profiles}

    @property
    def is_processed(self) -> bool:
        """Whether everything that was published has had its cycle, so that nothing may still be on its way."""
        done = {(step.phase, step.what) for step in self.steps}
        return all(READ_BY[phase] in done for phase in self.events)

    def check(self) -> None:
        """Raise UsageError if its rates are not possible."""
        with_rates(DAY2, self.rates)
        chosen = with_rates({}, self.rates)
        if self.through == PUBSUB and any(chosen.get(kind) for kind in QUEUE_ONLY):
            raise UsageError(f"{' and '.join(QUEUE_ONLY)} cannot be sent through Pub/Sub; leave them out of --rates")

    def check_size(self, phase: str, events: int) -> None:
        """Raise UsageError if a topic would get no event: it could not be verified."""
        if events < self.topics:
            how = "a longer --for or a higher --rate" if phase == SOAK else f"--events {self.topics} or more"
            raise UsageError(f"{phase} needs an event for each topic: {how}")

    def phase(self, name: str) -> Phase:
        if name == SOAK:
            return soak(self.rates, timedelta(seconds=self.events[SOAK] / self.rate))
        phase = phases(self.rates)[name]
        if self.through == PUBSUB:
            phase = replace(phase, rates={kind: rate for kind, rate in phase.rates.items() if kind not in QUEUE_ONLY})
        return phase

    def stream(self, topic: str, name: str) -> Stream:
        """The events of a topic in a phase whose size is known."""
        at, known = list(self.names()).index(topic), 0
        earlier: Stream | None = None
        if name == SOAK:
            return Stream(
                topic, self.names()[topic], self.seed, self.phase(SOAK), self._share(SOAK, at), size=self._size()
            )
        for phase in DAYS:
            share = self._share(phase, at)
            stream = Stream(topic, self.names()[topic], self.seed, self.phase(phase), share, known, earlier)
            if phase == name:
                return stream
            if share:
                earlier, known = stream, known + share
        raise AssertionError(name)

    def turns(self, phase: str, chunks: int = 1) -> Iterator[tuple[Stream, int]]:
        """The streams of a phase, each with the first of its next chunks; the topics take turns."""
        streams = [self.stream(topic, phase) for topic in self.names()]
        for first in range(0, max(stream.chunks for stream in streams), chunks):
            yield from ((stream, first) for stream in streams if first < stream.chunks)

    def _share(self, phase: str, at: int) -> int:
        """The number of events of a phase that are those of one topic."""
        events = self.events.get(phase, 0)
        return events // self.topics + (at < events % self.topics)

    def _size(self) -> int:
        """The number of events of a soak that are sent at once."""
        return max(LEAST_CHUNK, self.rate // (TURNS_PER_SECOND * self.topics))

    def save(self, home: Path) -> None:
        write_whole(home / FILE, msgspec.json.format(msgspec.json.encode(self)))
