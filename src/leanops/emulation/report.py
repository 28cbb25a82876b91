"""The numbers of a report, from what an emulation did and what was found."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leanops.emulation.boundaries import Run
from leanops.emulation.found import Check
from leanops.emulation.kinds import Kind
from leanops.emulation.scenario import Scenario, Step
from leanops.emulation.verify import TopicVerdict, Verdict

FILE = "report.html"
SLOWEST = 8


@dataclass(frozen=True)
class Flow:
    """How many events went which way."""

    published: int
    dead: int
    raw: int
    standardized: Mapping[str, int]
    curated: Mapping[str, int]
    missing: int = 0
    """Published, and nowhere to be found."""
    again: int = 0
    """Rows of RAW beyond what was published: deliveries whose answer was lost."""
    waiting: int = 0
    """Rows of RAW that no batch has read yet."""
    unread: int = 0
    """Versions Curated has not read yet, or found replaced by newer ones."""

    @property
    def kept(self) -> int:
        """Versions that Standardized held at the end of a batch."""
        return self.standardized.get("inserted", 0) + self.standardized.get("updated", 0)


def flow_of(published: int, dead: int, raw: int, standardized: Mapping[str, int], curated: Mapping[str, int]) -> Flow:
    """The flow of one topic, with what its counts do not explain."""
    flow = Flow(published, dead, raw, standardized, curated)
    return replace(
        flow,
        missing=max(0, published - dead - raw),
        again=max(0, raw + dead - published),
        waiting=max(0, raw - standardized.get("read", 0)),
        unread=max(0, flow.kept - curated.get("read", 0)),
    )


@dataclass(frozen=True)
class TopicReport:
    """One topic of a report; its checks have those that failed first."""

    topic: str
    flow: Flow
    rows: Mapping[str, int]
    dead_letters: int
    parse_errors: int
    quarantined: int
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


@dataclass(frozen=True)
class Phase:
    """The steps of one phase."""

    name: str
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


@dataclass(frozen=True)
class Report:
    """Everything a report says."""

    passed: bool
    seed: int
    seconds: float
    topics: tuple[TopicReport, ...]
    phases: tuple[Phase, ...]
    flow: Flow
    rules: Mapping[str, int]
    """Rule and column → rows it refused, the most first."""
    fates: tuple[str, ...]
    kinds: Mapping[str, Mapping[str, int]]
    """Kind → fate → messages."""
    copies: Mapping[str, int]
    periods: Mapping[str, int]
    slowest: tuple[Step, ...]
    """Batches under the name of their topic, and the steps that are none."""

    def failed(self) -> list[tuple[str, Check]]:
        """Topic and check of everything that is not as it must be."""
        return [(topic.topic, check) for topic in self.topics for check in topic.checks if not check.passed]

    def checks(self) -> list[Check]:
        """Every check over all topics together."""
        names = dict.fromkeys(check.name for topic in self.topics for check in topic.checks)
        every = [check for topic in self.topics for check in topic.checks]
        return [_together(name, [check for check in every if check.name == name]) for name in names]


def report_of(scenario: Scenario, verdict: Verdict, seconds: float | None = None) -> Report:
    """The report of an emulation; its time is that of its steps unless it is given."""
    topics = tuple(_topic(found) for found in verdict.topics)
    steps = _last_of_each(scenario.steps)
    kinds = _summed((kind, fate, count) for found in verdict.topics for (kind, fate), count in found.kinds.items())
    return Report(
        verdict.passed,
        scenario.seed,
        seconds if seconds is not None else sum(step.seconds for step in steps),
        topics,
        _phases(steps),
        _flow([topic.flow for topic in topics]),
        dict(_added(found.rules for found in verdict.topics).most_common()),
        tuple(fate for fate in _FATES if any(fate in fates for fates in kinds.values())),
        {kind: kinds[kind] for kind in [*Kind, *sorted(set(kinds) - set(Kind))] if kind in kinds},
        _added(found.copies for found in verdict.topics),
        dict(sorted(_added(found.periods for found in verdict.topics).items())),
        _slowest(steps, verdict),
    )


_FATES = ("curated", "superseded", "quarantined", "parse error", "dead letter", "on its way")


def _topic(found: TopicVerdict) -> TopicReport:
    counts = {check.name: check for check in found.checks}
    letters = counts.get("dead letters", Check("dead letters", 0, 0))
    flow = flow_of(
        found.rows.get("published", 0),
        # A copy of a dead letter has no row of its own.
        max(0, found.rows.get("dead", 0) - letters.expected + letters.found),
        found.rows.get("raw", 0),
        _added(run.counts for run in found.boundaries.standardized),
        _added(run.counts for run in found.boundaries.curated),
    )
    later = [(action, path) for (action, path), batch in found.drift.items() if batch > 1]
    return TopicReport(
        found.topic,
        flow,
        found.rows,
        letters.found,
        flow.standardized.get("parse_errors", 0),
        flow.curated.get("errors", 0),
        counts["keys behind"].found if "keys behind" in counts else 0,
        tuple(sorted(found.checks, key=lambda check: check.passed)),
        sum(action == "ADDED" for action, _ in found.drift) - sum(action == "ADDED" for action, _ in later),
        tuple(sorted(path for action, path in later if action == "ADDED")),
        tuple(sorted(path for action, path in found.drift if action == "TYPE_CHANGED")),
    )


def _added(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total


def _summed(rows: Iterable[tuple[str, str, int]]) -> dict[str, Counter[str]]:
    total: dict[str, Counter[str]] = {}
    for kind, fate, count in rows:
        total.setdefault(kind, Counter())[fate] += count
    return total


def _flow(flows: Sequence[Flow]) -> Flow:
    """All topics together; what one has too much does not make up for what another lacks."""
    return Flow(
        sum(flow.published for flow in flows),
        sum(flow.dead for flow in flows),
        sum(flow.raw for flow in flows),
        _added(flow.standardized for flow in flows),
        _added(flow.curated for flow in flows),
        sum(flow.missing for flow in flows),
        sum(flow.again for flow in flows),
        sum(flow.waiting for flow in flows),
        sum(flow.unread for flow in flows),
    )


def _last_of_each(steps: Sequence[Step]) -> list[Step]:
    """Who verifies twice has not waited twice for the same."""
    last = {(step.phase, step.what): at for at, step in enumerate(steps) if step.phase == "verify"}
    return [step for at, step in enumerate(steps) if last.get((step.phase, step.what), at) == at]


def _phases(steps: Sequence[Step]) -> tuple[Phase, ...]:
    names = dict.fromkeys(step.phase for step in steps)
    return tuple(Phase(name, tuple(step for step in steps if step.phase == name)) for name in names)


def _slowest(steps: Sequence[Step], verdict: Verdict) -> tuple[Step, ...]:
    """Cycles are left out, for they are made of batches."""
    timed = [step for step in steps if not step.what.startswith("cycle")]
    for found in verdict.topics:
        timed += _batches(found.topic, "Standardized", found.boundaries.standardized)
        timed += _batches(found.topic, "Curated", found.boundaries.curated)
    return tuple(sorted(timed, key=lambda step: -step.seconds)[:SLOWEST])


def _batches(topic: str, layer: str, runs: Sequence[Run]) -> list[Step]:
    return [Step(topic, f"{layer}, batch {run.number}", run.seconds or 0.0, run.counts["read"]) for run in runs]


def _together(name: str, checks: Sequence[Check]) -> Check:
    """One check over several topics; what is wrong in one of them stays wrong."""
    wrong = sum(check.wrong or (not check.passed) for check in checks)
    return Check(name, sum(check.expected for check in checks), sum(check.found for check in checks), wrong)


def as_json(report: Report) -> dict[str, Any]:
    """The verdict for programs."""
    return {
        "verified": report.passed,
        "seed": report.seed,
        "seconds": round(report.seconds, 1),
        "published": report.flow.published,
        "topics": [_topic_json(topic) for topic in report.topics],
        "kinds": report.kinds,
        "copies": report.copies,
        "rules": report.rules,
        "periods": report.periods,
    }


def _topic_json(topic: TopicReport) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "verified": topic.passed == len(topic.checks),
        "rows": topic.rows,
        "standardized": topic.flow.standardized,
        "curated": topic.flow.curated,
        "dead_letters": topic.dead_letters,
        "behind": topic.behind,
        "drift": {"added": topic.added, "type_changed": topic.changed},
        "checks": [
            {
                "check": check.name,
                "passed": check.passed,
                "expected": check.expected,
                "found": check.found,
                "wrong": check.wrong,
                "messages": [{"message_id": one.message_id, "what": one.what} for one in check.examples],
            }
            for check in topic.checks
        ],
    }
