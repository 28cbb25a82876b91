"""Seeded streams of nasty events, random batches of them, and Hypothesis over both."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

from hypothesis import strategies as st

from tests.oracle import vocabulary as words
from tests.oracle.flat import Limits
from tests.oracle.rows import RawRow, is_ahead

TOPIC = "orders"
SCHEMA = words.SCHEMA
START = datetime(2024, 1, 30, 12, tzinfo=UTC)


def make_stream(random: Random, size: int, limits: Limits | None = None) -> list[RawRow]:
    """A stream in RAW order; a copy of a message differs in nothing but a later ingestion_ts."""
    rows: list[RawRow] = []
    clock = 1_706_700_000_000
    while len(rows) < size:
        clock += random.choice([0, 1, 50, 1_000, 86_400_000])
        if rows and random.random() < 0.2:
            copied = random.choice(rows[-3:] if random.random() < 0.5 else rows)
            # Where the publisher's clock is ahead, the delivery orders: such copies depend on the batches they are in.
            if not is_ahead(copied):
                rows.append(replace(copied, ingestion_ts=max(clock, copied.ingestion_ts + 1)))
        else:
            # Several writers land at once: ingestion times are not in RAW order either.
            rows.append(_message(random, len(rows), clock - random.choice([0, 0, 700, 5_000]), limits or Limits()))
    return rows


def cut(random: Random, rows: list[RawRow]) -> list[list[RawRow]]:
    """The same rows in random contiguous batches, none of them empty."""
    chance = random.choice([0.0, 0.05, 0.3, 1.0])
    return split(rows, {index for index in range(1, len(rows)) if random.random() < chance})


def split(rows: list[RawRow], cuts: set[int]) -> list[list[RawRow]]:
    """The rows in batches that begin at the given positions."""
    edges = [0, *sorted(cuts), len(rows)]
    return [rows[begin:end] for begin, end in pairwise(edges) if rows[begin:end]]


@st.composite
def streams(draw: st.DrawFn, max_size: int = 60, limits: Limits | None = None) -> list[RawRow]:
    """Streams that shrink by losing rows; the seed stays."""
    size = draw(st.integers(0, max_size))
    rows = make_stream(Random(draw(st.integers(0, 2**32 - 1))), size, limits)
    keep = draw(st.lists(st.booleans(), min_size=size, max_size=size)) if draw(st.booleans()) else [True] * size
    return [row for row, kept in zip(rows, keep, strict=True) if kept]


@st.composite
def batches(draw: st.DrawFn, rows: list[RawRow]) -> list[list[RawRow]]:
    """One set of boundaries for a stream."""
    return split(rows, draw(st.sets(st.integers(1, max(1, len(rows) - 1)))))


@st.composite
def batched_streams(draw: st.DrawFn, max_size: int = 60, limits: Limits | None = None) -> list[list[RawRow]]:
    """A stream already cut into batches."""
    return draw(batches(draw(streams(max_size, limits))))


def _message(random: Random, number: int, ingestion_ts: int, limits: Limits) -> RawRow:
    # UTF-16 sorts U+FF5E after U+1F600, bytes sort it before: the order of versions is by bytes.
    message_id = random.choice(["m", "m", "M", "é", "\uff5e", "😀"]) + str(number)
    publish_time = START + timedelta(hours=12 * random.randrange(8), microseconds=random.choice([0, 0, 1, 999_999]))
    in_envelope = random.choice([None, None, None, "k1", "k9", " ", "", "e" * 1025])
    payload = _malformed(random, limits) if random.random() < 0.12 else _event(random, publish_time, limits)
    attributes = random.choice([None, '{"origin":"test"}'])
    return RawRow(message_id, publish_time, TOPIC, payload, ingestion_ts, in_envelope, attributes)


def _malformed(random: Random, limits: Limits) -> str:
    texts = random.choice([words.NOT_JSON, words.NOT_JSON, words.TRAILING, words.NOT_OBJECT, None])
    return random.choice(texts) if texts else _beyond(random, limits)


def _beyond(random: Random, limits: Limits) -> str:
    """Valid JSON just beyond one limit."""
    match random.randrange(5):
        case 0:
            return '{"d":' * limits.depth + '{"d":1}' + "}" * limits.depth
        case 1:
            return '{"d":' + "[" * limits.depth + "]" * limits.depth + "}"
        case 2:
            return "{" + ",".join(f'"n{n}":null' for n in range(limits.keys + 1)) + "}"
        case 3:
            return '{"n":{' + ",".join(f'"n{n}":null' for n in range(limits.keys)) + "}}"
        case _:
            return '{"pad":"' + "é" * (limits.payload_bytes // 2) + '"}'


def _event(random: Random, publish_time: datetime, limits: Limits) -> str:
    bad = random.choice([0.0, 0.0, 0.1])
    order = [
        (name, random.choice(refused if random.random() < bad else taken))
        for name, (taken, refused) in words.ORDER.items()
        if name in ("id", "amount") or random.random() < 0.7
    ]
    if random.random() < 0.6:
        order.append(("updatedAt", _version_text(random, publish_time)))
    key = random.choice(words.NO_KEYS if random.random() < 0.15 else words.KEYS)
    members = [("_metadata", _object(random, [("idempotencyKeyResource", key)])), ("order", _object(random, order))]
    if random.random() < 0.7:
        name = random.choice(["periodReference", "periodReference", "period_reference"])
        members.append((name, random.choice(words.NO_PERIODS if random.random() < 0.2 else words.PERIODS)))
    personal = [("email", '"a@b.c"'), ("card", random.choice(['"1234567890"', '"1234"', '""', "[ 12345 ]"]))]
    members.append(("customer", _object(random, [*personal, ("secret", '"hush"')])))
    members += [(random.choice(["note", "drift", *words.ODD_KEYS]), _value(random)) for _ in range(random.randrange(4))]
    if random.random() < 0.05:
        members.append(("d", '{"d":' * (limits.depth - 1) + "1" + "}" * (limits.depth - 1)))
    if random.random() < 0.1:
        members.insert(0, (random.choice(members)[0], _value(random)))
    if random.random() < 0.3:
        random.shuffle(members)
    return random.choice(["", "", " \n"]) + _object(random, members) + random.choice(["", "", "\r\n\t "])


def _version_text(random: Random, publish_time: datetime) -> str:
    if random.random() < 0.25:
        return random.choice(words.NO_VERSIONS)
    shift = random.choice([-400 * 24, -24, -1, 0, 0, 1, 24, 25, 24 * 365 * 50])
    version = publish_time + timedelta(hours=shift) + timedelta(microseconds=random.choice([0, 0, 1, -1]))
    form = random.choice(["%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f000+00:00"])
    return f'"{version:{form}}"'


def _value(random: Random, depth: int = 0) -> str:
    kind = random.random()
    if kind < 0.25 and depth < 2:
        names = random.choices(words.NESTED_KEYS, k=random.randrange(3))
        return _object(random, [(name, _value(random, depth + 1)) for name in names])
    return random.choice(words.ARRAYS if kind < 0.45 else words.SCALARS)


def _object(random: Random, members: list[tuple[str, str]]) -> str:
    """JSON text with equal keys and odd white space kept, which json.dumps could not write."""
    space, ascii_only = random.choice(["", "", "", " ", "\n\t"]), random.random() < 0.5
    parts = (f"{json.dumps(key, ensure_ascii=ascii_only)}{space}:{space}{text}" for key, text in members)
    return "{" + space + f"{space},{space}".join(parts) + space + "}"
