"""`leanops cycle` where events have not reached RAW yet; what a cycle does to tables is tested with Spark."""

from pathlib import Path

from leanops.runtimes.background import breakers_of, queues_of
from leanops.runtimes.embedded import Embedded
from leanops.usecases.retry import Patience
from tests.unit.conftest import Leanops

ENDS = "orders: no_schema: events wait in RAW; deploy a schema to process them\n"


def published(leanops: Leanops, tmp_path: Path, *topics: str) -> None:
    (tmp_path / "events.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    for topic in topics:
        assert leanops("topics", "add", topic).code == 0
        assert leanops("publish", topic, str(tmp_path / "events.jsonl")).code == 0


def raw_rows(leanops: Leanops) -> dict[str, int]:
    return {topic["topic"]: topic["raw_rows"] for topic in leanops("status", "--json").json["topics"]}


def test_events_in_a_queue_are_brought_to_raw_first(leanops: Leanops, home: Path, tmp_path: Path) -> None:
    published(leanops, tmp_path, "orders")
    ran = leanops("cycle")
    assert (ran.code, ran.err) == (0, "orders: landing 2 queued messages in RAW first\n")
    assert ran.out.startswith(ENDS)
    assert raw_rows(leanops) == {"orders": 2}
    assert leanops("cycle").err == ""


def test_only_the_queues_of_named_topics_are_read(leanops: Leanops, home: Path, tmp_path: Path) -> None:
    published(leanops, tmp_path, "bills", "orders")
    queued = leanops("cycle", "--topic", "orders")
    assert "bills" not in queued.err
    assert "orders" in queued.err


def test_events_in_the_delivery_buffer_are_brought_to_raw_first(leanops: Leanops, home: Path, tmp_path: Path) -> None:
    published(leanops, tmp_path, "orders")
    runtime = Embedded(home)
    assert queues_of(runtime, Patience()).process() == 2
    runtime.close()
    assert leanops("cycle").err == "landing the events of the delivery buffer in RAW first\n"
    assert raw_rows(leanops) == {"orders": 2}


def test_a_queue_that_is_stopped_keeps_its_events_and_the_others_go_on(
    leanops: Leanops, home: Path, tmp_path: Path
) -> None:
    published(leanops, tmp_path, "bills", "orders")
    runtime = Embedded(home)
    breakers_of(runtime).open("bills", "the publisher is broken")
    runtime.close()
    ran = leanops("cycle")
    assert "bills: not landed: the circuit breaker is open (the publisher is broken), so " in ran.err
    assert raw_rows(leanops) == {"bills": 0, "orders": 2}
