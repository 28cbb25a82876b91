"""What a command tells to do next can be done as it is told."""

import shlex
from pathlib import Path

import pytest

from leanops.domain.words import counted
from leanops.entrypoints.cli.emulation.demo import print_next
from leanops.entrypoints.cli.output import near
from tests.unit.conftest import Leanops


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LEANOPS_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def after_clean(said: str) -> list[str]:
    """The words of the command that is to be given next."""
    return shlex.split(said.partition("next: leanops ")[2])


def test_the_phase_after_clean_is_told_the_home(leanops: Leanops) -> None:
    assert after_clean(leanops("emulate", "clean").out) == ["emulate", "day1"]
    words = after_clean(leanops("emulate", "clean", "--home", "an emulation").out)
    assert words == ["emulate", "day1", "--home", "an emulation"]


def test_a_home_that_a_variable_names_is_known_to_the_next_command(
    leanops: Leanops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_HOME", "elsewhere")
    assert after_clean(leanops("emulate", "clean").out) == ["emulate", "day1"]
    words = after_clean(leanops("emulate", "clean", "--home", ".leanops-emulation").out)
    assert words == ["emulate", "day1", "--home", ".leanops-emulation"]


def test_the_demo_names_its_home_as_a_shell_takes_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_next(place / "my demo; ls")
    exported = next(line for line in capsys.readouterr().out.splitlines() if "LEANOPS_HOME" in line)
    assert shlex.split(exported) == ["export", "LEANOPS_HOME=my demo; ls"]


def test_a_demo_of_an_earlier_version_is_not_removed_and_what_to_do_is_told(leanops: Leanops, place: Path) -> None:
    (place / ".leanops-demo").mkdir()
    (place / ".leanops-demo" / "demo").touch()
    ran = leanops("demo")
    assert (ran.code, ran.out) == (2, "")
    assert "is not an emulation; remove it, or choose another folder" in ran.err
    assert (place / ".leanops-demo" / "demo").exists()


def test_a_path_below_is_told_as_it_is_typed_and_any_other_in_full(place: Path) -> None:
    assert near(place / "..hidden" / "report.html") == "..hidden/report.html"
    assert near(place.parent / "report.html") == str(place.parent / "report.html")


@pytest.mark.parametrize(("number", "said"), [(1, "1 batch"), (2, "2 batches")])
def test_a_number_goes_with_its_noun(number: int, said: str) -> None:
    assert counted(number, "batch") == said
