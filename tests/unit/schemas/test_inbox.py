"""Schema files that wait: deployed or refused with every reason, once, wherever the work is stopped."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.files.folder import Folder
from leanops.adapters.files.schemas import SchemaFiles
from leanops.domain.errors import InvalidSchemaError
from leanops.domain.problems import Code, Problem
from leanops.domain.table.definitions import CURATED, STANDARDIZED
from leanops.ports.schemas import Pending
from leanops.usecases.attempts import record_failure
from leanops.usecases.leases import held
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.operations.execute import OPERATION
from leanops.usecases.operations.unfinished import resume_unfinished
from leanops.usecases.platform import Platform, Secret
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.schemas.inbox import take_pending
from leanops.usecases.schemas.validate import Outcome, Verdict
from leanops.usecases.topics.registry import Topic, add_topic, find_topic, pause_topic
from tests.support.builders import NOW, column, platform_in, schema, schema_text, watermark

HMAC = schema_text(column(), column("mail", pii="hmac"))


def take(
    platform: Platform, folder: Folder, data: str | bytes, name: str = "new.json", topic: str = "orders"
) -> Verdict:
    folder.put(f"{topic}/pending/{name}", data if isinstance(data, bytes) else data.encode())
    return take_pending(platform, Pending(topic, name))


def codes(verdict: Verdict) -> list[tuple[str, str]]:
    return [(problem.code.value, problem.pointer) for problem in verdict.problems]


def registry(platform: Platform) -> Topic:
    return find_topic(platform, "orders")


def audit(platform: Platform) -> list[tuple[Any, ...]]:
    names = ("actor", "channel", "action", "topic_name", "details")
    return [tuple(row[name] for name in names) for row in platform.catalog.select("ops_db.audit_log", names)]


def test_a_good_file_becomes_active_and_is_taken_away(platform: Platform, folder: Folder) -> None:
    verdict = take(platform, folder, schema_text())
    assert (verdict.outcome, verdict.version) == (Outcome.ACTIVE, 1)
    assert verdict.sentence() == "orders: new.json is now schema version 1"
    assert platform.schemas.active("orders") == schema()
    assert list(folder.names("")) == ["orders/active/schema.json", "orders/archive/schema.v1.json"]
    assert registry(platform) == Topic("orders", "READY", True, 1, None)
    assert audit(platform) == [
        ("someone", "files", "schema deploy", "orders", '{"version": 1, "file": "pending/new.json"}')
    ]


def test_the_same_file_twice_changes_nothing(platform: Platform, folder: Folder) -> None:
    take(platform, folder, schema_text())
    before = {name: folder.get(name) for name in folder.names("")}
    assert take_pending(platform, Pending("orders", "new.json")).outcome == Outcome.GONE
    again = take(platform, folder, schema_text(version=9), "again.json")
    assert (again.outcome, again.version) == (Outcome.UNCHANGED, 1)
    assert {name: folder.get(name) for name in folder.names("")} == before
    assert len(audit(platform)) == 1


def test_a_bad_file_lies_beside_a_report_of_every_problem(platform: Platform, folder: Folder) -> None:
    verdict = take(platform, folder, b"\xff\xfe")
    assert (verdict.outcome, codes(verdict)) == (Outcome.FAILED, [("not_utf8", "")])
    assert json.loads(platform.schemas.failed("orders") or "") == {
        "topic": "orders",
        "file": "new.json",
        "at": NOW.isoformat(),
        "problems": [
            {"code": "not_utf8", "pointer": "", "message": "not UTF-8", "hint": "save the file as UTF-8"},
        ],
    }
    assert list(folder.names("")) == [
        "orders/failed/error.json",
        "orders/failed/new.json",
        "orders/failed/reports/new.json",
    ]
    assert folder.get("orders/failed/reports/new.json") == folder.get("orders/failed/error.json")
    assert folder.get("orders/failed/new.json") == b"\xff\xfe"


def test_a_bad_file_is_told_by_the_registry_only_where_there_is_no_schema(platform: Platform, folder: Folder) -> None:
    take(platform, folder, "{")
    found = registry(platform)
    assert (found.status, found.processing_enabled, found.schema_version) == ("ERROR", False, None)
    assert found.reason is not None
    assert found.reason.startswith("new.json is refused: ")
    assert found.reason.endswith("see schemas/orders/failed/reports/new.json")
    assert "\n" not in found.reason

    take(platform, folder, schema_text())
    assert registry(platform) == Topic("orders", "READY", True, 1, None)
    assert list(folder.names("orders/failed/")) == []

    assert take(platform, folder, "{").outcome == Outcome.FAILED
    assert registry(platform) == Topic("orders", "READY", True, 1, None)
    assert platform.schemas.active("orders") == schema()


def test_a_schema_deployed_by_hand_ends_the_error_too(platform: Platform, folder: Folder) -> None:
    take(platform, folder, "{")
    deploy_schema(platform, "orders", schema_text(), "schema.json")
    assert registry(platform) == Topic("orders", "READY", True, 1, None)


def test_a_paused_topic_stays_paused_whatever_the_file(platform: Platform, folder: Folder) -> None:
    pause_topic(platform, "orders", "by hand")
    take(platform, folder, "{")
    assert registry(platform) == Topic("orders", "PAUSED", False, None, "by hand")
    take(platform, folder, schema_text())
    assert registry(platform) == Topic("orders", "PAUSED", True, 1, "by hand")


@pytest.mark.parametrize("topic", ["nobody", "x"])
def test_a_file_of_a_topic_nobody_added_is_refused(platform: Platform, folder: Folder, topic: str) -> None:
    verdict = take(platform, folder, schema_text(), topic=topic)
    assert codes(verdict) == [("unknown_topic", "")]
    assert f"leanops topics add {topic}" in verdict.problems[0].hint
    names = ("error.json", "new.json", "reports/new.json")
    assert list(folder.names("")) == [f"{topic}/failed/{name}" for name in names]


def test_a_table_of_another_topic_or_another_name_is_refused(platform: Platform, folder: Folder) -> None:
    add_topic(platform, "users")
    take(platform, folder, schema_text())
    assert codes(take(platform, folder, schema_text(), topic="users")) == [("table_taken", "/table_name")]
    renamed = take(platform, folder, schema_text(table_name="orders_2"))
    assert codes(renamed) == [("table_renamed", "/table_name")]


def test_an_hmac_without_a_key_is_refused_at_its_place(platform: Platform, folder: Folder) -> None:
    assert codes(take(platform, folder, HMAC)) == [("no_pii_key", "/payload_columns/1/pii")]
    key = schema_text(column(), keys={"idempotency_key": "$.id", "pii": "hmac"})
    assert codes(take(platform, folder, key)) == [("no_pii_key", "/keys/pii")]
    assert take(replace(platform, secret=Secret(b"a key for the tests", "k1")), folder, HMAC).outcome == Outcome.ACTIVE


def test_a_breaking_change_is_refused_at_every_place_it_is_in(platform: Platform, folder: Folder) -> None:
    take(platform, folder, schema_text(column("a"), column("b"), column("d")))
    verdict = take(platform, folder, schema_text(column("a", path="$.other"), column("b", type="INT")))
    assert {code for code, _ in codes(verdict)} == {"breaking_change"}
    assert [pointer for _, pointer in codes(verdict)][:2] == ["/payload_columns/0/path", "/payload_columns/1/type"]
    assert "on_breaking" in verdict.problems[0].hint
    assert registry(platform).processing_enabled


def test_a_topic_that_is_worked_on_keeps_its_file_for_later(platform: Platform, folder: Folder) -> None:
    with held(replace(platform, owner="other"), "topic/orders"):
        verdict = take(platform, folder, schema_text())
    assert verdict.outcome == Outcome.WAITING
    assert platform.schemas.pending() == [Pending("orders", "new.json")]
    assert take_pending(platform, Pending("orders", "new.json")).outcome == Outcome.ACTIVE


def test_a_file_replaced_while_it_is_taken_is_taken_again(platform: Platform, folder: Folder) -> None:
    class Replaced(SchemaFiles):
        def activate(self, topic: str, version: int) -> None:
            super().activate(topic, version)
            folder.put("orders/pending/new.json", schema_text(column("d")).encode())

    take(replace(platform, schemas=Replaced(folder)), folder, schema_text())
    assert platform.schemas.pending() == [Pending("orders", "new.json")]


def test_a_broken_active_file_is_not_blamed_on_the_one_that_waits(platform: Platform, folder: Folder) -> None:
    folder.put("orders/active/schema.json", b"{")
    with pytest.raises(InvalidSchemaError, match=r"schemas/orders/active/schema\.json"):
        take(platform, folder, schema_text())
    assert platform.schemas.pending() == [Pending("orders", "new.json")]


def test_two_processes_that_take_the_same_file_make_one_version_of_it(tmp_path: Path, folder: Folder) -> None:
    with ExitStack() as stack:
        platforms = [stack.enter_context(platform_in(tmp_path, owner=f"worker-{n}")) for n in range(2)]
        add_topic(platforms[0], "orders")
        columns = [column("c0")]
        for number in range(1, 6):
            columns.append(column(f"c{number}"))
            folder.put("orders/pending/new.json", schema_text(*columns).encode())
            with ThreadPoolExecutor(2) as pool:
                take_one = partial(take_pending, pending=Pending("orders", "new.json"))
                verdicts = list(pool.map(take_one, platforms))
            outcomes = {verdict.outcome for verdict in verdicts}
            assert Outcome.ACTIVE in outcomes
            assert outcomes <= {Outcome.ACTIVE, Outcome.UNCHANGED, Outcome.GONE, Outcome.WAITING}
            assert platforms[0].schemas.pending() == []
            assert platforms[0].schemas.versions("orders") == list(range(1, number + 1))


class Killed(BaseException):
    """What a kill looks like from inside."""


class Stopping:
    """A port whose n-th write ends the process before it is done."""

    def __init__(self, port: Any, writes: list[int]) -> None:
        self._port, self._left = port, writes

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._port, name)
        if name not in ("put", "replace", "delete", "delete_same", "append", "append_planned", "create"):
            return call

        def write(*arguments: Any, **rest: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] == 0:
                raise Killed
            return call(*arguments, **rest)

        return write


def stopping(platform: Platform, folder: Folder, write: int) -> Platform:
    """The platform in a process that is killed at its n-th write to files, state or tables."""
    left = [write]
    files, state, catalog = (Stopping(port, left) for port in (folder, platform.state, platform.catalog))
    return replace(platform, schemas=SchemaFiles(files), state=state, catalog=catalog)


def _timeless(data: bytes | None) -> bytes:
    return re.sub(rb'"at": "[^"]+"', b"", data or b"")


def everything(platform: Platform, folder: Folder) -> dict[str, Any]:
    """All that taking a file changes."""
    versions = platform.catalog.select("ops_db.schema_versions", ["topic_name", "version", "fingerprint", "schema"])
    return {
        "files": {name: _timeless(folder.get(name)) for name in folder.names("")},
        "registry": registry(platform),
        "versions": sorted(versions, key=lambda row: row["version"]),
        "audit": sorted(audit(platform)),
    }


FIRST, NEXT, BAD = schema_text(), schema_text(column(), column("d")), "{"


@pytest.mark.parametrize("texts", [(FIRST,), (FIRST, NEXT), (BAD,), (FIRST, BAD), (BAD, NEXT)])
def test_a_kill_at_any_write_is_repeated_to_the_same_end(tmp_path: Path, texts: tuple[str, ...]) -> None:
    def begin(number: int) -> tuple[Platform, Folder]:
        platform = stack.enter_context(platform_in(tmp_path / str(number)))
        add_topic(platform, "orders")
        folder = Folder(tmp_path / str(number) / "schemas")
        for text in texts[:-1]:
            take(platform, folder, text)
        return platform, folder

    with ExitStack() as stack:
        undisturbed = begin(0)
        take(*undisturbed, texts[-1])
        wanted, kills = everything(*undisturbed), 0
        while True:
            platform, folder = begin(kills + 1)
            folder.put("orders/pending/new.json", texts[-1].encode())
            try:
                take_pending(stopping(platform, folder, kills + 1), Pending("orders", "new.json"))
            except Killed:
                kills += 1
            else:
                break
            platform.clock.advance(platform.rules.pipeline.lease_s + 1)
            take_pending(platform, Pending("orders", "new.json"))
            assert everything(platform, folder) == wanted, kills
    assert kills >= 3


def killed_at(wanted: str) -> Callable[[str], None]:
    def step(name: str) -> None:
        if name == wanted:
            raise Killed

    return step


def abandon(platform: Platform) -> None:
    """A deployment whose process is killed when it has been written down."""
    with pytest.raises(Killed):
        deploy_schema(replace(platform, step=killed_at("after operation")), "orders", schema_text(), "a.json")
    assert unfinished_operation(platform, "orders") is not None


def test_a_verdict_is_one_line_whatever_it_is_about() -> None:
    for outcome in Outcome:
        verdict = Verdict(Pending("a\nb", "c\nd.json"), outcome, 1, (Problem(Code.BLOCKED, "/e\nf", "g", "h"),), "i")
        assert verdict.sentence().isprintable(), outcome


def test_a_file_waits_while_an_operation_that_failed_is_not_due_again(platform: Platform, folder: Folder) -> None:
    abandon(platform)
    platform.clock.advance(platform.rules.pipeline.lease_s + 1)
    record_failure(platform, "orders", OPERATION, "no space left")
    verdict = take(platform, folder, schema_text(column("d")))
    assert (verdict.outcome, unfinished_operation(platform, "orders") is None) == (Outcome.WAITING, False)
    assert "deploy started at" in (verdict.reason or "")


def test_what_a_person_began_and_another_process_finished_is_in_the_audit_log(platform: Platform) -> None:
    abandon(platform)
    platform.clock.advance(platform.rules.pipeline.lease_s + 1)
    assert audit(platform) == []
    assert resume_unfinished(platform) == 1
    said = '{"version": 1, "finished_by": "worker-1"}'
    assert audit(platform) == [("someone", "cycle", "schema deploy", "orders", said)]


def test_a_file_that_replaces_tables_waits_while_its_topic_is_paused(platform: Platform, folder: Folder) -> None:
    take(platform, folder, schema_text())
    catalog, databases = platform.catalog, platform.rules.databases
    for name, definition in (
        (databases.standardized_table("orders"), STANDARDIZED),
        ("iceberg_curated_db.orders", CURATED),
    ):
        catalog.create(name, definition)
        catalog.append(name, [{"message_id": "m1"}], watermark().summary())
    pause_topic(platform, "orders", "audit")
    breaking = schema_text(column(type="INT"), policies={"on_breaking": "rebuild"})
    verdict = take(platform, folder, breaking)
    assert (verdict.outcome, "orders is paused (audit)" in (verdict.reason or "")) == (Outcome.WAITING, True)
    assert unfinished_operation(platform, "orders") is None
    assert take(platform, folder, schema_text(owner="me")).outcome == Outcome.ACTIVE
