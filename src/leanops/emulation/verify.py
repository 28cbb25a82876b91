"""Verification: the tables against the ledger, topic by topic."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leanops.emulation.boundaries import Boundaries, boundaries_of
from leanops.emulation.checks import Checks
from leanops.emulation.fates import Fates
from leanops.emulation.found import Check, Wrong
from leanops.emulation.scenario import Scenario
from leanops.runtimes.embedded import Embedded
from leanops.views.balance import whole_topic

MOVING = 25
"""So many events of day 4 cannot but move a row: two of three are sent for that."""


@dataclass(frozen=True)
class TopicVerdict:
    """What was found about one topic."""

    topic: str
    checks: tuple[Check, ...]
    boundaries: Boundaries
    kinds: Mapping[tuple[str, str], int]
    """Kind and fate → messages."""
    copies: Mapping[str, int]
    """Kind → messages sent again."""
    periods: Mapping[str, int]
    """Period → rows of Curated."""
    rules: Mapping[str, int]
    """Rule and column → rows it refused."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """What was sent and how much of it was too broken to land, and the rows found in each layer."""
    drift: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Action and path → the batch that saw it first."""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


@dataclass(frozen=True)
class Verdict:
    """What was found about all topics."""

    topics: tuple[TopicVerdict, ...]

    @property
    def passed(self) -> bool:
        return all(topic.passed for topic in self.topics)


def verify(
    runtime: Embedded,
    scenario: Scenario,
    progress: Callable[[str, float], None] = lambda _what, _share: None,
    *,
    is_exact: bool = True,
) -> Verdict:
    """Hold every table against the ledger; `is_exact` where no worker was killed on the way to RAW."""
    found = []
    names = scenario.names()
    for at, topic in enumerate(names):
        progress(f"verify: {topic}", at / len(names))
        found.append(_topic(runtime, scenario, topic, is_exact))
    return Verdict(tuple(found))


def _topic(runtime: Embedded, scenario: Scenario, topic: str, is_exact: bool) -> TopicVerdict:
    boundaries = boundaries_of(runtime, topic)
    fates = Fates(runtime, topic, boundaries)
    try:
        checks = list(Checks(runtime, topic, scenario.names()[topic], boundaries, fates, is_exact).all())
        balance = whole_topic(runtime.sources(), topic)
        checks += [Check(check.name, check.expected, check.found) for check in balance.checks]
        checks += [Check("balance", 0, 1, 1, (Wrong(topic, problem),)) for problem in balance.problems]
        if scenario.events.get("day4"):
            checks.append(_moved(fates, boundaries, scenario.stream(topic, "day4").events))
        return TopicVerdict(
            topic,
            tuple(checks),
            boundaries,
            {(kind, fate): count for kind, fate, count in fates.rows(_KINDS)},
            dict(fates.rows(_COPIES)),
            dict(fates.rows(_PERIODS)),
            dict(fates.rows(_RULES)),
            dict(fates.rows(_ROWS)),
            _drift(fates, boundaries),
        )
    finally:
        fates.close()


def _drift(fates: Fates, boundaries: Boundaries) -> Mapping[tuple[str, str], int]:
    numbers = {run.batch_id: run.number for run in boundaries.standardized}
    is_logged = "details" in [name for name, *_ in fates.rows("DESCRIBE found_drift")]
    found = fates.rows(_DRIFT) if is_logged else []
    return {(action, path): numbers.get(batch, 1) for action, path, batch in reversed(found)}


def _moved(fates: Fates, boundaries: Boundaries, events: int) -> Check:
    """As many rows moved to other periods as the ledger says, and of a day made for that some did."""
    (expected,) = fates.rows("SELECT coalesce(sum(cross_period), 0)::BIGINT FROM curated_count")[0]
    moved = sum(run.counts["cross_period"] for run in boundaries.curated)
    is_right = moved == expected and (moved > 0 or events < MOVING)
    wrong = () if is_right else (Wrong("-", f"{moved:,} rows of Curated moved to another period, not {expected:,}"),)
    return Check("rows moved to other periods", expected, moved, len(wrong), wrong)


_KINDS = "SELECT kind, fate, count(*) FROM fate GROUP BY ALL ORDER BY ALL"
_COPIES = "SELECT kind, count(*) FROM ledger WHERE kind IN ('duplicate', 'redelivery') GROUP BY ALL ORDER BY ALL"
_PERIODS = "SELECT period_reference, count(*) FROM found_curated GROUP BY ALL ORDER BY ALL"
_RULES = """
SELECT rule, count(*) FROM (
    SELECT unnest(failures) AS rule FROM error_row UNION ALL SELECT rule FROM message WHERE rule IS NOT NULL
) GROUP BY ALL ORDER BY 2 DESC, 1
"""
_ROWS = """
SELECT 'published', count(*) FROM ledger UNION ALL SELECT 'dead', count(*) FROM ledger WHERE is_dead
UNION ALL SELECT 'raw', count(*) FROM raw UNION ALL SELECT 'standardized', count(*) FROM found_standardized
UNION ALL SELECT 'curated', count(*) FROM found_curated
"""
_DRIFT = """
SELECT action, details->>'path' AS path, details->>'batch_id' FROM found_drift WHERE path IS NOT NULL
ORDER BY detected_ts, action, path
"""
