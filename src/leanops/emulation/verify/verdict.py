"""Verification: the tables are compared with the ledger, topic by topic."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field

import duckdb

from leanops.emulation.scenario import Scenario
from leanops.emulation.verify.boundaries import Boundaries
from leanops.emulation.verify.checks import Checks
from leanops.emulation.verify.fates import Fates
from leanops.emulation.verify.outcomes import Outcomes, copies_by_kills, strays
from leanops.emulation.verify.tables import Check, Database, Wrong
from leanops.runtimes.embedded import Embedded
from leanops.views.balance import whole_topic

AT_ONCE = 2
"""Topics verified in parallel: while one plans or waits for a file, another joins."""


@dataclass(frozen=True)
class TopicVerdict:
    """The verdict on one topic."""

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
    """Rule and column → rows refused."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of every table; messages that are dead or missing; rows of RAW that came again, are unknown or wait."""
    drift: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Action and path → the batch that saw it first."""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


@dataclass(frozen=True)
class Verdict:
    """The verdict on all topics."""

    topics: tuple[TopicVerdict, ...]
    checks: tuple[Check, ...] = ()
    """Laws on what the topics share."""

    @property
    def passed(self) -> bool:
        return all(topic.passed for topic in self.topics) and all(check.passed for check in self.checks)


def verify(
    runtime: Embedded, scenario: Scenario, progress: Callable[[str, float], None] = lambda _what, _share: None
) -> Verdict:
    """Compare every table with the ledger."""
    topics, names, at_work = list[TopicVerdict](), list(scenario.names()), set[Fates]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        begun = [pool.submit(_topic, runtime, scenario, topic, at_work) for topic in names]
        try:
            for future in begun:
                topics.append(future.result())
                progress(f"verify: {len(topics)} of {len(names)} topics", len(topics) / len(names))
        except BaseException:
            _break_off(begun, at_work)
            raise
    extra = sum(topic.rows["again"] for topic in topics)
    return Verdict(tuple(topics), (*strays(runtime, scenario), *copies_by_kills(scenario, extra)))


def _break_off(begun: Sequence["Future[TopicVerdict]"], at_work: set[Fates]) -> None:
    """Interrupt what runs, statement by statement, so that nobody waits until every topic is compared."""
    for future in begun:
        future.cancel()
    while wait(begun, timeout=0.1).not_done:
        for fates in list(at_work):
            # It may have just been closed.
            with suppress(duckdb.Error):
                fates.connection.interrupt()


def _topic(runtime: Embedded, scenario: Scenario, topic: str, at_work: set[Fates]) -> TopicVerdict:
    fates = Fates(runtime, scenario, topic)
    at_work.add(fates)
    try:
        checks = [*Checks(fates).all(), *Outcomes(fates).all()]
        balance = whole_topic(runtime.sources(), topic)
        checks += [Check(check.name, check.expected, check.found) for check in balance.checks]
        checks += [Check("balance", 0, 1, 1, (Wrong(topic, problem),)) for problem in balance.problems]
        return TopicVerdict(
            topic,
            tuple(checks),
            fates.boundaries,
            {(kind, fate): count for kind, fate, count in fates.rows(_KINDS)},
            dict(fates.rows(_COPIES)),
            dict(fates.rows(_PERIODS)),
            dict(fates.rows(_RULES)),
            counted(fates),
            {(action, path): batch for action, path, batch in fates.rows(_DRIFT)},
        )
    finally:
        at_work.discard(fates)
        fates.close()


def counted(database: Database) -> dict[str, int]:
    """The rows of every table, and the messages that are not in RAW as often as they were sent."""
    return dict(database.rows(_ROWS))


_KINDS = """
SELECT kind, coalesce(f.fate, 'nowhere') AS became, count(*)
FROM message LEFT JOIN found_fate f USING (message_id) GROUP BY ALL ORDER BY ALL
"""
_COPIES = "SELECT kind, count(*) FROM ledger WHERE kind IN ('duplicate', 'redelivery') GROUP BY ALL ORDER BY ALL"
_PERIODS = "SELECT period_reference, count(*) FROM found_curated GROUP BY ALL ORDER BY ALL"
_RULES = """
SELECT failure.rule || coalesce(' ' || failure."column", '') AS name, count(*) FROM (
    SELECT unnest(failures) AS failure FROM found_dead UNION ALL SELECT unnest(failures) FROM found_unparsed
    UNION ALL SELECT unnest(failures) FROM found_refused
) GROUP BY ALL ORDER BY 2 DESC, 1
"""
_ROWS = """
WITH way AS (
    SELECT coalesce(sent, 0) AS sent, coalesce(landed, 0) AS landed,
           message_id IN (SELECT message_id FROM found_dead WHERE message_id IS NOT NULL) AS is_dead
    FROM (SELECT message_id, count(*) AS sent FROM ledger GROUP BY ALL)
    FULL JOIN (SELECT message_id, count(*) AS landed FROM raw GROUP BY ALL) USING (message_id)
)
SELECT 'published', coalesce(sum(sent), 0)::BIGINT FROM way
UNION ALL SELECT 'dead', coalesce(sum(sent - landed), 0)::BIGINT FROM way WHERE sent > landed AND is_dead
UNION ALL SELECT 'missing', coalesce(sum(sent - landed), 0)::BIGINT FROM way WHERE sent > landed AND NOT is_dead
UNION ALL SELECT 'again', coalesce(sum(landed - sent), 0)::BIGINT FROM way WHERE landed > sent AND sent > 0
UNION ALL SELECT 'unknown', coalesce(sum(landed), 0)::BIGINT FROM way WHERE sent = 0
UNION ALL SELECT 'raw', count(*) FROM raw UNION ALL SELECT 'waiting', count(*) FROM raw WHERE batch IS NULL
UNION ALL SELECT 'standardized', count(*) FROM found_standardized
UNION ALL SELECT 'curated', count(*) FROM found_curated UNION ALL SELECT 'quarantined', count(*) FROM found_refused
UNION ALL SELECT 'parse_errors', count(*) FROM found_unparsed UNION ALL SELECT 'dead_letters', count(*) FROM found_dead
"""
_DRIFT = "SELECT action, path, min(coalesce(batch, 1)) FROM drift_line WHERE path IS NOT NULL GROUP BY ALL"
