"""Status on real histories: a MERGE is ours, a compaction is named, a DELETE is a complaint."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime

from leanops.views.status import TopicStatus, status
from tests.oracle.rows import RawRow
from tests.oracle.streams import SCHEMA, make_stream
from tests.support.verify import sources_of
from tests.support.world import FIRST, World


def seen(world: World) -> TopicStatus:
    (found,) = status(sources_of(world), ["orders"])
    return found


def test_status_tells_our_own_snapshots_from_those_of_others(world: World) -> None:
    chance = random.Random(5)
    world.add("orders", json.dumps(SCHEMA))
    stream = make_stream(chance, 80)
    bare = [replace(FIRST, message_id=f"bare {number}") for number in range(12)]
    for batch in ([FIRST], stream[:40], stream[20:], bare):
        world.publish("orders", batch)
        cycled = world.cycle()["orders"]
    assert cycled.warnings == list(seen(world).warnings)
    assert cycled.warnings[0].startswith("12 of 12 rows")
    assert (seen(world).balance.complaints(), seen(world).balance.notes) == ([], ())
    spark = world.embedded.spark()
    table = world.databases.standardized_table("orders")

    spark.sql(f"CALL leanops.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    compacted = seen(world).balance
    assert (compacted.balanced, ["(replace)" in note for note in compacted.notes]) == (True, [True])
    world.publish("orders", [RawRow("last", datetime(2026, 1, 1, tzinfo=UTC), "orders", '{"note":"last"}', 1)])
    world.cycle()
    assert seen(world).balance.complaints() == []

    spark.sql(f"DELETE FROM leanops.{table} WHERE message_id = 'last'")
    deleted = seen(world).balance
    assert not deleted.balanced
    assert "was written by another tool" in deleted.problems[0]
    assert [check.expected - check.found for check in deleted.checks if not check.balanced] == [1]
