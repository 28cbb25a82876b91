"""Schemas on the command line: deployed, compared, listed and taken back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leanops.entrypoints.cli.schemas import schema as commands
from leanops.runtimes.embedded import Embedded
from leanops.usecases.leases import held
from tests.support.builders import column, schema_text
from tests.unit.cli.test_topics import audit
from tests.unit.conftest import Leanops

Deploy = Callable[..., Any]


@pytest.fixture
def topic(leanops: Leanops, home: Path) -> str:
    leanops("topics", "add", "orders")
    return "orders"


@pytest.fixture
def deploy(leanops: Leanops, topic: str, tmp_path: Path) -> Deploy:
    """Deploys a text without asking: `deploy(schema_text(), "--json")`."""

    def run(text: str, *words: str) -> Any:
        (tmp_path / "schema.json").write_text(text)
        return leanops("schema", "deploy", topic, str(tmp_path / "schema.json"), "--yes", *words)

    return run


def test_a_deployed_schema_is_shown_as_it_was_written(leanops: Leanops, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    written = json.loads(schema_text(column("amount", type="DECIMAL(18,2)", cde=True, rules={"min": "0"})))
    file.write_text(json.dumps(written))
    ran = leanops("schema", "deploy", topic, str(file), "--yes")
    assert (ran.code, "version 1 is active" in ran.out) == (0, True)
    assert leanops("schema", "show", topic, "--json").json == {**written, "version": 1}
    assert "DECIMAL(18,2)" in leanops("schema", "show", topic).out
    assert audit(leanops)[-1] == {
        "action": "schema deploy",
        "topic_name": "orders",
        "details": json.dumps({"version": 1, "file": str(file)}),
        "channel": "cli",
    }


def test_a_schema_is_not_deployed_unasked(leanops: Leanops, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(schema_text())
    ran = leanops("schema", "deploy", topic, str(file))
    trial = f"leanops schema plan orders {file}"
    assert ran.code == 2
    assert (
        ran.err.splitlines()[-1] == f"error: this changes topic 'orders'; try it with: {trial}, and confirm with --yes"
    )
    assert leanops("schema", "show", topic).code == 2


def test_the_same_schema_again_changes_nothing(leanops: Leanops, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(schema_text())
    leanops("schema", "deploy", topic, str(file), "--yes")
    before = len(audit(leanops))
    ran = leanops("schema", "deploy", topic, str(file))
    assert (ran.code, "nothing changed" in ran.out) == (0, True)
    assert len(audit(leanops)) == before


def test_what_a_new_schema_changes_is_told_before_it_is_deployed(deploy: Deploy) -> None:
    deploy(schema_text(column("a"), column("b")))
    ran = deploy(schema_text(column("a", cde=True), column("b"), column("c")))
    assert ran.code == 0
    told = [" ".join(line.split()) for line in ran.err.splitlines()]
    assert told == ["restrictive a: now critical", "additive c STRING added"]
    assert "version 2" in ran.out


def test_a_breaking_change_needs_the_option_the_refusal_names(leanops: Leanops, deploy: Deploy) -> None:
    deploy(schema_text(column("a"), column("b")))
    ran = deploy(schema_text(column("a")))
    assert ran.code == 2
    assert "breaking  b removed" in ran.err
    assert ran.err.splitlines()[-1].startswith(
        "error: this is a breaking change for orders; rebuild the tables with --rebuild"
    )
    assert leanops("schema", "show", "orders", "--json").json["version"] == 1
    assert deploy(schema_text(column("a")), "--rebuild").code == 0
    assert leanops("schema", "show", "orders", "--json").json["version"] == 2


def test_a_breaking_change_may_be_agreed_to_in_the_file(deploy: Deploy) -> None:
    deploy(schema_text(column("a"), column("b")))
    assert deploy(schema_text(column("a"), policies={"on_breaking": "rebuild"})).code == 0


def test_deploy_tells_programs_what_it_did(deploy: Deploy) -> None:
    said = {"topic": "orders", "version": 1, "curated": "iceberg_curated_db.orders", "rebuilt": "none", "plan": None}
    assert deploy(schema_text(), "--json").json == {**said, "is_new": True}
    assert deploy(schema_text(), "--json").json == {**said, "is_new": False}


def test_a_file_in_pending_is_taken_away_when_it_is_deployed(leanops: Leanops, topic: str, home: Path) -> None:
    for name in ("schema.json", "schema.draft.json"):
        file = home / "schemas/orders/pending" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(schema_text())
        assert leanops("schema", "deploy", topic, str(file), "--yes").code == 0
        assert not file.exists()
    assert leanops("schema", "show", topic).code == 0


def test_the_folder_of_files_that_wait_is_there_from_the_beginning(leanops: Leanops, topic: str, home: Path) -> None:
    assert (home / "schemas/orders/pending").is_dir()
    runtime = Embedded(home)
    assert runtime.platform.schemas.pending() == []
    runtime.close()


def test_a_good_deploy_clears_what_failed_before(leanops: Leanops, deploy: Deploy, home: Path) -> None:
    runtime = Embedded(home)
    runtime.platform.schemas.fail("orders", "a.json", b"{", "{}")
    runtime.close()
    deploy(schema_text())
    assert not [path for path in (home / "schemas/orders/failed").rglob("*") if path.is_file()]


def test_a_person_is_asked_and_may_say_no(
    leanops: Leanops, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr(commands.sys, "stdin", Terminal())
    (tmp_path / "schema.json").write_text(schema_text())
    answer = "n\n"
    ran = leanops("schema", "deploy", topic, str(tmp_path / "schema.json"))
    assert (ran.code, "Deploy this to orders?" in ran.err) == (1, True)
    assert ran.err.endswith("nothing was changed\n")
    assert leanops("schema", "show", topic).code == 2
    answer = "y\n"
    assert leanops("schema", "deploy", topic, str(tmp_path / "schema.json")).code == 0
    assert leanops("schema", "show", topic).code == 0


def test_a_topic_that_is_worked_on_is_one_line(leanops: Leanops, deploy: Deploy, home: Path) -> None:
    (home / "leanops.toml").write_text("[operations]\nwait_s = 0\n")
    runtime = Embedded(home)
    with held(runtime.platform, "topic/orders"):
        ran = deploy(schema_text())
    runtime.close()
    assert (ran.code, "is working on it" in ran.err.splitlines()[-1]) == (1, True)
    assert "is working on it; waiting up to 0 s" in ran.err


@pytest.mark.parametrize("content", [b"{", b'{"table_name": 3}', b"\xff"])
def test_a_bad_schema_file_is_one_line(leanops: Leanops, topic: str, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "schema.json").write_bytes(content)
    ran = leanops("schema", "deploy", topic, str(tmp_path / "schema.json"), "--yes")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_two_versions_are_compared(leanops: Leanops, deploy: Deploy) -> None:
    for columns in ([column("a")], [column("a"), column("b")], [column("a"), column("b", cde=True)]):
        deploy(schema_text(*columns))
    ran = leanops("schema", "diff", "orders")
    assert ran.out.splitlines()[0] == "orders: version 2 → version 3: restrictive"
    assert "b: now critical" in ran.out
    assert leanops("schema", "diff", "orders", "--to", "2").out.startswith("orders: version 1 → version 2: additive")
    said = leanops("schema", "diff", "orders", "--from", "3", "--to", "1", "--json").json
    assert (said["topic"], said["from"], said["to"], said["kind"]) == ("orders", "version 3", "version 1", "breaking")
    assert [change["pointer"] for change in said["changes"]] == ["/payload_columns/1"]


def test_a_file_is_compared_with_the_active_schema(leanops: Leanops, deploy: Deploy, tmp_path: Path) -> None:
    deploy(schema_text(column("a")))
    file = tmp_path / "other.json"
    file.write_text(schema_text(column("a"), column("b")))
    assert leanops("schema", "diff", "orders", str(file)).out.startswith(f"orders: version 1 → {file}: additive")
    file.write_text(schema_text(column("a")))
    assert "nothing changes" in leanops("schema", "diff", "orders", str(file)).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["FILE", "--from", "1"], "not both"),
        ([], "version 1 is the first schema"),
        (["--to", "7"], "no schema version 7; see: leanops schema history orders"),
        (["--from", "7"], "no schema version 7"),
    ],
)
def test_what_cannot_be_compared_is_told(leanops: Leanops, deploy: Deploy, words: list[str], told: str) -> None:
    deploy(schema_text())
    ran = leanops("schema", "diff", "orders", *words)
    assert (ran.code, told in ran.err) == (2, True)


def test_the_history_tells_every_version(leanops: Leanops, deploy: Deploy) -> None:
    assert "has no schema" in leanops("schema", "history", "orders").out
    assert leanops("schema", "history", "orders", "--json").json == []
    deploy(schema_text(column("a")))
    deploy(schema_text(column("a"), column("b")))
    rows = leanops("schema", "history", "orders", "--json").json
    assert [(row["version"], row["classification"], row["active"]) for row in rows] == [
        (1, "first", False),
        (2, "additive", True),
    ]
    assert len({row["fingerprint"] for row in rows}) == 2
    shown = leanops("schema", "history", "orders").out
    assert all(word in shown for word in ("first", "additive", "active", rows[0]["fingerprint"], rows[0]["actor"]))
    assert leanops("schema", "history", "nosuch").code == 2


def test_an_earlier_schema_comes_back_as_a_new_version(leanops: Leanops, deploy: Deploy) -> None:
    deploy(schema_text(column("a"), rules_of_b := column("b", cde=True)))
    deploy(schema_text(column("a"), {**rules_of_b, "cde": False}))
    ran = leanops("schema", "rollback", "orders", "--to", "1")
    assert (ran.code, "b: now critical" in ran.err, "--yes" in ran.err) == (2, True, True)
    ran = leanops("schema", "rollback", "orders", "--to", "1", "--yes")
    assert (ran.code, "schema version 3 is active" in ran.out) == (0, True)
    shown = leanops("schema", "show", "orders", "--json").json
    assert (shown["version"], shown["payload_columns"][1]["cde"]) == (3, True)
    assert [row["version"] for row in leanops("schema", "history", "orders", "--json").json] == [1, 2, 3]
    assert audit(leanops)[-1]["action"] == "schema rollback"
    assert "nothing changed" in leanops("schema", "rollback", "orders", "--to", "1", "--yes").out


def test_going_back_behind_a_new_column_breaks_what_is_there(leanops: Leanops, deploy: Deploy) -> None:
    deploy(schema_text(column("a")))
    deploy(schema_text(column("a"), column("b")))
    assert "--rebuild" in leanops("schema", "rollback", "orders", "--to", "1", "--yes").err
    assert leanops("schema", "rollback", "orders", "--to", "1", "--yes", "--rebuild").code == 0
    assert leanops("schema", "rollback", "orders", "--to", "9", "--yes").code == 2
