"""Plain orders for the crash suites: what matters here is where the work stops, so the events are few columns wide."""

import json
import os
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.oracle.rows import LANDED, RawRow

SCHEMA: dict[str, Any] = {
    "table_name": "orders",
    "version": 1,
    "keys": {"version": "$.order.updatedAt"},
    "envelope_columns": [{"name": "message_id", "type": "STRING"}],
    "payload_columns": [
        {"name": "order_id", "path": "$.order.id", "type": "STRING", "cde": True},
        {"name": "amount", "path": "$.order.amount", "type": "DECIMAL(9,2)", "rules": {"min": 0}},
        {"name": "email", "path": "$.email", "type": "STRING", "pii": "mask"},
    ],
}
BY_ORDER = {**SCHEMA, "keys": {**SCHEMA["keys"], "idempotency_key": "$.order.id"}}
"""A breaking change: other keys."""
KILLS = 12 if int(os.environ.get("CRASH_SEEDS", "20")) >= 100 else 1
START = datetime(2024, 1, 30, tzinfo=UTC)


def orders(chance: random.Random, size: int, keys: int = 6) -> list[RawRow]:
    """Orders of few keys: corrections, period moves, re-deliveries, bad values, broken payloads, new fields."""
    rows: list[RawRow] = []
    for number in range(size):
        if rows and chance.random() < 0.2:
            copied = chance.choice(rows)
            rows.append(RawRow(**{**vars(copied), "ingestion_ts": copied.ingestion_ts + number + 1}))
            continue
        moment = START + timedelta(hours=chance.randrange(96))
        rows.append(RawRow(f"m{number}", moment, "orders", _payload(chance, moment, keys), LANDED + number))
    return rows


def _payload(chance: random.Random, moment: datetime, keys: int) -> str:
    if chance.random() < 0.12:
        return chance.choice(["", "{", "[]", '{"a":1} x'])
    order = {"id": chance.choice(["o1", "o2", None]), "amount": chance.choice([1.5, 20, -1, "x", None])}
    said: dict[str, Any] = {
        "order": {**order, "updatedAt": f"{moment:%Y-%m-%dT%H:%M:%S}Z"},
        "email": "someone@example.com",
    }
    if chance.random() < 0.9:
        said["_metadata"] = {"idempotencyKeyResource": f"k{chance.randrange(keys)}"}
    if chance.random() < 0.1:
        said[f"new{chance.randrange(3)}"] = chance.choice([1, "one"])
    return json.dumps(said)


def planned_batches() -> list[list[RawRow]]:
    """What the killed workers publish, in small batches; every process makes the same ones."""
    rows = orders(random.Random(99), 4 * (3 * KILLS + 4))
    return [rows[at : at + 4] for at in range(0, len(rows), 4)]
