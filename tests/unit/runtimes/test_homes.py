"""Homes: closed to everybody else from the first byte, and taken unasked only from their owner."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from leanops.domain.errors import UsageError
from leanops.runtimes.embedded import HOME, Embedded, create_home, find_home

LEANOPS = (sys.executable, "-c", "from leanops.entrypoints.cli.app import main; main()")


def open_to_others(home: Path) -> list[str]:
    return [str(path) for path in (home, *home.rglob("*")) if path.stat().st_mode & 0o077]


def command(folder: Path, *words: str) -> None:
    """A command as a user gives it, in a shell whose files everybody may read."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEANOPS_")}
    subprocess.run((*LEANOPS, *words), cwd=folder, env=environment, check=True, capture_output=True, umask=0o022)


def test_whatever_commands_write_into_a_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"id": 1}\n')
    command(tmp_path, "init")
    assert open_to_others(tmp_path / HOME) == []
    command(tmp_path, "topics", "add", "orders")
    command(tmp_path, "publish", "orders", "events.jsonl", "--wait")
    assert {path.name for path in (tmp_path / HOME).glob("*.db")} == {
        *("catalog.db", "delivery.db", "queue.db", "state.db")
    }
    assert list((tmp_path / HOME / "warehouse").rglob("*.parquet"))
    assert open_to_others(tmp_path / HOME) == []


def test_a_folder_that_becomes_a_home_is_closed_and_a_home_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    create_home(tmp_path)
    assert open_to_others(tmp_path) == []
    tmp_path.chmod(0o750)
    create_home(tmp_path)
    assert open_to_others(tmp_path) == [str(tmp_path)]


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home above the folder we are in."""
    home = create_home(tmp_path / HOME)
    (tmp_path / "below").mkdir()
    monkeypatch.delenv("LEANOPS_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "below")
    return home


def test_a_home_of_our_own_is_found_upwards(found: Path) -> None:
    assert find_home() == found


@pytest.mark.parametrize("me", [0, 4711])
def test_a_home_of_another_user_is_taken_only_where_it_is_named(
    found: Path, monkeypatch: pytest.MonkeyPatch, me: int
) -> None:
    owner = found.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: me + (me == owner))
    with pytest.raises(UsageError, match=rf"{found} belongs to user {owner}, you are \d+; .* LEANOPS_HOME={found}$"):
        find_home()
    monkeypatch.setenv("LEANOPS_HOME", str(found))
    assert find_home() == found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_settings_of_another_user_in_our_home_are_refused(found: Path) -> None:
    os.chown(found / "leanops.toml", 4711, -1)
    with pytest.raises(UsageError, match=r"leanops\.toml belongs to user 4711"):
        find_home()


def test_two_who_make_one_home_at_once_have_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, keys, looks = tmp_path / "home", iter(["first" * 8, "second" * 8]), []
    exists = Path.exists

    def then_another_is_quicker(path: Path, **options: bool) -> bool:
        found = exists(path, **options)
        if path.name == "pii.key" and not looks:
            looks.append(found)
            create_home(home)
        return found

    monkeypatch.setattr("leanops.runtimes.embedded.secrets.token_hex", lambda _size: next(keys))
    monkeypatch.setattr(Path, "exists", then_another_is_quicker)
    create_home(home)
    assert looks == [False]
    assert (home / "pii.key").read_text() == "second" * 8
    assert (home / "pii.key").stat().st_mode & 0o777 == 0o600


def test_whoever_tidies_up_is_told_what_shadows_are_before_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Embedded(create_home(tmp_path / "home"))
    note = runtime.home / "warehouse" / runtime.settings.databases.shadow / "README.txt"
    found: list[str] = []

    def start(*_settings: object) -> SimpleNamespace:
        found.append(note.read_text())
        return SimpleNamespace(stop=lambda: None)

    monkeypatch.setattr("leanops.adapters.iceberg.session.start_session", start)
    runtime.spark()
    runtime.close()
    assert [text.splitlines()[0] for text in found] == ["Leave these files alone: live tables may consist of them."]
