"""The walk in the README works word for word, and prints what the README says it prints."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WALK = re.compile(r"## A walk in five minutes\n(.*?)\n## ", flags=re.DOTALL)
# What differs from run to run: times, ids made at random, and the widths that follow from them.
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?"), "MOMENT"),
    (re.compile(r"\b\d+\.\d(?=\s|$)"), "SECONDS"),
    (re.compile(r"\b\d{13}\b"), "MILLIS"),
    (re.compile(r"\b[0-9a-f]{12}-\d+\b"), "MESSAGE"),
    (re.compile(r"\b\d{16}-[0-9a-f]{8}\b"), "BATCH"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "ERROR"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"\s+"), " "),
)


def walk() -> Iterator[tuple[str, str]]:
    """Every command of the walk with the output shown below it."""
    found = WALK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    for block in re.findall(r"```console\n(.*?)```", found.group(1), flags=re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            yield command, output


def settled(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "FOLDER").replace("~/shop", "FOLDER")
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return text.strip()


def test_the_walk_in_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # A Java that compiles less is done sooner with six events, and prints the same.
    environment = {"LEANOPS_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    environment |= {name: value for name, value in os.environ.items() if name != "LEANOPS_HOME"}
    steps = list(walk())
    assert len(steps) >= 9
    for command, output in steps:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}"
        assert settled(ran.stdout, tmp_path) == settled(output, tmp_path), command
