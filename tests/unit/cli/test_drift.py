"""Drift on the command line, newest first and in words."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.table.definitions import OPS
from leanops.runtimes.embedded import Embedded
from leanops.usecases.topics.registry import add_topic
from tests.unit.conftest import Leanops


@pytest.fixture
def runtime(home: Path) -> Iterator[Embedded]:
    runtime = Embedded(home)
    for topic in ("orders", "users"):
        add_topic(runtime.platform, topic)
    yield runtime
    runtime.close()


def logged(runtime: Embedded, days_ago: float, column: str, action: str, **rest: Any) -> None:
    """A row of drift_log; a path unless the row says more."""
    log = runtime.platform.rules.databases.ops_table("drift_log")
    runtime.platform.catalog.create(log, OPS["drift_log"])
    row = {
        "detected_ts": datetime.now(UTC) - timedelta(days=days_ago),
        "topic_name": "orders",
        "column_name": column,
        "action": action,
        "source_layer": "standardized",
        "details": json.dumps({"path": f"$.{column}", "batch_id": "b1"}),
    }
    runtime.platform.catalog.append(log, [{**row, **rest}])


def test_a_home_without_drift_says_so(leanops: Leanops, runtime: Embedded) -> None:
    assert leanops("drift").out == "0 changes in 30 days; look further back with --since\n"
    assert leanops("drift", "--json").json == []


def test_drift_is_told_in_words_newest_first(leanops: Leanops, runtime: Embedded) -> None:
    version = json.dumps({"schema_version": 3})
    logged(runtime, 6, "a", "ADDED", new_value="string")
    logged(runtime, 5, "b", "ADDED")
    logged(runtime, 4, "a", "TYPE_CHANGED", old_value="string", new_value="array|string")
    logged(runtime, 3, "a", "REMOVED", old_value="array|string")
    logged(runtime, 2.2, "c", "ADDED", new_value="INT", source_layer="curated", details=version)
    logged(runtime, 2.1, "d", "REMOVED", old_value="INT", source_layer="curated", details=version)
    logged(
        runtime, 2, "e", "TYPE_CHANGED", old_value="INT", new_value="BIGINT", source_layer="curated", details=version
    )
    lines = [line.rstrip() for line in leanops("drift").out.splitlines()[2:-1]]
    assert [line.split("curated")[-1].split("standardized")[-1].strip() for line in lines] == [
        "schema version 3 changes e from INT to BIGINT",
        "schema version 3 no longer fills d INT",
        "schema version 3 adds c INT",
        "a stopped arriving: $.a, last seen as array or string",
        "a changed: $.a is now array or string, was string",
        "b is new: $.b, not in any event yet",
        "a is new: $.a, string",
    ]


def test_drift_is_found_by_topic_and_time(leanops: Leanops, runtime: Embedded) -> None:
    logged(runtime, 40, "old", "ADDED", new_value="string")
    logged(runtime, 2, "mine", "ADDED", new_value="string")
    logged(runtime, 1, "theirs", "ADDED", new_value="string", topic_name="users")

    def columns(*words: str) -> list[str]:
        return [row["column_name"] for row in leanops("drift", "--json", *words).json]

    assert columns() == ["theirs", "mine"]
    assert columns("orders") == ["mine"]
    assert columns("orders", "--since", "60") == ["mine", "old"]
    assert columns("--since", "1") == []
    (row,) = leanops("drift", "orders", "--json").json
    assert (row["action"], row["new_value"], row["details"]) == (
        "ADDED",
        "string",
        {"path": "$.mine", "batch_id": "b1"},
    )
    assert leanops("drift", "nosuch").code == 2
