"""The doctor: each problem is found, told, and comes with a way to fix it."""

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import Leanops


@pytest.fixture(autouse=True)
def jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test of the doctor downloads anything."""
    monkeypatch.setattr("leanops.adapters.iceberg.jars.fetch_jars", lambda *_args, **_options: [tmp_path / "a.jar"])


def findings(leanops: Leanops) -> tuple[int, dict[str, dict[str, Any]]]:
    ran = leanops("doctor", "--json")
    return ran.code, {found["name"]: found for found in ran.json}


def test_a_sound_home_is_all_well(leanops: Leanops, home: Path) -> None:
    ran = leanops("doctor")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "no problems")
    assert [name for name, found in findings(leanops)[1].items() if not found["ok"]] == []


def test_the_versions_of_everything_underneath_are_named(leanops: Leanops, home: Path) -> None:
    found = findings(leanops)[1]
    assert f"leanops {found['leanops']['found']}\n" == leanops("--version").out
    assert found["spark"]["found"].startswith("PySpark ")
    assert found["iceberg"]["found"].startswith("Iceberg ")
    assert "version" in found["java"]["found"]


def test_a_missing_package_is_a_finding_among_others(
    leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "leanops.runtimes.embedded", None)
    code, found = findings(leanops)
    assert (code, found["python"]["ok"], found["home"]["ok"]) == (3, True, False)
    assert found["home"]["found"] == "the package leanops.runtimes.embedded is missing"


def test_a_key_that_others_can_read_is_a_problem(leanops: Leanops, home: Path) -> None:
    (home / "pii.key").chmod(0o644)
    code, found = findings(leanops)
    assert (code, found["pii key"]["ok"]) == (3, False)
    assert found["pii key"]["fix"] == f"chmod 600 {home / 'pii.key'}"


@pytest.mark.parametrize("name", ["", "state.db", "queue.db-wal"])
def test_a_home_that_others_can_read_is_a_problem(leanops: Leanops, home: Path, name: str) -> None:
    path = home / name
    if name:
        sqlite3.connect(home / name.removesuffix("-wal")).close()
        path.touch()
    path.chmod(0o755)
    code, found = findings(leanops)
    assert (code, found["private"]["found"]) == (3, f"{path} is open to others, mode 755")
    assert found["private"]["fix"] == f"chmod -R go-rwx {home}"


def test_a_home_of_somebody_else_is_a_problem(leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = home.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert findings(leanops)[1]["private"] == {
        "name": "private",
        "ok": False,
        "found": f"{home} belongs to user {owner}",
        "fix": f"chown -R {owner + 1} {home}",
    }


def test_a_missing_key_is_a_problem_unless_the_variable_has_it(
    leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "pii.key").unlink()
    assert findings(leanops)[1]["pii key"]["ok"] is False
    monkeypatch.setenv("LEANOPS_PII_KEY", "secret")
    assert findings(leanops)[1]["pii key"]["ok"] is False
    monkeypatch.setenv("LEANOPS_PII_KEY", "secret of 24 bytes or so")
    code, found = findings(leanops)
    assert (code, found["pii key"]["ok"]) == (0, True)
    assert "secret" not in str(found)


def test_no_home_is_a_problem_with_a_way_out(leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEANOPS_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    code, found = findings(leanops)
    assert (code, found["home"]["fix"]) == (3, "create one with: leanops init")


def test_a_wrong_setting_is_a_problem(leanops: Leanops, home: Path) -> None:
    (home / "leanops.toml").write_text("[pipeline]\nworkers = 0\n")
    code, found = findings(leanops)
    assert (code, found["settings"]["ok"]) == (3, False)


@pytest.mark.parametrize(("file", "check"), [("state.db", "state"), ("catalog.db", "catalog")])
def test_a_damaged_store_is_a_problem(leanops: Leanops, home: Path, file: str, check: str) -> None:
    (home / file).write_text("this is no database, and long enough that SQLite looks at it " * 20)
    code, found = findings(leanops)
    assert (code, found[check]["ok"]) == (3, False)


def test_a_java_that_does_not_run_is_a_problem(
    leanops: Leanops, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "java").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    code, found = findings(leanops)
    assert (code, "unset it" in found["java"]["fix"]) == (3, True)
