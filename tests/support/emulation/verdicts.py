"""Verdicts built by hand, for tests of what is made of them."""

from dataclasses import replace

from leanops.emulation.scenario import Scenario, Step
from leanops.emulation.verify.boundaries import Boundaries, Run
from leanops.emulation.verify.tables import Check, Wrong
from leanops.emulation.verify.verdict import TopicVerdict, Verdict

HOSTILE = '<script>alert("x")</script>&'


def scenario() -> Scenario:
    """Two topics and three steps, of which the last was done twice."""
    steps = [
        Step("day1", "publish and land", 2.0, 12_000),
        Step("schema", "cycle over the backlog", 10.0, 22_000),
        Step("verify", "tables against the ledger", 50.0, 12_000),
        Step("verify", "tables against the ledger", 1.0, 12_000),
    ]
    return Scenario(seed=5, topics=2, events={"day1": 12_000}, steps=steps)


def verdict(*checks: Check, **changes: object) -> Verdict:
    """What was found in two topics; the second has these checks, too."""
    return Verdict((topic("orders"), replace(topic("payments", *checks), **changes)))  # type: ignore[arg-type]


def topic(name: str, *checks: Check) -> TopicVerdict:
    """6,000 events: one is dead, and of what landed 5,000 versions are kept and 200 of them refused."""
    standardized = {"inserted": 4_400, "updated": 600, "duplicates": 300, "superseded": 679, "parse_errors": 20}
    curated = {"inserted": 4_350, "updated": 450, "unchanged": 0, "errors": 200, "behind": 150, "cross_period": 40}
    runs = [Run(1, "batch-1", None, 1, 7.0, {"read": 5_999} | standardized)]
    return TopicVerdict(
        name,
        (Check("dead letters", 1, 1), Check("keys behind", 140, 140), Check("rows of Curated", 4_350, 4_350), *checks),
        Boundaries(runs, [Run(1, "batch-2", None, 1, 3.0, {"read": 5_000} | curated)]),
        {("new", "curated"): 4_000, ("correction", "superseded"): 1_000, ("malformed", "parse error"): 20},
        {"duplicate": 300},
        {"2026-09": 350, "2026-10": 4_000},
        {f"cde_missing {name}_id": 150, f"rule_min {HOSTILE}": 50},
        rows(),
        {("ADDED", "$.id"): 1, ("ADDED", f"$.{HOSTILE}"): 2, ("TYPE_CHANGED", "$.amount"): 2},
    )


def rows(**changes: int) -> dict[str, int]:
    """What the tables hold; one message that is not JSON came twice, and has one row."""
    went = {"published": 6_000, "dead": 1, "missing": 0, "again": 0, "unknown": 0, "waiting": 0}
    tables = {"raw": 5_999, "standardized": 4_400, "curated": 4_350}
    return went | tables | {"quarantined": 200, "parse_errors": 19, "dead_letters": 1} | changes


def broken(name: str = "rows of Standardized") -> Check:
    """A check that names the message it fails for."""
    return Check(name, 4_400, 4_399, 1, (Wrong(f"payments-day1-0000007{HOSTILE}", "is missing"),))
