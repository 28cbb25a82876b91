"""A plan over all rows of Standardized, against curating them; README.md says what is measured."""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from bench.data import TOPIC_SCHEMA, raw_table
from bench.hub import Hub, table_of
from bench.rows import Row, row, say
from leanops.domain.schema.model import Schema, schema_from_json
from leanops.usecases.schemas.plan import plan_schema


def measure(folder: Path, count: int, rounds: int) -> list[Row]:
    """One round that warms up, then the measured ones, each on a fresh topic; the medians count."""
    hub = Hub(folder / "plan")
    say("making the standard data")
    events = raw_table(count, seed=1)
    found = [_round(hub, f"orders-{number}", events) for number in range(rounds + 1)][1:]
    hub.runtime.close()
    plan, curate = (statistics.median(one[at] for one in found) for at in range(2))
    return [row("schema plan over all of 1 M / curating them", plan, curate, 1.0)]


def _round(hub: Hub, topic: str, events: Any) -> tuple[float, float]:
    hub.add(topic)
    hub.land(topic, events)
    (result,), _ = hub.cycle(topic)
    curate = result.layers["curated"].seconds or 0.0
    started = time.monotonic()
    plan = plan_schema(hub.platform, topic, _changed(table_of(topic)))
    seconds = time.monotonic() - started
    if not plan.failing or plan.rows != result.layers["curated"].counts["read"]:
        sys.exit(f"bench: the plan of {topic} read {plan.rows} rows, of which {plan.failing} fail")
    say(f"{topic}: curate {curate:.1f} s, plan {seconds:.1f} s, {plan.failing:,} failing, {plan.changed:,} changed")
    return seconds, curate


def _changed(table: str) -> Schema:
    """The schema with some of every kind of change: a rule tightened, a type widened, a column added."""
    columns = [dict(column) for column in TOPIC_SCHEMA["payload_columns"]]
    by_name = {column["name"]: column for column in columns}
    by_name["amount"] |= {"type": "DECIMAL(20,2)", "rules": {"min": 10}}
    by_name["items"] |= {"type": "BIGINT"}
    by_name["country"] |= {"cde": True}
    columns.append({"name": "street", "path": "$.customer.address.street", "type": "STRING"})
    text = json.dumps({**TOPIC_SCHEMA, "table_name": table, "payload_columns": columns})
    return schema_from_json(text, "bench")
