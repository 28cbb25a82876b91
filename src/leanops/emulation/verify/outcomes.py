"""What became of the messages of a topic as a whole, by its tables and not by its ledger."""

from pathlib import Path

from leanops.emulation import ledger
from leanops.emulation.scenario import QUEUE, SOAK, Scenario
from leanops.emulation.verify.boundaries import COUNTS, Boundaries
from leanops.emulation.verify.fates import Fates, listed
from leanops.emulation.verify.found import EXAMPLES, Check, Found, Wrong
from leanops.runtimes.embedded import Embedded
from leanops.usecases.ingest.parts import MESSAGES_PER_RECEIVE

MOVERS = {"day4": 15, SOAK: 2_000}
"""So many events that are sent to move a row cannot but move one; in a soak most meet what they correct in a batch."""
BACK_S = 30
"""A worker that was killed is back by then."""


class Outcomes:
    """Laws on all messages of one topic; to be asked after the laws on its tables, which load these."""

    def __init__(self, runtime: Embedded, scenario: Scenario, topic: str, boundaries: Boundaries, fates: Fates) -> None:
        self._runtime, self._scenario, self._topic = runtime, scenario, topic
        self._boundaries, self._fates = boundaries, fates
        databases, found = runtime.platform.rules.databases, Found(runtime, topic, fates)
        for name, table in {
            "found_dead": databases.dlq_errors,
            "found_unparsed": databases.parse_errors,
            "found_refused": databases.errors,
        }.items():
            found.load(name, table, topic_only=True)
        fates.connection.execute(_FOUND_FATE)

    def all(self) -> list[Check]:
        checks = [self._became(), self._on_their_way(), self._ranges()]
        kills = copying_kills(self._scenario)
        if self._scenario.through == QUEUE and kills:
            checks.append(self._extra(kills))
        parts = ledger.parts(self._runtime.home, self._topic)
        for phase in MOVERS:
            if sent := [part for part in parts if Path(part).name.startswith(f"{phase}-")]:
                checks.append(self._moved(phase, listed(sent)))
        return checks

    def _became(self) -> Check:
        """Every message has become in the tables what it must have become."""
        became = "coalesce(f.fate, 'nowhere')"
        both = f"FROM fate e FULL JOIN found_fate f USING (message_id) WHERE e.fate IS DISTINCT FROM {became}"
        messages, wrong = self._fates.rows(f"SELECT (SELECT count(*) FROM fate), (SELECT count(*) {both})")[0]
        named = f"SELECT coalesce(message_id, '-'), {became}, coalesce(e.fate, 'nowhere') {both} ORDER BY 1"
        examples = self._fates.rows(f"{named} LIMIT {EXAMPLES}")
        said = tuple(Wrong(message, f"is {found}, not {must}") for message, found, must in examples)
        return Check("what became of each message", messages, messages, wrong, said)

    def _on_their_way(self) -> Check:
        """Where everything had its cycle, every row of RAW was read, and every row of Standardized after it."""
        waiting = (
            "SELECT message_id FROM fate WHERE fate = 'on its way' UNION SELECT message_id FROM raw WHERE batch IS NULL"
        )
        found = [message for (message,) in self._fates.rows(f"{waiting} ORDER BY 1")]
        if not (self._scenario.is_processed and self._runtime.platform.schemas.active(self._topic)):
            return Check(ON_THEIR_WAY, len(found), len(found))
        wrong = tuple(Wrong(message, "was read by no batch that is done") for message in found[:EXAMPLES])
        return Check(ON_THEIR_WAY, 0, len(found), len(found), wrong)

    def _ranges(self) -> Check:
        """Every batch began where the one before it had ended, and has counted everything."""
        layers = (self._boundaries.standardized, self._boundaries.curated)
        runs = [(run, names) for runs, names in zip(layers, COUNTS.values(), strict=True) for run in runs]
        wrong = [Wrong(batch, what) for batch, what in self._boundaries.apart.items()]
        wrong += [
            Wrong(run.batch_id, f"has no count of {name}")
            for run, names in runs
            for name in names
            if name not in run.counts
        ]
        return Check("batches follow one another", len(runs), len(runs), len(wrong), tuple(wrong[:EXAMPLES]))

    def _extra(self, kills: int) -> Check:
        """No message came more often than it was sent and somebody was killed."""
        too_often = self._fates.rows(
            "SELECT message_id, landed - sent "
            "FROM (SELECT message_id, count(*) AS sent FROM ledger WHERE NOT is_dead GROUP BY ALL) "
            "JOIN (SELECT message_id, count(*) AS landed FROM raw GROUP BY ALL) USING (message_id) "
            f"WHERE landed - sent > {kills} ORDER BY 1"
        )
        wrong = [Wrong(message, f"came {times:,} times more often than sent") for message, times in too_often]
        return Check("copies made by kills", 0, len(wrong), len(wrong), tuple(wrong[:EXAMPLES]))

    def _moved(self, phase: str, parts: str) -> Check:
        """The batches that read a phase moved as many rows to other periods as the ledger says, and not none."""
        batches = {number for (number,) in self._fates.rows(_READING.format(parts))}
        counted = dict(self._fates.rows("SELECT batch, cross_period FROM curated_count"))
        expected = sum(counted[number] for number in batches)
        moved = sum(run.counts.get("cross_period", 0) for run in self._boundaries.curated if run.number in batches)
        (movers,) = self._fates.rows(_MOVERS.format(parts))[0]
        # Before its cycle a phase has moved nothing yet.
        must_move = self._scenario.is_processed and movers >= MOVERS[phase]
        is_right = moved == expected and (moved > 0 or not must_move)
        wrong = () if is_right else (Wrong("-", f"{phase} moved {moved:,} rows to another period, not {expected:,}"),)
        return Check(f"rows moved to other periods, {phase}", expected, moved, len(wrong), wrong)


def copying_kills(scenario: Scenario) -> int:
    """Kills of workers that may have put a message into RAW and not yet said so; cycles only read it."""
    return sum(scenario.kills.get(name, 0) for name in ("processor", "delivery"))


def copies_by_kills(scenario: Scenario, extra: int) -> tuple[Check, ...]:
    """All topics together have no more copies than the workers that were killed can have had in flight."""
    if scenario.through != QUEUE or not copying_kills(scenario):
        return ()
    held = most_held(scenario)
    said = f"{extra:,} rows of RAW too many; those killed held {held:,} at most"
    wrong = (Wrong("-", said),) if extra > held else ()
    return (Check("copies made by kills, together", extra, extra, len(wrong), wrong),)


def most_held(scenario: Scenario) -> int:
    """As many events as the workers that were killed can have had in flight: a receive, or a flush."""
    held = {"processor": MESSAGES_PER_RECEIVE, "delivery": BACK_S * scenario.rate}
    return sum(scenario.kills.get(name, 0) * events for name, events in held.items())


ON_THEIR_WAY = "messages on their way"
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
