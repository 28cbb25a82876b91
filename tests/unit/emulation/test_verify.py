"""Verification of homes without Spark: what is left lying, ends elsewhere or belongs to nobody is found and named."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from leanops.domain.table.balance import StandardizedCounts
from leanops.domain.table.batch import CURATED, STANDARDIZED, Batch
from leanops.domain.table.definitions import CURATED as CURATED_TABLE
from leanops.domain.table.definitions import ERRORS, OPS, RAW
from leanops.domain.table.definitions import STANDARDIZED as STANDARDIZED_TABLE
from leanops.domain.table.history import watermark_of
from leanops.emulation import ledger
from leanops.emulation.events.generator import Message
from leanops.emulation.events.kinds import Kind
from leanops.emulation.scenario import READ_BY, SOAK, Scenario, Step
from leanops.emulation.verify.boundaries import COUNTS
from leanops.emulation.verify.outcomes import MOVERS
from leanops.emulation.verify.tables import Check, Database, Tables
from leanops.emulation.verify.verdict import TopicVerdict, Verdict, verify
from leanops.ports.schemas import Pending
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.ingest.parts import MESSAGES_PER_RECEIVE
from leanops.usecases.schemas.inbox import take_pending
from leanops.usecases.topics.registry import add_topics
from tests.support.emulation.stories import is_copy, messages_of, moment, story

TOPIC = "orders"
NOW = datetime(2026, 10, 30, tzinfo=UTC)
EMAIL = "person-000001@people.example"
Row = dict[str, Any]


@dataclass
class World:
    """A home with one topic: what was sent and landed, and the batches somebody says there were."""

    runtime: Embedded
    scenario: Scenario
    starts: dict[str, int | None] = field(
        default_factory=lambda: dict[str, int | None]({STANDARDIZED: None, CURATED: 0})
    )
    batches: int = 0

    def __post_init__(self) -> None:
        self.platform, self.names = self.runtime.platform, self.runtime.platform.rules.databases
        add_topics(self.platform, dict.fromkeys(self.scenario.names()))
        self.platform.catalog.create(self.names.ops_table("job_run_history"), OPS["job_run_history"])
        self.platform.catalog.create(self.names.standardized_table(TOPIC), STANDARDIZED_TABLE)

    def send(self, phase: str, messages: Sequence[Message], landed: Sequence[Message] | None = None) -> None:
        """Messages in the ledger and, all or some of them, in RAW."""
        part = f"{phase}-{len(ledger.parts(self.runtime.home, TOPIC)):05d}"
        ledger.write(self.runtime.home, TOPIC, self.scenario.names()[TOPIC], part, messages)
        rows = [raw_row(message) for message in (messages if landed is None else landed) if not message.is_dead]
        columns = {name: [row.get(name) for row in rows] for name in RAW.columns}
        self.platform.catalog.land(self.names.raw_table(TOPIC), RAW, columns, {}, lambda _table: ())

    def read(self, **counts: int) -> None:
        """A batch of each layer that has read everything there is, by the run history and the watermarks alone."""
        self.batches += 1
        raw = self.platform.catalog.load(self.names.raw_table(TOPIC))
        assert raw
        assert raw.head
        name = f"batch-{self.batches}"
        batch = Batch(name, TOPIC, STANDARDIZED, "", None, 0, 0, 1, self.batches, 0, 1)
        mark = watermark_of(batch, StandardizedCounts(1, 1, 0, 0, 0, 0)).summary()
        self.platform.catalog.append(
            self.names.standardized_table(TOPIC), [{"record_key": name, "message_id": name}], mark
        )
        self.note(STANDARDIZED, name, raw.head, **counts)
        self.note(CURATED, name, self.batches, **counts)

    def note(self, layer: str, name: str, source_to: int, **counts: int | None) -> None:
        """A line of the run history."""
        counted = {"rows_read" if count == "read" else count: 0 for count in COUNTS[layer]} | counts
        row = {"topic_name": TOPIC, "layer": layer, "batch_id": name, "source_from": self.starts[layer]}
        self.put(self.names.ops_table("job_run_history"), row | {"source_to": source_to} | counted)
        self.starts[layer] = source_to

    def put(self, table: str, *rows: Row) -> None:
        self.platform.catalog.append(table, list(rows))

    def deploy(self) -> None:
        """The active schema of the topic."""
        folder = self.runtime.home / "schemas" / TOPIC / "pending"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schema.json").write_text(json.dumps(self.scenario.names()[TOPIC].schema(TOPIC)))
        take_pending(self.platform, Pending(TOPIC, "schema.json"))
        assert self.platform.schemas.active(TOPIC)

    def cycled(self) -> None:
        """Every phase has had its cycle, whatever that did."""
        self.scenario.steps = [Step(*READ_BY[phase], 1.0) for phase in self.scenario.events]

    def verdict(self) -> TopicVerdict:
        return verify(self.runtime, self.scenario).topics[0]


def raw_row(message: Message) -> Row:
    return {
        "message_id": message.message_id,
        "publish_time": moment(message.publish_us),
        "topic_name": TOPIC,
        "json_payload": message.text,
        "ingestion_ts": message.ingestion_ms,
    }


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Embedded]:
    # A home may have any name, also one that looks like a pattern.
    runtime = Embedded(create_home(tmp_path / "home [1]*"))
    yield runtime
    runtime.close()


@pytest.fixture
def world(runtime: Embedded) -> World:
    return World(runtime, story(topics=1, day1=40, day2=40, day4=60))


def day(world: World, phase: str) -> list[Message]:
    return messages_of(world.scenario, TOPIC, phase)


def ids(messages: Iterable[Message]) -> set[str]:
    return {message.message_id for message in messages}


def check(verdict: TopicVerdict | Verdict, name: str) -> Check:
    (found,) = [check for check in verdict.checks if check.name == name]
    return found


def reasons(found: Check) -> dict[str, str]:
    return {wrong.message_id: wrong.what for wrong in found.examples}


def test_what_no_batch_ever_read_is_on_its_way_and_named(world: World) -> None:
    world.send("day1", day(world, "day1"))
    world.deploy()
    world.cycled()
    found = check(world.verdict(), "messages on their way")
    assert not found.passed
    assert (found.expected, found.found, found.wrong) == (0, 40, 40)
    assert reasons(found).keys() < ids(day(world, "day1"))


def test_a_last_batch_that_ends_one_flush_early_leaves_exactly_that_flush(world: World) -> None:
    first, last = day(world, "day1")[:35], day(world, "day1")[35:]
    world.send("day1", first)
    world.deploy()
    world.cycled()
    world.read()
    again = first[0]._replace(kind=Kind.REDELIVERY)
    world.send("day1", [*last, again])
    found = check(world.verdict(), "messages on their way")
    assert reasons(found).keys() == {*ids(last), again.message_id}
    assert not found.passed


@pytest.mark.parametrize("missing", ["schema", "cycle"])
def test_what_has_no_schema_or_had_no_cycle_yet_may_be_on_its_way(world: World, missing: str) -> None:
    world.send("day1", day(world, "day1"))
    if missing != "schema":
        world.deploy()
    world.cycled()
    if missing == "cycle":
        world.scenario.steps.pop()
    found = check(world.verdict(), "messages on their way")
    assert found.passed
    assert found.found == 40


def test_what_became_of_messages_is_read_from_the_tables_and_held_against_the_ledger(world: World) -> None:
    messages = [message for message in day(world, "day2") if not is_copy(message)]
    malformed = next(message for message in messages if message.rule and not message.is_dead)
    landed = [message for message in messages if not message.is_dead]
    world.send("day2", messages, landed[:-1])
    world.deploy()
    world.read()
    verdict = world.verdict()
    assert {fate for _, fate in verdict.kinds} == {"superseded", "nowhere"}
    assert reasons(check(verdict, "what became of each message"))["batch-1"] == "is on its way, not nowhere"
    assert verdict.rules == {}
    found = check(verdict, "what became of each message")
    assert not found.passed
    assert {what for message, what in reasons(found).items() if message != "batch-1"} <= {
        "is superseded, not curated",
        "is superseded, not quarantined",
        "is superseded, not parse error",
        "is nowhere, not on its way",
        "is nowhere, not dead letter",
    }
    refused = {"topic_name": TOPIC, "message_id": malformed.message_id, "failures": [failure("not_json", None)]}
    world.platform.catalog.create(world.names.parse_errors, ERRORS)
    world.put(world.names.parse_errors, refused)
    verdict = world.verdict()
    assert verdict.kinds[malformed.kind, "parse error"] == 1
    assert verdict.rules == {"not_json": 1}
    assert check(verdict, "what became of each message").wrong == found.wrong - 1


def failure(rule: str, column: str | None, value: str | None = None) -> Row:
    return {"rule": rule, "column": column, "path": None, "message": "", "value": value}


def test_rows_of_no_topic_are_found_and_so_is_personal_data_in_them(world: World) -> None:
    world.send("day1", day(world, "day1"))
    row = {"message_id": "stray", "failures": [failure("cast_failed", "customer_email", EMAIL)]}
    for table in (world.names.errors, world.names.parse_errors, world.names.dlq_errors):
        world.platform.catalog.create(table, ERRORS)
    world.put(world.names.errors, row | {"topic_name": "ordres"})
    world.put(world.names.parse_errors, row | {"topic_name": None})
    world.put(world.names.dlq_errors, {"topic_name": TOPIC, "message_id": "ours", "failures": []})
    drift = world.names.ops_table("drift_log")
    world.platform.catalog.create(drift, OPS["drift_log"])
    world.put(drift, {"topic_name": "ordres"}, {"topic_name": TOPIC})
    world.put(world.names.ops_table("job_run_history"), {"topic_name": "ordres", "batch_id": "x"})
    verdict = verify(world.runtime, world.scenario)
    found = check(verdict, "rows of no topic")
    assert [(wrong.message_id, wrong.what.split()[2]) for wrong in found.examples] == [
        ("stray", world.names.errors),
        ("stray", world.names.parse_errors),
        ("-", drift),
        ("-", world.names.ops_table("job_run_history")),
    ]
    clear = check(verdict, "personal data in plain text in any error row")
    assert [wrong.what.split()[-1] for wrong in clear.examples] == [world.names.errors, world.names.parse_errors]
    assert not verdict.passed
    assert not Verdict((), verdict.checks).passed


def test_tables_that_are_there_and_empty_lack_their_rows(world: World) -> None:
    world.send("day1", day(world, "day1"))
    world.deploy()
    world.read()
    catalog, names = world.platform.catalog, world.names
    catalog.create(names.curated_table(TOPIC), CURATED_TABLE)
    catalog.alter(names.curated_table(TOPIC), {"order_id": ("string", "")})
    for table in (names.errors, names.parse_errors, names.dlq_errors):
        catalog.create(table, ERRORS)
    drift = names.ops_table("drift_log")
    catalog.create(drift, OPS["drift_log"])
    verdict = world.verdict()
    assert set(reasons(check(verdict, "rows of Curated")).values()) == {"is missing"}
    # A line of drift_log that says nothing.
    world.put(drift, {"topic_name": TOPIC, "action": "ADDED"}, {"topic_name": TOPIC, "action": "TYPE_CHANGED"})
    assert not world.verdict().passed


def test_a_column_that_no_file_has_yet_is_null(world: World) -> None:
    table = world.names.standardized_table(TOPIC)
    world.put(table, {"record_key": "key:1"})
    world.platform.catalog.alter(table, {"order_id": ("string", "$.order.id")})
    with closing(Tables(world.runtime)) as tables:
        paths = tables.load("found", table)
        assert paths == {"$.order.id": "order_id"}
        assert tables.rows("SELECT record_key, order_id FROM found") == [("key:1", None)]


def test_a_table_of_raw_that_is_not_there_lacks_every_message(world: World) -> None:
    ledger.write(world.runtime.home, TOPIC, world.scenario.names()[TOPIC], "day1-00000", day(world, "day1"))
    verdict = world.verdict()
    assert check(verdict, "messages in RAW").wrong == 40
    assert {fate for _, fate in verdict.kinds} == {"nowhere"}


def test_rows_moved_on_day_2_are_none_of_day_4(world: World) -> None:
    world.deploy()
    world.cycled()
    world.send("day1", [*day(world, "day1"), *day(world, "day2")])
    world.read(cross_period=3)
    world.send("day4", day(world, "day4"))
    found = check(world.verdict(), "rows moved to other periods, day4")
    assert (found.expected, found.found, found.wrong) == (0, 0, 1)
    world.read(cross_period=1)
    found = check(world.verdict(), "rows moved to other periods, day4")
    assert found.expected > 1
    assert (found.found, found.wrong) == (1, 1)


def test_a_long_soak_that_moved_nothing_is_wrong(runtime: Embedded) -> None:
    rates = "new=0,cross_period=0.6"
    world = World(runtime, Scenario(topics=1, rate=1_000, rates=rates, events={SOAK: MOVERS[SOAK] * 2}))
    world.send(SOAK, messages_of(world.scenario, TOPIC, SOAK))
    assert check(world.verdict(), "rows moved to other periods, soak").passed
    world.cycled()
    assert not check(world.verdict(), "rows moved to other periods, soak").passed


@dataclass(frozen=True)
class Killed:
    """Kills, how often one message landed more than it was sent, and whether that may be."""

    kills: Mapping[str, int]
    extra: int
    is_right: bool


@pytest.mark.parametrize(
    "case",
    [
        Killed({}, 1, is_right=False),
        Killed({"cycles": 9}, 1, is_right=False),
        Killed({"processor": 1}, 1, is_right=True),
        Killed({"processor": 1}, 2, is_right=False),
        Killed({"processor": 1, "delivery": 1}, 2, is_right=True),
    ],
    ids=str,
)
def test_a_message_may_be_in_raw_once_more_for_every_kill_on_the_way_there(world: World, case: Killed) -> None:
    messages = day(world, "day1")
    world.scenario.kills = dict(case.kills)
    world.send("day1", messages, [*messages, *[messages[7]] * case.extra])
    wrong = [
        found
        for found in world.verdict().checks
        if found.name in ("messages in RAW", "copies made by kills") and not found.passed
    ]
    assert (wrong == []) == case.is_right
    assert all(reasons(found).keys() == {messages[7].message_id} for found in wrong)


def test_more_rows_than_those_killed_can_have_held_are_too_many(world: World) -> None:
    messages = day(world, "day1")
    world.scenario.kills = {"processor": 1}
    world.send("day1", messages, [*messages, *messages[:5] * (MESSAGES_PER_RECEIVE // 5)])

    def together() -> Check:
        shared = verify(world.runtime, world.scenario).checks
        return next(found for found in shared if found.name == "copies made by kills, together")

    assert together().passed
    world.send("day2", day(world, "day2")[:1], [*day(world, "day2")[:1], messages[5]])
    assert reasons(together()) == {"-": "5,001 rows of RAW too many; the killed workers held 5,000 at most"}


def test_what_is_being_compared_is_broken_off_where_a_topic_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_off = threading.Event()

    def topic(_runtime: object, _scenario: object, name: str, at_work: set[Any]) -> None:
        if name == "orders":
            at_work.add(Mock(**{"connection.interrupt": broken_off.set}))
            assert begun.wait(10)
            raise ValueError("no such file")
        begun.set()
        assert broken_off.wait(10)

    begun = threading.Event()
    monkeypatch.setattr("leanops.emulation.verify.verdict._topic", topic)
    with pytest.raises(ValueError, match="no such file"):
        verify(cast("Embedded", None), Scenario(topics=2))
    assert broken_off.is_set()


def test_batches_that_leave_something_out_or_have_not_counted_are_named(world: World) -> None:
    world.send("day1", day(world, "day1"))
    world.read()
    world.send("day2", day(world, "day2"))
    assert check(world.verdict(), "no gap between batches").passed
    world.starts[STANDARDIZED] = None
    world.read()
    world.note(CURATED, "batch-3", world.batches + 1, updated=None)
    found = check(world.verdict(), "no gap between batches")
    assert not found.passed
    assert reasons(found).keys() == {"batch-2", "batch-3"}
    assert reasons(found)["batch-3"] == "has no count of updated"
    assert reasons(found)["batch-2"].startswith("began at None, but the batch before it ended at ")


def test_duckdb_leaves_the_machine_to_others(world: World) -> None:
    with closing(Database(world.runtime.home)) as database:
        assert database.rows("SELECT current_setting('memory_limit')") == [("953.6 MiB",)]
