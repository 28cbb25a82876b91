"""Progress is for people: on a terminal with rate and time left, and elsewhere silent."""

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from leanops.entrypoints.cli.progress import shares

with shares(lambda what: 1_000 if what == "day1" else 0) as tell:
    for said in sys.argv[1:]:
        what, _, share = said.partition("=")
        tell(what, float(share))
"""


@pytest.mark.parametrize(
    ("steps", "has_rate"), [(["day1=0", "day1=0.5"], True), (["day1=1", "day1: cycle=0", "day1: cycle=0.2"], False)]
)
def test_a_terminal_sees_the_time_left_and_where_events_are_counted_the_rate(steps: list[str], has_rate: bool) -> None:
    ours, theirs = pty.openpty()
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *steps], stderr=theirs, stdout=subprocess.PIPE, check=True)
    said = os.read(ours, 1_000_000).decode()
    os.close(theirs)
    os.close(ours)
    assert ran.stdout == b""
    assert steps[-1].partition("=")[0] in said
    assert "s left" in said
    assert ("events/s" in said) == has_rate


def test_a_file_sees_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, "day1=0.5"], capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")
