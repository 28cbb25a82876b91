"""The numbers of a report, from the steps of an emulation and the verdict on it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from leanops.emulation.events.kinds import Kind
from leanops.emulation.scenario import Scenario, Step
from leanops.emulation.verify.tables import Check
from leanops.emulation.verify.verdict import TopicVerdict, Verdict

SLOWEST = 8


@dataclass(frozen=True)
class Flow:
    """How many events went which way; what came twice is counted twice."""

    published: int
    dead: int
    raw: int
    standardized: Mapping[str, int]
    curated: Mapping[str, int]
    missing: int = 0
    """Published, and nowhere to be found."""
    again: int = 0
    """Rows of RAW beyond what was published of their message: deliveries whose answer was lost."""
    unknown: int = 0
    """Rows of RAW whose message was never published."""
    waiting: int = 0
    """Rows of RAW that no batch has read yet."""
    uncounted: int = 0
    """Rows of RAW that a batch passed without counting them."""
    not_in_raw: int = 0
    """What batches counted beyond the rows of RAW."""
    unread: int = 0
    """Versions Curated has not read yet, or found replaced by newer ones."""
    not_in_standardized: int = 0
    """What batches of Curated counted beyond the versions of Standardized."""

    @property
    def kept(self) -> int:
        """Versions that Standardized held at the end of a batch."""
        return self.standardized.get("inserted", 0) + self.standardized.get("updated", 0)


def flow_of(rows: Mapping[str, int], standardized: Mapping[str, int], curated: Mapping[str, int]) -> Flow:
    """The flow of one topic, with what its counts do not explain."""
    went = {name: rows[name] for name in ("published", "dead", "raw", "missing", "again", "unknown", "waiting")}
    flow = Flow(**went, standardized=standardized, curated=curated)
    uncounted = flow.raw - flow.waiting - sum(standardized.get(outcome, 0) for outcome in _STANDARDIZED)
    unread = flow.kept - sum(curated.get(outcome, 0) for outcome in _CURATED)
    return replace(
        flow,
        uncounted=max(0, uncounted),
        not_in_raw=max(0, -uncounted),
        unread=max(0, unread),
        not_in_standardized=max(0, -unread),
    )


_STANDARDIZED = ("inserted", "updated", "duplicates", "superseded", "parse_errors")
_CURATED = ("inserted", "updated", "unchanged", "errors")
COLUMNS = (
    *("topic", "published", "RAW", "Standardized", "Curated", "quarantined"),
    *("parse errors", "dead letters", "behind", "moved", "checks"),
)
"""What is shown for every topic."""


@dataclass(frozen=True)
class TopicReport:
    """A topic of a report; checks that failed come first."""

    topic: str
    flow: Flow
    rows: Mapping[str, int]
    """Rows of its tables, which hold a message once however often it came."""
    behind: int
    checks: tuple[Check, ...]
    first_paths: int
    """Paths that came with the first batch."""
    added: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def moved(self) -> int:
        return self.flow.curated.get("cross_period", 0)

    @property
    def passed(self) -> int:
        return sum(check.passed for check in self.checks)

    def cells(self) -> tuple[int | str, ...]:
        """The values of COLUMNS."""
        rows = [
            self.rows[name]
            for name in ("published", "raw", "standardized", "curated", "quarantined", "parse_errors", "dead_letters")
        ]
        return (self.topic, *rows, self.behind, self.moved, f"{self.passed} of {len(self.checks)}")

    def as_json(self) -> dict[str, Any]:
        """The fields in the words of the page, and their sums."""
        return {
            "topic": self.topic,
            "verified": self.passed == len(self.checks),
            "rows": self.rows,
            "flow": self.flow,
            "behind": self.behind,
            "moved": self.moved,
            "drift": {"first_paths": self.first_paths, "added": self.added, "type_changed": self.changed},
            "checks": self.checks,
        }


@dataclass(frozen=True)
class Phase:
    """The steps of one phase."""

    name: str
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        """Its time, and the steps that make it up."""
        return {"phase": self.name, "seconds": self.seconds, "steps": self.steps}


@dataclass(frozen=True)
class Report:
    """Everything that a report shows."""

    passed: bool
    seed: int
    seconds: float
    topics: tuple[TopicReport, ...]
    phases: tuple[Phase, ...]
    flow: Flow
    rules: Mapping[str, int]
    """Rule and column → rows refused, the most first."""
    fates: tuple[str, ...]
    kinds: Mapping[str, Mapping[str, int]]
    """Kind → fate → messages."""
    copies: Mapping[str, int]
    periods: Mapping[str, int]
    slowest: tuple[Step, ...]
    """Batches under the name of their topic, and the steps that are not batches."""
    shared: tuple[Check, ...] = ()
    """The checks of what the topics share."""

    def failed(self) -> list[tuple[str, Check]]:
        """Topic and check of everything that failed."""
        return [(name, check) for name, check in self.every_check() if not check.passed]

    def every_check(self) -> list[tuple[str, Check]]:
        """Every check with its topic, and those of what the topics share."""
        checks = [(topic.topic, check) for topic in self.topics for check in topic.checks]
        return checks + [("all topics", check) for check in self.shared]

    def checks(self) -> list[Check]:
        """Every check over all topics together."""
        by_name: dict[str, list[Check]] = {}
        for _, check in self.every_check():
            by_name.setdefault(check.name, []).append(check)
        return [_together(name, checks) for name, checks in by_name.items()]

    def as_json(self) -> dict[str, Any]:
        """The fields in the words of the page."""
        return {
            "verified": self.passed,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "published": self.flow.published,
            "flow": self.flow,
            "topics": self.topics,
            "checks": self.shared,
            "kinds": self.kinds,
            "copies": self.copies,
            "rules": self.rules,
            "periods": self.periods,
            "phases": self.phases,
            "slowest": self.slowest,
        }


def report_of(scenario: Scenario, verdict: Verdict, seconds: float | None = None) -> Report:
    """The report of an emulation; its time is that of its steps unless given."""
    topics = tuple(_topic(topic) for topic in verdict.topics)
    steps = _last_of_each(scenario.steps)
    kinds: dict[str, Counter[str]] = {}
    for (kind, fate), count in ((key, count) for topic in verdict.topics for key, count in topic.kinds.items()):
        kinds.setdefault(kind, Counter())[fate] += count
    return Report(
        # A verdict on nothing proves nothing.
        verdict.passed and any(topic.checks for topic in topics),
        scenario.seed,
        seconds if seconds is not None else sum(step.seconds for step in steps),
        topics,
        _phases(steps),
        _flow([topic.flow for topic in topics]),
        dict(_added(topic.rules for topic in verdict.topics).most_common()),
        tuple(fate for fate in _FATES if any(fate in fates for fates in kinds.values())),
        {kind: kinds[kind] for kind in [*Kind, *sorted(set(kinds) - set(Kind))] if kind in kinds},
        _added(topic.copies for topic in verdict.topics),
        dict(sorted(_added(topic.periods for topic in verdict.topics).items())),
        _slowest(steps, verdict),
        verdict.checks,
    )


_FATES = ("curated", "superseded", "quarantined", "parse error", "dead letter", "on its way", "nowhere")


def _topic(verdict: TopicVerdict) -> TopicReport:
    later = [(action, path) for (action, path), batch in verdict.drift.items() if batch > 1]
    standardized = _added(run.counts for run in verdict.boundaries.standardized)
    return TopicReport(
        verdict.topic,
        flow_of(verdict.rows, standardized, _added(run.counts for run in verdict.boundaries.curated)),
        verdict.rows,
        sum(check.found for check in verdict.checks if check.name == "keys behind"),
        tuple(sorted(verdict.checks, key=lambda check: check.passed)),
        sum(action == "ADDED" for action, _ in verdict.drift) - sum(action == "ADDED" for action, _ in later),
        tuple(sorted(path for action, path in later if action == "ADDED")),
        tuple(sorted(path for action, path in verdict.drift if action == "TYPE_CHANGED")),
    )


def _added(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return total


def _flow(flows: Sequence[Flow]) -> Flow:
    """All topics together; a surplus in one does not make up for what another lacks."""
    together: dict[str, Any] = {}
    for name in (field.name for field in fields(Flow)):
        counts = [getattr(flow, name) for flow in flows]
        together[name] = _added(counts) if name in ("standardized", "curated") else sum(counts)
    return Flow(**together)


def _last_of_each(steps: Sequence[Step]) -> list[Step]:
    """The steps, of which repeated verifications count once."""
    last = {(step.phase, step.what): at for at, step in enumerate(steps) if step.phase == "verify"}
    return [step for at, step in enumerate(steps) if last.get((step.phase, step.what), at) == at]


def _phases(steps: Sequence[Step]) -> tuple[Phase, ...]:
    names = dict.fromkeys(step.phase for step in steps)
    return tuple(Phase(name, tuple(step for step in steps if step.phase == name)) for name in names)


def _slowest(steps: Sequence[Step], verdict: Verdict) -> tuple[Step, ...]:
    """Cycles are left out because they are made of batches."""
    timed = [step for step in steps if not step.what.startswith("cycle")]
    timed += [
        Step(topic.topic, f"{layer}, batch {run.number}", run.seconds or 0.0, run.counts.get("read", 0))
        for topic in verdict.topics
        for layer, runs in (("Standardized", topic.boundaries.standardized), ("Curated", topic.boundaries.curated))
        for run in runs
    ]
    return tuple(sorted(timed, key=lambda step: -step.seconds)[:SLOWEST])


def _together(name: str, checks: Sequence[Check]) -> Check:
    """One check over several topics; it fails if it fails for one of them."""
    wrong = sum(check.wrong or (not check.passed) for check in checks)
    return Check(name, sum(check.expected for check in checks), sum(check.found for check in checks), wrong)
