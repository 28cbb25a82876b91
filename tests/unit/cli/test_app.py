"""The command line as a whole: exit codes, one-line errors, and a quick start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leanops.entrypoints.cli import app as command_line
from leanops.settings import warn_once
from tests.unit.conftest import Leanops

HEAVY = ("pyspark", "pyarrow", "pyiceberg", "duckdb", "sqlalchemy", "pydantic", "numpy", "rich")


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from leanops.entrypoints.cli.app import run\n"
        "code = run(['--help'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Commands:" in ran.stdout
    assert ran.stderr.strip() == "[]"


def test_the_line_of_a_group_names_every_command_in_it() -> None:
    groups = {group.name: group for group in command_line.app.registered_groups}
    for name, group in groups.items():
        commands = {command.name or command.callback.__name__ for command in group.typer_instance.registered_commands}
        assert set(group.help.rstrip(".").split(": ")[1].split(", ")) == commands, name


def test_a_typo_in_a_command_names_the_nearest_one(leanops: Leanops) -> None:
    ran = leanops("demoo")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: No such command 'demoo'. Did you mean 'demo'?\n"


def test_a_typo_in_an_option_names_the_nearest_one(leanops: Leanops) -> None:
    ran = leanops("cycle", "--forse")
    assert ran.code == 2
    assert "--force" in ran.err


def test_no_command_shows_the_help_and_is_a_usage_error(leanops: Leanops) -> None:
    ran = leanops()
    assert ran.code == 2
    assert "Commands:" in ran.err


def test_the_version_is_told(leanops: Leanops) -> None:
    assert leanops("--version").out.startswith("leanops ")


def test_without_a_home_every_command_says_how_to_make_one(
    leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEANOPS_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    ran = leanops("status")
    assert ran.code == 2
    assert ran.err == "error: no .leanops here or above; create one with: leanops init\n"


def test_a_foreign_failure_is_one_line_without_its_text_and_a_trace_on_demand(
    leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_named: object) -> None:
        raise ValueError("payload text")

    monkeypatch.setattr("leanops.runtimes.embedded.Embedded.__init__", fail)
    ran = leanops("status")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "ValueError" in ran.err
    assert "payload text" not in ran.err
    assert f"its trace is in {home}/logs/failures.log" in ran.err
    traced = leanops("status", "--debug")
    assert traced.code == 1
    assert "Traceback" in traced.err


def test_an_interrupted_command_says_so(leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("leanops.runtimes.embedded.Embedded.__init__", interrupt)
    assert leanops("status").code == command_line.INTERRUPTED


def test_a_reader_that_leaves_early_causes_no_complaint(home: Path) -> None:
    statement = "select * from range(1000000)"
    program = Path(sys.executable).parent / "leanops"
    ran = subprocess.run(
        f"'{program}' sql --json '{statement}' | head -c 5",
        shell=True,
        env=os.environ | {"LEANOPS_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == '[{"ra'
    assert ran.stderr == ""


def test_init_makes_a_home_once(leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEANOPS_HOME", raising=False)
    made = leanops("init", str(tmp_path / "shop"))
    assert made.code == 0
    assert (tmp_path / "shop/.leanops/leanops.toml").exists()
    key = (tmp_path / "shop/.leanops/pii.key").read_text()
    again = leanops("init", str(tmp_path / "shop"))
    assert (again.code, "nothing changed" in again.out) == (0, True)
    assert (tmp_path / "shop/.leanops/pii.key").read_text() == key


def test_init_makes_what_the_variable_names(leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_HOME", str(tmp_path / "chosen"))
    assert leanops("init").code == 0
    assert leanops("status").code == 0


def test_a_home_is_found_from_a_folder_below_it(
    leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEANOPS_HOME", raising=False)
    leanops("init", str(tmp_path))
    (tmp_path / "deep/down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep/down")
    assert leanops("topics", "add", "orders").code == 0


def test_two_homes_do_not_touch_each_other(leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("LEANOPS_HOME", str(tmp_path / name))
        leanops("init")
        leanops("topics", "add", f"topic-{name}")
    assert [topic["topic"] for topic in leanops("topics", "list", "--json").json] == ["topic-two"]


def test_an_old_name_of_a_setting_is_told_beside_the_output_and_not_in_it(leanops: Leanops, home: Path) -> None:
    (home / "leanops.toml").write_text("cycle_s = 60\n")
    warn_once.cache_clear()
    ran = leanops("topics", "list", "--json")
    assert (ran.code, ran.json) == (0, [])
    assert ran.err.splitlines() == [
        "warning: cycle_s in leanops.toml is now [pipeline] cycle_s; the next version no longer reads the old name"
    ]


def test_a_wrong_setting_is_told_with_the_nearest_one(
    leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "leanops.toml").write_text("[pipeline]\nworker = 2\n")
    ran = leanops("status")
    assert (ran.code, ran.err) == (
        2,
        "error: unknown setting 'worker' in [pipeline] of leanops.toml; did you mean [pipeline] workers?\n",
    )
