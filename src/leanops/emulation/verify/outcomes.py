"""What became of the messages of a topic as a whole, and of what all topics share, according to the tables."""

from contextlib import closing
from pathlib import Path

from leanops.domain.words import counted
from leanops.emulation import ledger
from leanops.emulation.scenario import QUEUE, SOAK, Scenario
from leanops.emulation.verify.boundaries import COUNTS
from leanops.emulation.verify.fates import Fates
from leanops.emulation.verify.tables import EXAMPLES, Check, Tables, Wrong, listed, text
from leanops.runtimes.embedded import Embedded
from leanops.usecases.ingest.parts import MESSAGES_PER_RECEIVE

MOVERS = {"day4": 15, SOAK: 2_000}
"""This many events that may move a row must move one; in a soak most share a batch with what they correct."""
BACK_S = 30
"""A killed worker is back by then."""


class Outcomes:
    """Laws on all messages of one topic; they need the tables that the other laws have loaded."""

    def __init__(self, fates: Fates) -> None:
        self.fates, self.scenario, self.boundaries = fates, fates.scenario, fates.boundaries

    def all(self) -> list[Check]:
        self.fates.connection.execute(_FOUND_FATE)
        checks = [self._became(), self._on_their_way(), self._ranges()]
        kills = copying_kills(self.scenario)
        if self.scenario.through == QUEUE and kills:
            checks.append(self._extra(kills))
        parts = ledger.parts(self.fates.runtime.home, self.fates.topic)
        for phase in MOVERS:
            if sent := [part for part in parts if Path(part).name.startswith(f"{phase}-")]:
                checks.append(self._moved(phase, listed(sent)))
        return checks

    def _became(self) -> Check:
        """The tables have made of every message what they must."""
        became = "coalesce(f.fate, 'nowhere')"
        both = f"FROM fate e FULL JOIN found_fate f USING (message_id) WHERE e.fate IS DISTINCT FROM {became}"
        messages, wrong = self.fates.rows(f"SELECT (SELECT count(*) FROM fate), (SELECT count(*) {both})")[0]
        both = f"SELECT coalesce(message_id, '-'), {became}, coalesce(e.fate, 'nowhere') {both} ORDER BY 1"
        examples = self.fates.rows(f"{both} LIMIT {EXAMPLES}")
        named = tuple(Wrong(message, f"is {found}, not {expected}") for message, found, expected in examples)
        return Check("what became of each message", messages, messages, wrong, named)

    def _on_their_way(self) -> Check:
        """If everything has had its cycle, every row of RAW and of Standardized has been read."""
        waiting = (
            "SELECT message_id FROM fate WHERE fate = 'on its way' UNION SELECT message_id FROM raw WHERE batch IS NULL"
        )
        messages = [message for (message,) in self.fates.rows(f"{waiting} ORDER BY 1")]
        if not (self.scenario.is_processed and self.fates.runtime.platform.schemas.active(self.fates.topic)):
            return Check("messages on their way", len(messages), len(messages))
        wrong = [Wrong(message, "was not read by a finished batch") for message in messages]
        return Check.none("messages on their way", wrong)

    def _ranges(self) -> Check:
        """Every batch began where the one before it ended, and has counted everything."""
        layers = (self.boundaries.standardized, self.boundaries.curated)
        runs = [(run, names) for runs, names in zip(layers, COUNTS.values(), strict=True) for run in runs]
        wrong = [Wrong(batch, what) for batch, what in self.boundaries.apart.items()]
        wrong += [
            Wrong(run.batch_id, f"has no count of {name}")
            for run, names in runs
            for name in names
            if name not in run.counts
        ]
        return Check.of("no gap between batches", len(runs), len(runs), wrong)

    def _extra(self, kills: int) -> Check:
        """No message has more extra copies than there were kills."""
        too_often = self.fates.rows(
            "SELECT message_id, landed - sent "
            "FROM (SELECT message_id, count(*) AS sent FROM ledger WHERE NOT is_dead GROUP BY ALL) "
            "JOIN (SELECT message_id, count(*) AS landed FROM raw GROUP BY ALL) USING (message_id) "
            f"WHERE landed - sent > {kills} ORDER BY 1"
        )
        wrong = [Wrong(message, f"came {times:,} times more often than sent") for message, times in too_often]
        return Check.none("copies made by kills", wrong)

    def _moved(self, phase: str, parts: str) -> Check:
        """The batches that read a phase moved the rows to other periods that the ledger says, and at least one."""
        batches = {number for (number,) in self.fates.rows(_READING.format(parts))}
        movers_of = dict(self.fates.rows("SELECT batch, cross_period FROM curated_count"))
        expected = sum(movers_of[number] for number in batches)
        moved = sum(run.counts.get("cross_period", 0) for run in self.boundaries.curated if run.number in batches)
        (movers,) = self.fates.rows(_MOVERS.format(parts))[0]
        # Before its cycle a phase has moved nothing yet.
        must_move = self.scenario.is_processed and movers >= MOVERS[phase]
        is_right = moved == expected and (moved > 0 or not must_move)
        message = f"{phase} moved {counted(moved, 'row')} to another period, not {expected:,}"
        wrong = () if is_right else (Wrong("-", message),)
        return Check(f"rows moved to other periods, {phase}", expected, moved, len(wrong), wrong)


def copying_kills(scenario: Scenario) -> int:
    """Kills of workers that may have put a message into RAW without an acknowledgement; cycles only read it."""
    return sum(scenario.kills.get(name, 0) for name in ("processor", "delivery"))


def copies_by_kills(scenario: Scenario, extra: int) -> tuple[Check, ...]:
    """All topics together have no more extra copies than the killed workers can have had in flight."""
    if scenario.through != QUEUE or not copying_kills(scenario):
        return ()
    # A killed worker had a receive in flight, or a flush.
    in_flight = {"processor": MESSAGES_PER_RECEIVE, "delivery": BACK_S * scenario.rate}
    held = sum(scenario.kills.get(name, 0) * events for name, events in in_flight.items())
    message = f"{counted(extra, 'row')} of RAW too many; the killed workers held {held:,} at most"
    wrong = (Wrong("-", message),) if extra > held else ()
    return (Check("copies made by kills, together", extra, extra, len(wrong), wrong),)


def strays(runtime: Embedded, scenario: Scenario) -> tuple[Check, ...]:
    """Check the tables that all topics share: rows of no topic, and personal data in any error row."""
    names, known = runtime.platform.rules.databases, ", ".join(map(text, scenario.names()))
    errors = (names.errors, names.parse_errors, names.dlq_errors)
    foreign, clear = list[Wrong](), list[Wrong]()
    with closing(Tables(runtime)) as tables:
        for table in (*errors, names.ops_table("drift_log"), names.ops_table("job_run_history")):
            tables.load("shared", table)
            message = "coalesce(message_id, '-')" if table in errors else "'-'"
            rows = f"SELECT {message} FROM shared WHERE coalesce(topic_name NOT IN ({known}), true) ORDER BY 1"
            foreign += [Wrong(name, f"is in {table} under an unknown topic") for (name,) in tables.rows(rows)]
            clear += tables.in_clear("shared", table, scenario.names().values()) if table in errors else []
    return Check.none("rows of no topic", foreign), Check.none("personal data in plain text in any error row", clear)


_FOUND_FATE = """
CREATE OR REPLACE TABLE found_fate AS
SELECT message_id, ['dead letter', 'parse error', 'quarantined', 'curated', 'on its way', 'superseded', 'on its way'][
    min(place)] AS fate
FROM (
    SELECT message_id, 1 AS place FROM found_dead UNION ALL SELECT message_id, 2 FROM found_unparsed
    UNION ALL SELECT message_id, 3 FROM found_refused UNION ALL SELECT message_id, 4 FROM found_curated
    UNION ALL SELECT message_id, 5 FROM found_standardized
    UNION ALL SELECT message_id, CASE WHEN batch IS NULL THEN 7 ELSE 6 END FROM raw
) GROUP BY message_id
"""
_READING = """
SELECT DISTINCT number FROM arrival JOIN curated_run ON batch > coalesce(source_from, 0) AND batch <= source_to
WHERE message_id IN (SELECT message_id FROM read_parquet({}) WHERE kind NOT IN ('duplicate', 'redelivery'))
"""
_MOVERS = "SELECT count(*) FROM read_parquet({}) WHERE kind IN ('cross_period', 'far_period')"
