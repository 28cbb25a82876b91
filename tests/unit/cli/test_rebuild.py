"""Rebuild and rollback on the command line, as far as no Spark is needed; and how unfinished operations are seen."""

from dataclasses import replace
from typing import Any

import pytest

from leanops.domain.table.balance import Totals
from leanops.domain.table.definitions import CURATED, STANDARDIZED
from leanops.domain.table.operation import Operation, Scope, Stage, Work
from leanops.runtimes.embedded import Embedded
from leanops.usecases.leases import Lease, acquire, release
from leanops.usecases.operation_log import advance, begin, block
from tests.support.builders import NOW_MS, event, held_by, land, watermark
from tests.unit.conftest import Leanops

STANDARD, CURATE = "iceberg_standardized_db.orders", "iceberg_curated_db.orders"
REBUILD = Operation("op1", "orders", Work.REBUILD, "ada", NOW_MS, 1, previous=1, scope=Scope.BOTH)
BEGUN = "rebuild started at 2026-11-15 08:00:00 UTC by ada"


def processed(runtime: Embedded, number: int, rows: int) -> int:
    """What batch `number` leaves in the tables, which then have so many rows; its snapshot of Standardized."""
    catalog = runtime.platform.catalog
    land(runtime.platform, "orders", [event(f"m{number}"), event(f"n{number}")])
    raw = catalog.load("iceberg_raw_db.orders_staging")
    assert raw is not None
    assert raw.head is not None
    catalog.create(STANDARD, STANDARDIZED)
    mark = watermark(
        raw.head,
        number,
        source_uuid=raw.uuid,
        counts={"read": 2},
        totals=Totals(read=2 * number, rows=rows, superseded=2 * number - rows),
    )
    new = range(catalog.count(STANDARD), rows)
    catalog.append(STANDARD, [{"record_key": f"key:{key}"} for key in new], mark.summary())
    view = catalog.load(STANDARD)
    assert view is not None
    assert view.head is not None
    catalog.create(CURATE, CURATED)
    curated = watermark(number, number, source_uuid=view.uuid, source_snapshot=view.head, batch_id=f"c{number}")
    inserted = replace(curated, counts={"read": 2, "inserted": 1, "updated": 0})
    catalog.append(CURATE, [{"idempotency_key": f"{number}"}], inserted.summary())
    return view.head


def begun(runtime: Embedded, stage: Stage = Stage.BUILDING, blocked: str | None = None) -> Lease:
    """A rebuild somebody began, under a lease that is still held."""
    lease = acquire(runtime.platform, "topic/orders")
    begin(held_by(runtime.platform, lease), REBUILD, Stage.BUILDING)
    if stage == Stage.GOING:
        advance(held_by(runtime.platform, lease), REBUILD)
    if blocked:
        block(held_by(runtime.platform, lease), REBUILD, blocked)
    return lease


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rebuild", "nosuch", "--yes"), "topic 'nosuch' is not registered; add it with: leanops topics add nosuch"),
        (("rebuild", "orders", "--yes"), "has no tables to rebuild yet; run: leanops cycle --topic orders"),
        (("rebuild", "orders"), "a rebuild replaces tables; confirm with --yes"),
        (("rebuild", "orders", "--resume"), "has no unfinished operation"),
        (("rebuild", "orders", "--cancel"), "has no unfinished operation"),
        (("rebuild", "nosuch", "--cancel"), "is not registered"),
        (("rebuild", "orders", "--resume", "--cancel"), "choose one"),
        (("rebuild", "orders", "--accept-missing", "all", "--cancel"), "choose one"),
        (("rebuild", "orders", "--accept-missing", "--yes"), "takes all or a number of keys, not '"),
        (("rebuild", "orders", "--accept-missing", "-1"), "takes all or a number of keys, not '"),
        (("rebuild", "orders", "--curated", "--resume"), "leave it out"),
        (("rebuild", "orders", "--curated", "--cancel"), "leave it out"),
        (("rebuild",), "Missing argument 'TOPIC'"),
        (("rollback", "orders"), "Missing option '--to'"),
        (("rollback", "nosuch", "--to", "1"), "is not registered"),
        (("rollback", "orders", "--to", "1"), "has no tables to roll back yet"),
        (("rollback", "orders", "--to", "yesterday"), "is neither a snapshot id nor a time like 2026-11-15T08:00"),
        (("rollback", "orders", "--to", ""), "is neither a snapshot id nor a time"),
        (("rollback", "orders", "--to", "٣"), "is neither a snapshot id nor a time"),
        (("rollback", "orders", "--to", "-5"), "is neither a snapshot id nor a time"),
    ],
)
def test_a_command_that_cannot_be_done_is_one_line(
    leanops: Leanops, runtime: Embedded, words: tuple[str, ...], said: str
) -> None:
    ran = leanops(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err.splitlines()[-1]
    assert ran.err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (),
            "orders: 4 rows of RAW into a new Standardized (now 3 rows) and a new Curated (now 2 rows); readers",
        ),
        (("--curated",), "orders: 3 rows of Standardized into a new Curated (now 2 rows); readers use the live tables"),
    ],
)
def test_a_rebuild_says_what_it_would_do_before_it_asks(
    leanops: Leanops, runtime: Embedded, words: tuple[str, ...], said: str
) -> None:
    processed(runtime, 1, 2)
    processed(runtime, 2, 3)
    ran = leanops("rebuild", "orders", *words)
    assert ran.code == 2
    assert ran.err.startswith(said)


def test_a_rollback_shows_what_changes_and_does_nothing_until_it_is_confirmed(
    leanops: Leanops, runtime: Embedded
) -> None:
    first = processed(runtime, 1, 2)
    processed(runtime, 2, 3)
    ran = leanops("rollback", "orders", "--to", str(first))
    curated = runtime.platform.catalog.load(CURATE)
    assert curated is not None
    earlier = curated.ancestors()[1].snapshot_id
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        f"  Standardized goes back to snapshot {first}: 2 rows instead of 3",
        f"  Curated goes back to snapshot {earlier}, without 1 key it has now",
        "  undone: 1 batch; RAW rows to read again once the topic is resumed: 2",
        "error: orders: 1 key would leave Curated until the topic is resumed; allow it with --accept-missing 1",
    ]
    agreed = leanops("rollback", "orders", "--to", str(first), "--accept-missing", "1")
    assert (agreed.code, agreed.err.splitlines()[-1]) == (2, "error: a rollback changes the tables; confirm with --yes")
    told = leanops("rollback", "orders", "--to", str(first), "--json")
    assert told.code == 2
    assert told.json == {
        "topic": "orders",
        "snapshot": str(first),
        "curated_snapshot": str(earlier),
        "rows_now": 3,
        "rows_then": 2,
        "batches": ["b2"],
        "read_again": 2,
        "by_replace": False,
        "leaving": 1,
        "done": False,
    }
    assert leanops("status", "--json").json["topics"][0]["status"] == "READY"


def test_a_rollback_between_ancestors_is_done_without_spark_and_leaves_the_topic_paused(
    leanops: Leanops, runtime: Embedded
) -> None:
    first = processed(runtime, 1, 2)
    processed(runtime, 2, 3)
    refused = leanops("rollback", "orders", "--to", str(first), "--accept-missing", "0", "--yes")
    assert (refused.code, "--accept-missing 1" in refused.err) == (2, True)
    ran = leanops("rollback", "orders", "--to", str(first), "--accept-missing", "1", "--yes")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        f"orders: rolled back to snapshot {first}, 2 rows in Standardized",
        "the topic stays paused; to process the later events again, run: leanops topics resume orders",
    ]
    (topic,) = leanops("status", "--json").json["topics"]
    assert (topic["status"], topic["standardized_rows"], topic["lag_rows"], topic["balanced"]) == ("PAUSED", 2, 2, True)
    places = [one["place"] for one in leanops("topics", "show", "orders", "--json").json["snapshots"]]
    assert places == ["undone", "now"]
    again = leanops("rollback", "orders", "--to", str(first), "--yes")
    assert (again.out, again.err) == ("orders is already there; nothing changed\n", "")
    rows = leanops("sql", "--json", "select action, details from ops_db.audit_log order by at_ts").json
    assert [row["action"] for row in rows] == ["schema deploy", "rollback"]


@pytest.mark.parametrize("to", ["2999-01-01", "2999-01-01T08:00:00", "2999-01-01T08:00:00+02:00"])
def test_a_rollback_to_where_the_tables_are_changes_nothing(leanops: Leanops, runtime: Embedded, to: str) -> None:
    processed(runtime, 1, 2)
    ran = leanops("rollback", "orders", "--to", to, "--yes")
    assert (ran.code, ran.out, ran.err) == (0, "orders is already there; nothing changed\n", "")
    said = leanops("rollback", "orders", "--to", to, "--yes", "--json").json
    assert (said["done"], said["batches"]) == (False, [])


def test_a_moment_before_there_was_a_table_is_told(leanops: Leanops, runtime: Embedded) -> None:
    processed(runtime, 1, 2)
    ran = leanops("rollback", "orders", "--to", "2020-01-01")
    assert (ran.code, "had no snapshot yet at that time; choose a later one" in ran.err) == (2, True)


def test_the_newest_snapshots_are_listed_with_what_they_hold(leanops: Leanops, runtime: Embedded) -> None:
    heads = [processed(runtime, number, number + 1) for number in range(1, 13)]
    runtime.platform.catalog.append(STANDARD, [{"record_key": "moved"}])
    shown = leanops("topics", "show", "orders", "--json").json["snapshots"]
    assert [one["kind"] for one in shown] == ["other", *["batch"] * 9]
    assert [one["snapshot"] for one in shown[1:]] == [str(head) for head in heads[:2:-1]]
    assert [one["rows"] for one in shown] == [None, *range(13, 4, -1)]
    assert [one["place"] for one in shown] == ["now", *["earlier"] * 9]
    assert all(one["at"] for one in shown)
    people = leanops("topics", "show", "orders").out
    assert str(heads[-1]) in people
    assert "restore one of them with: leanops rollback orders --to SNAPSHOT" in people


def test_a_topic_without_tables_has_no_snapshots_to_show(leanops: Leanops, runtime: Embedded) -> None:
    assert leanops("topics", "show", "orders", "--json").json["snapshots"] == []
    assert "snapshot of Standardized" not in leanops("topics", "show", "orders").out


@pytest.mark.parametrize(
    ("kept", "stage", "blocked", "state", "sentence"),
    [
        (True, Stage.BUILDING, None, "rebuilding", f"{BEGUN} is running (WORKER); readers use the live tables"),
        (True, Stage.GOING, None, "rebuilding", f"{BEGUN} is running (WORKER); the new tables are replacing the live"),
        (False, Stage.BUILDING, None, "rebuild stopped", f"{BEGUN} is unfinished; the next cycle resumes it"),
        (False, Stage.GOING, None, "rebuild stopped", "leanops rebuild orders --resume"),
        (False, Stage.BUILDING, "2 keys; say yes", "waits for a decision", f"{BEGUN} waits: 2 keys; say yes"),
    ],
)
def test_an_unfinished_operation_is_seen_with_what_to_do(
    leanops: Leanops, runtime: Embedded, kept: bool, stage: Stage, blocked: str | None, state: str, sentence: str
) -> None:
    lease = begun(runtime, stage, blocked)
    if not kept:
        release(runtime.platform, lease)
    told: list[dict[str, Any]] = [
        leanops("status", "--json").json["topics"][0],
        leanops("topics", "show", "orders", "--json").json,
        leanops("topics", "list", "--json").json[0],
    ]
    said = sentence.replace("WORKER", lease.owner)
    for topic in told:
        assert (topic["status"], topic["operation"]["state"]) == ("READY", state)
        assert said in topic["operation"]["sentence"]
        assert topic["operation"]["worker"] == (lease.owner if kept else None)
    for words in (("status",), ("topics", "show", "orders"), ("topics", "list")):
        out = leanops(*words).out
        assert state in out
        assert said in out


def test_a_topic_without_an_operation_says_so(leanops: Leanops, runtime: Embedded) -> None:
    assert leanops("status", "--json").json["topics"][0]["operation"] is None
    assert leanops("topics", "list", "--json").json[0]["operation"] is None


def test_what_was_begun_is_undone_and_logged(leanops: Leanops, runtime: Embedded) -> None:
    release(runtime.platform, begun(runtime))
    ran = leanops("rebuild", "orders", "--cancel")
    assert (ran.code, ran.out) == (0, "orders: its rebuild was undone; the tables are as they were before\n")
    assert leanops("rebuild", "orders", "--cancel").code == 2
    release(runtime.platform, begun(runtime))
    assert leanops("rebuild", "orders", "--cancel", "--json").json == {"topic": "orders", "undone": "rebuild"}
    rows = leanops("sql", "--json", "select action, details from ops_db.audit_log order by at_ts").json
    assert [row["action"] for row in rows] == ["schema deploy", "cancel", "cancel"]


def test_a_topic_that_is_worked_on_is_waited_for_and_said_so(leanops: Leanops, runtime: Embedded) -> None:
    (runtime.home / "leanops.toml").write_text("[operations]\nwait_s = 0\n")
    first = processed(runtime, 1, 2)
    processed(runtime, 2, 3)
    owner = begun(runtime).owner
    for words in (
        ("rebuild", "orders", "--yes"),
        ("rebuild", "orders", "--resume"),
        ("rebuild", "orders", "--cancel"),
        ("rollback", "orders", "--to", str(first), "--accept-missing", "all", "--yes"),
    ):
        ran = leanops(*words)
        assert (ran.code, ran.out) == (1, "")
        waits, refused = ran.err.splitlines()[-2:]
        assert waits == f"orders: {owner} is working on it; waiting up to 0 s"
        assert refused.startswith(f"error: topic/orders: {owner} is working on it until 20")
        assert refused.endswith("wait for it, or if it hangs: leanops topics unlock orders")


def test_another_operation_is_refused_while_one_stands(leanops: Leanops, runtime: Embedded) -> None:
    first = processed(runtime, 1, 2)
    processed(runtime, 2, 3)
    release(runtime.platform, begun(runtime, Stage.GOING))
    back = ("rollback", "orders", "--to", str(first), "--accept-missing", "all", "--yes")
    for words in (("rebuild", "orders", "--yes"), back):
        ran = leanops(*words)
        assert (ran.code, ran.out) == (2, "")
        assert f"error: orders: {BEGUN} is unfinished" in ran.err
    undone = leanops("rebuild", "orders", "--cancel")
    assert (undone.code, "was undone" in undone.out) == (0, True), "none of it is live yet"


def test_a_paused_topic_is_neither_rebuilt_nor_rolled_back(leanops: Leanops, runtime: Embedded) -> None:
    first = processed(runtime, 1, 2)
    processed(runtime, 2, 3)
    leanops("topics", "pause", "orders", "--reason", "audit")
    back = ("rollback", "orders", "--to", str(first), "--accept-missing", "all", "--yes")
    for words in (("rebuild", "orders", "--yes"), ("rebuild", "orders", "--curated", "--yes"), back):
        ran = leanops(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.splitlines()[-1] == (
            "error: orders is paused (audit); resume it first: leanops topics resume orders"
        )
