"""The part of serve that takes schema files and finishes operations: one file, or one crash, stops nothing else."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.files.folder import Folder
from leanops.adapters.files.schemas import SchemaFiles
from leanops.ports.schemas import Pending
from leanops.runtimes.background import parts_of
from leanops.runtimes.embedded import Embedded
from leanops.usecases.leases import held
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.watch import SchemaPart
from leanops.usecases.topics.registry import add_topic
from leanops.usecases.workers import CYCLES, SCHEMAS
from tests.support.builders import NOW, schema, schema_text
from tests.unit.schemas.test_inbox import abandon, take


class Watch:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_serve_takes_a_file_once_it_has_stopped_changing(platform: Platform, folder: Folder) -> None:
    told: list[str] = []
    watch = Watch()
    part = SchemaPart(platform, lambda _part, text: told.append(text), watch)
    assert part.turn() == 0
    for half in (schema_text()[:20], schema_text()[:40], schema_text()):
        folder.put("orders/pending/new.json", half.encode())
        watch.now += 2
        assert (part.turn(), told) == (0, [])
    watch.now += 0.5
    assert part.turn() == 0
    watch.now += 0.5
    assert part.turn() == 1
    assert told == ["orders: new.json is now schema version 1"]
    assert (part.turn(), part.problem()) == (0, None)


def test_a_file_that_cannot_be_taken_stops_no_other_and_is_told_once(platform: Platform, folder: Folder) -> None:
    told: list[str] = []
    watch = Watch()
    part = SchemaPart(platform, lambda _part, text: told.append(text), watch)
    add_topic(platform, "users")
    folder.put("orders/active/schema.json", b"{")
    for topic in ("orders", "users"):
        folder.put(f"{topic}/pending/new.json", schema_text(table_name=topic).encode())
    done = []
    for _ in range(4):
        done.append(part.turn())
        watch.now += 2
    assert done == [0, 1, 0, 0]
    assert [line.split(":")[0] for line in told] == ["orders", "users"]
    assert (part.problem() or "").startswith("orders: new.json cannot be taken: schemas/orders/active/schema.json")
    folder.delete("orders/active/schema.json")
    assert (part.turn(), part.problem()) == (1, None)
    assert told[-1] == "orders: new.json is now schema version 1"


def test_a_file_that_waits_for_its_topic_is_told_once(platform: Platform, folder: Folder) -> None:
    told: list[str] = []
    watch = Watch()
    part = SchemaPart(platform, lambda _part, text: told.append(text), watch)
    folder.put("orders/pending/new.json", schema_text().encode())
    part.turn()
    with held(replace(platform, owner="other"), "topic/orders"):
        for _ in range(3):
            watch.now += 2
            assert part.turn() == 0
    assert [line.partition(": ")[2][:14] for line in told] == ["new.json waits"]
    assert part.turn() == 1


def test_a_copy_that_stalls_is_waited_for_and_a_text_that_stays_no_json_is_refused(
    platform: Platform, folder: Folder
) -> None:
    told: list[str] = []
    watch = Watch()
    part = SchemaPart(platform, lambda _part, text: told.append(text), watch)
    for text, seconds in ((schema_text()[:40], 29), ("", 29), (schema_text()[:60], 29), (schema_text(), 1)):
        folder.put("orders/pending/new.json", text.encode())
        part.turn()
        watch.now += seconds - 0.1
        assert (part.turn(), told) == (0, [])
    watch.now += 0.2
    assert part.turn() == 1

    folder.put("orders/pending/half.json", b"{")
    part.turn()
    watch.now += 30
    assert part.turn() == 1
    outcomes = [line.partition(": ")[2].split()[:3] for line in told]
    assert outcomes == [["new.json", "is", "now"], ["half.json", "is", "refused:"]]


def test_a_file_that_breaks_the_one_who_takes_it_stops_no_other(platform: Platform, folder: Folder) -> None:
    class Broken(SchemaFiles):
        def active(self, topic: str) -> Any:
            if topic == "orders":
                raise ZeroDivisionError("a secret of the payload")
            return super().active(topic)

    told: list[str] = []
    watch = Watch()
    part = SchemaPart(replace(platform, schemas=Broken(folder)), lambda _part, text: told.append(text), watch)
    add_topic(platform, "users")
    for topic in ("orders", "users"):
        folder.put(f"{topic}/pending/new.json", schema_text(table_name=topic).encode())
    for _ in range(4):
        part.turn()
        watch.now += 2
    assert [line.split(" from the engine")[0] for line in told] == [
        "orders: new.json cannot be taken: ZeroDivisionError",
        "users: new.json is now schema version 1",
    ]
    assert (part.problem() or "").startswith("orders: new.json cannot be taken")
    assert platform.schemas.pending() == [Pending("orders", "new.json")]


def test_a_link_in_pending_is_left_alone_with_what_it_leads_to(
    platform: Platform, folder: Folder, tmp_path: Path
) -> None:
    take(platform, folder, schema_text())
    link = tmp_path / "schemas/orders/pending/again.json"
    link.symlink_to("../active/schema.json")
    watch = Watch()
    part = SchemaPart(platform, now_s=watch)
    for _ in range(3):
        assert part.turn() == 0
        watch.now += 60
    assert (platform.schemas.active("orders"), link.is_symlink()) == (schema(), True)


@pytest.mark.parametrize("topic", ["orders", "nobody\nhere"])
def test_whatever_a_file_is_called_is_told_in_one_line(
    platform: Platform, folder: Folder, tmp_path: Path, topic: str
) -> None:
    told: list[str] = []
    watch = Watch()
    part = SchemaPart(platform, lambda _part, text: told.append(text), watch)
    odd = tmp_path / "schemas" / topic / "pending" / "two\nlines\x1b[31m\udce9.json"
    odd.parent.mkdir(parents=True, exist_ok=True)
    odd.write_text(schema_text())
    for _ in range(3):
        part.turn()
        watch.now += 60
    assert len(told) == 1
    assert told[0].isprintable()
    assert "two\\nlines\\x1b[31m\\udce9.json" in told[0]


def test_serve_finishes_what_a_crash_left_without_a_file(platform: Platform) -> None:
    told: list[str] = []
    part = SchemaPart(platform, lambda _part, text: told.append(text))
    abandon(platform)
    assert (part.turn(), told) == (0, [])
    platform.clock.advance(platform.rules.pipeline.lease_s + 1)
    assert (part.turn(), told) == (1, ["orders: its deploy is finished"])
    assert (platform.schemas.active("orders"), unfinished_operation(platform, "orders")) == (schema(), None)


def test_a_cycle_of_serve_leaves_operations_to_the_schemas_part(tmp_path: Path) -> None:
    runtime = Embedded(tmp_path)
    parts = {part.name: part for part in parts_of(runtime, threading.Event(), lambda _part, _text: None)}
    platform = replace(runtime.platform, clock=lambda: NOW)
    add_topic(platform, "orders")
    abandon(platform)
    parts[CYCLES].turn()
    assert unfinished_operation(platform, "orders") is not None
    parts[SCHEMAS].turn()
    assert unfinished_operation(platform, "orders") is None
    runtime.close()
