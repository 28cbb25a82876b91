"""The standard data: 470-byte events, 20 leaves, 3 levels, 10 % corrections, 5 % duplicates, seeded."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

TOPIC_SCHEMA: dict[str, Any] = {
    "table_name": "orders",
    "keys": {"version": "$.order.updatedAt", "period": "$.periodReference"},
    "envelope_columns": [{"name": "message_id", "type": "STRING"}],
    "payload_columns": [
        {"name": "order_id", "path": "$.order.id", "type": "STRING", "cde": True},
        {"name": "amount", "path": "$.order.amount", "type": "DECIMAL(18,2)", "cde": True, "rules": {"min": 0}},
        {"name": "currency", "path": "$.order.currency", "type": "STRING", "rules": {"pattern": "[A-Z]{3}"}},
        {
            "name": "status",
            "path": "$.order.status",
            "type": "STRING",
            "rules": {"allowed": ["NEW", "PAID", "SHIPPED"]},
        },
        {"name": "updated_at", "path": "$.order.updatedAt", "type": "TIMESTAMP"},
        {"name": "items", "path": "$.order.items", "type": "INT", "rules": {"min": 1, "max": 100}},
        {"name": "channel", "path": "$.order.channel", "type": "STRING", "default": "web"},
        {"name": "discount", "path": "$.order.discount", "type": "DOUBLE"},
        {"name": "gift", "path": "$.order.gift", "type": "BOOLEAN"},
        {"name": "customer_id", "path": "$.customer.id", "type": "BIGINT"},
        {"name": "email", "path": "$.customer.email", "type": "STRING", "pii": "hmac"},
        {"name": "country", "path": "$.customer.country", "type": "STRING"},
        {"name": "city", "path": "$.customer.address.city", "type": "STRING"},
        {"name": "zip", "path": "$.customer.address.zip", "type": "STRING", "pii": "mask"},
        {"name": "tags", "path": "$.tags", "type": "STRING"},
    ],
    "measures": ["amount"],
}
MONTHS = 12
RAW_SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("publish_time", pa.timestamp("us", tz="UTC")),
        ("topic_name", pa.string()),
        ("json_payload", pa.string()),
        ("ingestion_ts", pa.int64()),
        ("idempotency_key", pa.string()),
        ("attributes", pa.string()),
    ]
)


def payload(chance: random.Random, key: int, moment: datetime, period: str) -> str:
    """One order event of about 470 bytes."""
    # A key of its own for each number below 2³², in no order: statistics of files spare no look-up.
    name = key * 2_654_435_761 % 2**32
    return (
        f'{{"_metadata":{{"idempotencyKeyResource":"order-{name:09d}","source":"shop"}},'
        f'"order":{{"id":"{key:012d}","amount":{chance.randrange(100_000) / 100},"currency":"EUR",'
        f'"status":"{chance.choice(("NEW", "PAID", "SHIPPED"))}","updatedAt":"{moment:%Y-%m-%dT%H:%M:%S}Z",'
        f'"items":{chance.randint(1, 9)},"channel":"{chance.choice(("web", "app", "store"))}","discount":0.05,'
        f'"gift":false}},"customer":{{"id":{chance.randrange(10**6)},"email":"user{chance.randrange(10**6)}@example.com",'
        f'"country":"{chance.choice(("DE", "FR", "US"))}","address":{{"city":"Berlin","zip":"10115","street":'
        f'"Long Market Road 5"}}}},"periodReference":"{period}","eventType":"order.updated","tags":["a","b"]}}'
    )


def events(
    count: int, seed: int, *, first: int = 0, first_key: int = 0, corrected: int = 0, months: int = MONTHS
) -> Iterator[dict[str, Any]]:
    """`count` RAW rows published over twelve months, their keys numbered from `first`; keys are in no order.

    With `corrected`, one later day's corrections: newer versions of keys below it, of any of the last `months` periods.
    With `first_key`, one later day's new keys of the last period.
    """
    chance = random.Random(seed)
    recent: list[dict[str, Any]] = []
    for number in range(count):
        if recent and chance.random() < 0.05:
            copy = dict(chance.choice(recent))
            copy["ingestion_ts"] += 60_000
            yield copy
            continue
        is_correction = corrected or (number and chance.random() < 0.10)
        key = chance.randrange(corrected or number) if is_correction else number
        month = MONTHS - 1 if first_key else MONTHS - 1 - chance.randrange(months)
        day = datetime(2025, 1 + month, 1 + chance.randrange(4), tzinfo=UTC)
        if corrected or first_key:
            day = datetime(2026, 1, 2, tzinfo=UTC)
        moment = day + timedelta(seconds=chance.randrange(86_400))
        row = {
            "message_id": f"{seed:03d}-{number:012d}",
            "publish_time": moment,
            "topic_name": "orders",
            "json_payload": payload(chance, first + first_key + key, moment, f"2025-{1 + month:02d}"),
            "ingestion_ts": int(moment.timestamp() * 1000) + 1_000,
            "idempotency_key": None,
            "attributes": None,
        }
        recent = [*recent[-500:], row] if number % 20 == 0 else recent
        yield row


def raw_table(count: int, seed: int, **more: int) -> pa.Table:
    """The rows of `events` as Arrow, the way the delivery stream hands them to RAW."""
    return pa.Table.from_pylist(list(events(count, seed, **more)), schema=RAW_SCHEMA)


def aging(batches: int, count: int) -> list[pa.Table]:
    """Small batches of corrections of the first half of N keys, in three periods."""
    return [raw_table(20, seed=10_000 + number, corrected=count // 2, months=3) for number in range(batches)]
