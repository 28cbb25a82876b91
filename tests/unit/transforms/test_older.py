"""Which older versions are judged, and which is kept: against a model that takes them one by one."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from leanops.transforms.cast import MICROS, VERSION_DIGITS
from leanops.transforms.older import PREFIX, candidates, newest_passing
from tests.oracle.rows import LANDED

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("record_key", pa.string()),
        ("message_id", pa.string()),
        ("_version", pa.decimal128(*VERSION_DIGITS)),
        ("last_updated_ts", MICROS),
        ("publish_time", MICROS),
        ("ingestion_ts", pa.int64()),
    ]
)
Row = dict[str, Any]


def some(random: random.Random, size: int) -> list[Row]:
    """Versions of few keys, with many ties and copies."""
    rows: list[Row] = []
    for number in range(size):
        if rows and random.random() < 0.3:
            rows.append({**random.choice(rows), "ingestion_ts": LANDED + 3 + number, "raw_row": number})
            continue
        rows.append(
            {
                "record_key": f"{PREFIX}{random.randrange(4)}",
                "message_id": random.choice("ab😀\uff5e") + str(number % 7),
                "_version": random.choice([None, None, Decimal(random.randrange(3))]),
                "last_updated_ts": START + timedelta(days=random.randrange(3)),
                "publish_time": START + timedelta(days=random.randrange(2)),
                "ingestion_ts": LANDED + random.randrange(3),
                "raw_file": random.choice(["one", "two"]),
                "raw_row": number,
            }
        )
    return rows


def order(row: Row) -> tuple[Any, ...]:
    number = row["_version"]
    identity = row["message_id"].encode()
    return (number is not None, number or Decimal(0), row["last_updated_ts"], row["publish_time"], identity)


def table(rows: list[Row]) -> pa.Table:
    made = pa.Table.from_pylist(rows, SCHEMA)
    files = pa.array([row.get("raw_file", "") for row in rows], pa.string()).dictionary_encode()
    places = pa.array([row.get("raw_row", 0) for row in rows], pa.int64())
    return made.append_column("raw_file", files).append_column("raw_row", places)


def first_copies(rows: list[Row]) -> list[Row]:
    found: dict[tuple[str, str], Row] = {}
    for row in sorted(
        rows, key=lambda row: (row["ingestion_ts"], row["publish_time"], row["raw_file"], row["raw_row"])
    ):
        found.setdefault((row["record_key"], row["message_id"]), row)
    return list(found.values())


@pytest.mark.parametrize("seed", range(200))
def test_the_versions_between_what_is_stored_and_what_fails_are_judged_newest_first(seed: int) -> None:
    chance = random.Random(seed)
    rows = some(chance, chance.randrange(1, 60))
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row["record_key"], []).append(row)
    failing = {key: max(versions, key=order) for key, versions in by_key.items()}
    stored = {key: chance.choice(versions) for key, versions in by_key.items() if chance.random() < 0.5}
    versions = [row for row in rows if chance.random() < 0.9]
    wanted = [
        row
        for key in sorted(failing)
        for row in sorted(first_copies([one for one in versions if one["record_key"] == key]), key=order, reverse=True)
        if row["message_id"] != failing[key]["message_id"]
        and order(row) < order(failing[key])
        and (key not in stored or order(row) > order(stored[key]))
    ]
    curated = [{**row, "idempotency_key": key.removeprefix(PREFIX)} for key, row in stored.items()]
    there = table(curated).append_column("idempotency_key", pa.array([row["idempotency_key"] for row in curated]))
    ranked = candidates(table(versions), table(list(failing.values())), there if curated else None)
    found = [(row["record_key"], row["message_id"], row["raw_row"]) for row in ranked.to_pylist()]
    assert found == [(row["record_key"], row["message_id"], row["raw_row"]) for row in wanted]

    judged: list[tuple[str, str]] = []
    verdicts = {(row["record_key"], row["message_id"]): chance.choice(["passes", "fails", "nothing"]) for row in rows}

    def judge(tried: pa.Table) -> pa.Table:
        names = [(row["record_key"], row["message_id"]) for row in tried.to_pylist()]
        judged.extend(names)
        return pa.table({what: [verdicts[name] == what for name in names] for what in ("passes", "fails")})

    kept, failed = newest_passing(ranked, judge)
    named = [found[:2] for found in found]
    expected_kept, expected_failed = [], []
    for at, (key, message) in enumerate(named):
        if any(named[other][0] == key for other in expected_kept):
            continue
        if verdicts[key, message] == "passes":
            expected_kept.append(at)
        elif verdicts[key, message] == "fails":
            expected_failed.append(at)
    assert (kept.to_pylist(), failed.to_pylist()) == (expected_kept, expected_failed)
    assert len(judged) == len(set(judged))


def test_no_more_versions_are_judged_than_a_few_times_those_that_fail() -> None:
    rows = [{**some(random.Random(1), 1)[0], "message_id": f"m{number:04}"} for number in range(1_000)]
    newest = max(rows, key=order)
    ranked, judged = candidates(table(rows), table([newest]), None), list[str]()

    def judge(tried: pa.Table) -> pa.Table:
        names = tried.column("message_id").to_pylist()
        judged.extend(names)
        return pa.table({"passes": [name < "m0990" for name in names], "fails": [name >= "m0990" for name in names]})

    kept, failed = newest_passing(ranked, judge)
    assert ranked.take(kept).column("message_id").to_pylist() == ["m0989"]
    assert (len(failed), len(judged)) == (9, 16)
