"""What is committed is free of machine paths, index addresses and unfinished business."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.places import ROOT

MACHINE_PATH = re.compile(r"(?<![\w.*~/-])/(?:work|root|home|Users)/")
ADDRESS = re.compile(r"https?:|--(?:extra-)?index-url|--find-links|--trusted-host|file:| @ ")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    """Every file that is, or would be, committed."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = (ROOT / name.decode() for name in listed.stdout.split(b"\0") if name)
    return sorted(path for path in paths if path.is_file())


def matches(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_one_machine(tracked: list[Path]) -> None:
    assert matches(MACHINE_PATH, tracked) == []


def test_no_lock_names_an_address(tracked: list[Path]) -> None:
    locks = [path for path in tracked if path.suffix == ".lock"]
    assert len(locks) >= 2
    assert matches(ADDRESS, locks) == []


def test_every_locked_package_is_pinned_with_hashes(tracked: list[Path]) -> None:
    for lock in (path for path in tracked if path.suffix == ".lock"):
        entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"(?m)^\s*#.*\n", "", lock.read_text(encoding="utf-8")))
        assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []


def test_the_source_holds_no_unfinished_business(tracked: list[Path]) -> None:
    assert matches(UNFINISHED, [path for path in tracked if path.is_relative_to(ROOT / "src")]) == []


def test_no_environment_or_cache_is_tracked(tracked: list[Path]) -> None:
    unwanted = {"__pycache__", ".venv", ".venv-spark41", ".pytest_cache", ".hypothesis"}
    assert [str(path) for path in tracked if unwanted & set(path.relative_to(ROOT).parts)] == []


def test_whatever_the_code_reads_is_part_of_the_package(tracked: list[Path]) -> None:
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "package-data"
    ]
    package = ROOT / "src" / "leanops"
    beside = [path.relative_to(package) for path in tracked if path.is_relative_to(package) and path.suffix != ".py"]
    assert len(beside) > 4
    assert [path for path in beside if not any(path.match(pattern) for pattern in packaged["leanops"])] == []
