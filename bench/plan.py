"""A plan over all rows of Standardized, against curating them; README.md says what is measured."""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from bench.data import TOPIC_SCHEMA, raw_table
from bench.rows import Row, row, say
from leanops.domain.schema.model import Schema, schema_from_json
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.schemas.plan import plan_schema
from leanops.usecases.topics.registry import add_topic


def measure(folder: Path, count: int, rounds: int) -> list[Row]:
    """One round that warms up, then the measured ones, each on a fresh topic; the medians count."""
    runtime = Embedded(create_home(folder / "plan"))
    say("making the standard data")
    events = raw_table(count, seed=1)
    found = [_round(runtime, f"orders-{number}", events) for number in range(rounds + 1)][1:]
    runtime.close()
    plan, curate = (statistics.median(one[at] for one in found) for at in range(2))
    return [row("schema plan over all of 1 M / curating them", plan, curate, 1.0)]


def _round(runtime: Embedded, topic: str, events: Any) -> tuple[float, float]:
    platform = runtime.platform
    add_topic(platform, topic)
    table = topic.replace("-", "_")
    deploy_schema(platform, topic, json.dumps({**TOPIC_SCHEMA, "table_name": table}), "bench")
    runtime.catalog.load_table(platform.rules.databases.raw_table(topic)).append(events)
    result = run_cycle(platform, [topic])[0]
    if result.outcome != "done":
        sys.exit(f"bench: {topic} ended {result.outcome}: {result.reason}")
    curate = result.layers["curated"].seconds or 0.0
    started = time.monotonic()
    plan = plan_schema(platform, runtime.lake(), topic, _changed(table))
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
