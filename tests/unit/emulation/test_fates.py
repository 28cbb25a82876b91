"""The ledger's fates against the oracle: over any batches, every expected row and count is the model's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.domain.table.batch import STANDARDIZED
from leanops.emulation import ledger
from leanops.emulation.events.generator import Message
from leanops.emulation.events.profile import MICROS, VERSION, Profile
from leanops.emulation.events.profiles import PROFILES
from leanops.emulation.verify.boundaries import COUNTS
from leanops.emulation.verify.fates import RAW, work_out
from leanops.emulation.verify.layers import typed
from tests.oracle.model import Model
from tests.oracle.rows import CuratedRow
from tests.support.emulation.stories import all_messages, is_copy, moment, raw_row, story

HOUR = 3_600 * MICROS
KEY = b"a key"
PROFILE = {profile.name: profile for profile in PROFILES}
Counts = dict[str, int]


@dataclass
class Told:
    """A story cut into batches, and what the model makes of it."""

    topic: str
    profile: Profile
    messages: list[Message]
    batches: list[list[Message]]
    runs: list[tuple[int, int, int]]
    """The batches of Curated: number, and the batches of Standardized it reads, from (not read) and to."""
    unread: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = Model(self.topic, self.profile.schema(self.topic), pii_key=KEY)
        self.standardized: dict[int, Counts] = {}
        self.curated: dict[int, Counts] = {}
        self.curated_by: dict[str, int] = {}
        ends = {end: number for number, _, end in self.runs}
        for at, batch in enumerate(self.batches, start=1):
            self.standardized[at] = self.model.standardize(raw_row(self.topic, message) for message in batch)
            if at in ends:
                self._curate(ends[at])

    def _curate(self, number: int) -> None:
        model, before = self.model, dict(self.model.curated)
        read = [row for row in model.standardized.values() if row.batch_seq > model.curated_seq]
        counts = model.curate()
        changed = {key: row for key, row in model.curated.items() if before.get(key) is not row}
        self.curated_by |= dict.fromkeys(changed, number)
        failures = [model.errors.get(row.message_id, []) for row in read]
        counts["cde_missing"] = sum("cde_missing" in [rule for rule, _ in found] for found in failures)
        counts["late_corrections"] = sum(
            key in before and abs(months(row) - months(before[key])) > 1 for key, row in changed.items()
        )
        self.curated[number] = counts

    @contextmanager
    def fates(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A database with what the ledger makes of the same batches."""
        read = [(at, message) for at, batch in enumerate(self.batches, start=1) for message in batch]
        landed = [*read, *((None, message) for message in self.unread)]
        with TemporaryDirectory() as folder, duckdb.connect() as connection:
            home = Path(folder)
            ledger.write(home, self.topic, self.profile, "all", self.messages)
            connection.execute(f"CREATE TABLE raw ({RAW})")
            rows = [(one.message_id, one.publish_us, one.ingestion_ms, "", batch) for batch, one in landed]
            connection.executemany("INSERT INTO raw VALUES (?, ?, ?, ?, ?)", rows)
            work_out(connection, ledger.parts(home, self.topic), self.runs)
            yield connection


def months(row: CuratedRow) -> int:
    period = row.source.period_reference
    return int(period[:4]) * 12 + int(period[5:])


def tied(messages: list[Message]) -> list[Message]:
    """The messages with times so coarse that many a version is decided by what comes after its time."""
    return [_coarse(message) for message in messages]


def _coarse(message: Message) -> Message:
    # Ids rise with time; here some that are sent earlier have a greater one.
    publish_us = (message.publish_us // HOUR - int(message.message_id[-3:]) % 5) * HOUR
    if message.version_us is None or message.rule:
        return message._replace(publish_us=publish_us)
    version_us = message.version_us // (12 * HOUR) * 12 * HOUR
    old, new = str(message.cells[VERSION]), f"{moment(version_us):%Y-%m-%dT%H:%M:%SZ}"
    cells = (*message.cells[:VERSION], new, *message.cells[VERSION + 1 :])
    text = message.text.replace(f'"{old}"', f'"{new}"')
    return message._replace(publish_us=publish_us, version_us=version_us, cells=cells, text=text)


def cut(random: Random, topic: str, profile: Profile, messages: list[Message], *, is_dealt: bool) -> Told:
    """Messages in some batches: as they came, or dealt out so that copies lie far apart."""
    landed = [message for message in messages if not message.is_dead]
    count = random.randint(1, 7)
    if is_dealt:
        batches: list[list[Message]] = [[] for _ in range(count)]
        for message in landed:
            random.choice(batches).append(message)
    else:
        ends = sorted({len(landed), *(random.randrange(1, len(landed)) for _ in range(count - 1))})
        batches = [landed[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    if random.random() < 0.5:
        # A batch that brings nothing new still is one.
        batches.insert(random.randint(1, len(batches)), random.sample(batches[0], min(3, len(batches[0]))))
    batches = [batch for batch in batches if batch]
    unread = batches.pop() if len(batches) > 2 and random.random() < 0.3 else []
    ends = [at for at in range(1, len(batches) + 1) if random.random() < 0.6]
    runs = [(number, start, end) for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False), start=1)]
    return Told(topic, profile, messages, batches, runs, unread)


def drawn(seed: int, topic: str, things: int, *, is_dealt: bool, is_tied: bool) -> Told:
    """A story with few things, so that each is told of often."""
    random, profile = Random(seed), PROFILE[topic]
    sizes = {"day1": things * 4, "day2": random.randint(50, 200) * 4, "day4": 4 * 60}
    messages = all_messages(story(seed, **sizes), topic)
    return cut(random, topic, profile, tied(messages) if is_tied else messages, is_dealt=is_dealt)


any_story = given(
    seed=st.integers(0, 2**32),
    topic=st.sampled_from(sorted(PROFILE)),
    things=st.integers(4, 60),
    is_dealt=st.booleans(),
    is_tied=st.booleans(),
)


def rows(connection: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    return connection.execute(statement).fetchall()


def counts(connection: duckdb.DuckDBPyConnection, table: str) -> dict[int, Counts]:
    found = connection.execute(f"FROM {table}")
    names = [column[0] for column in found.description or ()]
    return {row[0]: dict(zip(names[1:], map(int, row[1:]), strict=True)) for row in found.fetchall()}


def assert_standardized(told: Told, connection: duckdb.DuckDBPyConnection) -> None:
    found = rows(
        connection,
        "SELECT r.record_key, message_id, first_ms, first_seen_ms, batch, key, month, last_us, sent_us "
        "FROM standardized_row r JOIN message USING (message_id)",
    )
    assert {row[0]: (*row[1:7], moment(row[7]), moment(row[8])) for row in found} == {
        key: (
            row.message_id,
            row.ingestion_ts,
            row.first_seen_ts,
            row.batch_seq,
            row.idempotency_key,
            row.period_reference,
            row.last_updated_ts,
            row.publish_time,
        )
        for key, row in told.model.standardized.items()
    }
    assert len(found) == len(told.model.standardized)


def assert_curated(told: Told, connection: duckdb.DuckDBPyConnection) -> None:
    found = rows(connection, "SELECT record_key, message_id, first_ms, first_seen_ms, batch FROM curated_row")
    assert sorted(found) == sorted(
        (f"key:{key}", row.source.message_id, row.source.ingestion_ts, row.source.first_seen_ts, told.curated_by[key])
        for key, row in told.model.curated.items()
    )


@settings(max_examples=30)
@any_story
def test_the_rows_and_counts_of_every_batch_are_the_models(
    seed: int, topic: str, things: int, is_dealt: bool, is_tied: bool
) -> None:
    told = drawn(seed, topic, things, is_dealt=is_dealt, is_tied=is_tied)
    with told.fates() as connection:
        assert_standardized(told, connection)
        known = {batch: {name: one[name] for name in COUNTS[STANDARDIZED]} for batch, one in told.standardized.items()}
        assert counts(connection, "standardized_count") == known
        assert_curated(told, connection)
        assert counts(connection, "curated_count") == told.curated
        read = "SELECT message_id, rule FROM message SEMI JOIN (FROM raw WHERE batch IS NOT NULL) USING (message_id)"
        assert {
            message: [(rule, None)] for message, rule in rows(connection, f"FROM ({read}) WHERE rule IS NOT NULL")
        } == (told.model.parse_errors)
        errors = {
            message: sorted(f"{rule} {column}" for rule, column in broken)
            for message, broken in told.model.errors.items()
        }
        assert dict(rows(connection, "SELECT message_id, failures FROM error_row")) == errors
        behind = dict(rows(connection, "SELECT record_key, message_id FROM behind_key"))
        assert behind == {key: told.model.standardized[key].message_id for key in told.model.behind()}


@settings(max_examples=10)
@any_story
def test_every_message_has_exactly_one_fate(seed: int, topic: str, things: int, is_dealt: bool, is_tied: bool) -> None:
    told = drawn(seed, topic, things, is_dealt=is_dealt, is_tied=is_tied)
    with told.fates() as connection:
        fates = dict(rows(connection, "SELECT message_id, fate FROM fate"))
        (count,) = rows(connection, "SELECT count(*) FROM fate")
    model, read = told.model, {message.message_id for batch in told.batches for message in batch}
    assert count == (len(fates),)
    assert fates.keys() == {message.message_id for message in told.messages}
    curated = {row.source.message_id for row in model.curated.values()}
    current = {row.message_id for row in model.standardized.values()}
    for message in told.messages:
        name = message.message_id
        expected = (
            "dead letter" if message.is_dead
            else "on its way" if name not in read
            else "parse error" if name in model.parse_errors
            else "quarantined" if name in model.errors
            else "curated" if name in curated
            else "on its way" if name in current
            else "superseded"
        )  # fmt: skip
        assert fates[name] == expected


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_the_values_expected_of_curated_are_the_models(profile: Profile) -> None:
    told = cut(
        Random(5),
        profile.name,
        profile,
        all_messages(story(5, day1=2_000, day2=4_000, day4=400), profile.name),
        is_dealt=False,
    )
    told.runs = told.runs or [(1, 0, len(told.batches))]
    columns = [(leaf.column, typed(leaf, at)) for at, leaf in enumerate(profile.leaves) if leaf.type]
    plain = {name: value for name, value in columns if "sealed" not in value}
    assert len(columns) - len(plain) == sum(leaf.pii == "hmac" for leaf in profile.leaves)
    with told.fates() as connection:
        chosen = ", ".join(f"{value} AS {name}" for name, value in plain.items())
        found = connection.execute(
            f"SELECT message_id, {chosen} FROM curated_row JOIN sent e USING (message_id)"
        ).fetchall()
    expected = {row.source.message_id: row.values for row in told.model.curated.values()}
    assert expected
    assert {row[0]: dict(zip(plain, row[1:], strict=True)) for row in found} == {
        message: {name: values[name] for name in plain} for message, values in expected.items()
    }


def test_the_stories_hold_what_is_hard() -> None:
    seen = set[str]()
    for seed in range(10):
        told = drawn(seed, "payments", 30, is_dealt=bool(seed % 2), is_tied=True)
        seen |= {name for name, count in (told.model.totals | told.model.curated_totals).items() if count}
        made = [message for message in told.messages if message.key and not is_copy(message)]
        curated = list(told.curated.values())
        also = {
            "ties": len({(message.publish_us, message.key) for message in made}) < len(made),
            "unread": bool(told.unread),
            "late corrections": any(run["late_corrections"] for run in curated),
            "nothing for Curated": any(not run["read"] for run in curated),
        }
        seen |= {name for name, is_there in also.items() if is_there}
    assert seen >= {
        "inserted", "updated", "duplicates", "superseded", "parse_errors", "missing_keys", "errors", "behind",
        "cross_period", "ties", "unread", "late corrections", "nothing for Curated",
    }  # fmt: skip
