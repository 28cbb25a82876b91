"""The walk in the README works word for word, and prints what the README says it prints."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

WALK, CHANGE, RUNNING = "A walk in five minutes", "Change the schema", "Leave it running"
PATIENCE_S = 240
# What differs from run to run: times, ids made at random, and the widths that follow from them.
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?"), "MOMENT"),
    (re.compile(r"^\d\d:\d\d:\d\d "), "MOMENT "),
    (re.compile(r"\b\d+\.\d(?=\s|$)"), "SECONDS"),
    (re.compile(r"\b\d{13}\b"), "MILLIS"),
    (re.compile(r"\b[0-9a-f]{12}-\d+\b"), "MESSAGE"),
    (re.compile(r"\b\d{16}-[0-9a-f]{8}\b"), "BATCH"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "ERROR"),
    (re.compile(r"about [\d,]+ s \(curated at [\d,]+ rows/s"), "ABOUT"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"\s+"), " "),
)


def commands(section: str) -> Iterator[tuple[str, str]]:
    """Every command of a section with the output shown below it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"## {section}\n(.*?)\n## ", text, flags=re.DOTALL)
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


def environment() -> dict[str, str]:
    # A Java that compiles less is done sooner with six events, and prints the same.
    kept = {name: value for name, value in os.environ.items() if name != "LEANOPS_HOME"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"LEANOPS_SPARK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", **kept, "PATH": path}


def run(command: str, folder: Path) -> str:
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}"
    return settled(ran.stdout, folder)


def test_the_walk_and_then_serve_print_what_the_readme_says(folder: Path) -> None:
    steps = [*commands(WALK), *commands(CHANGE)]
    assert len(steps) >= 12
    for command, output in steps:
        assert run(command, folder) == settled(output, folder), command
    serve_and_publish(folder)


def serve_and_publish(folder: Path) -> None:
    """The second block: one terminal serves, another publishes, and the rows are there without another command."""
    (serve, served), (publish, published), (ask, rows) = commands(RUNNING)
    assert serve == "leanops serve"
    log = folder / "serve.log"
    with log.open("w") as output:
        server = subprocess.Popen(["leanops", "serve"], cwd=folder, env=environment(), stdout=output, stderr=output)
    try:
        assert run(publish, folder) == settled(published, folder)
        deadline = time.monotonic() + PATIENCE_S
        while (found := run(ask, folder)) != settled(rows, folder):
            assert time.monotonic() < deadline, f"{found}\n{log.read_text()}"
            time.sleep(1)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=PATIENCE_S) == 0
    finally:
        server.kill()
        server.wait()
    lines = [line for line in (settled(line, folder) for line in log.read_text().splitlines()) if line]
    assert lines[0] == settled(served.splitlines()[0], folder)
    assert {settled(line, folder) for line in served.splitlines()} <= set(lines)
    assert lines[-1] == "stopped"
