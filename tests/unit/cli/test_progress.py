"""Progress is for people: on a terminal with rate and time left, and elsewhere silent."""

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import rich.console
from leanops.entrypoints.cli.progress import shares

now = 0.0
rich.console.monotonic = lambda: now
with shares(lambda what: 1_000 if what == "day1" else 0) as tell:
    for said in sys.argv[1:]:
        what, _, share = said.partition("=")
        if what == "clock":
            now = float(share)
        else:
            tell(what, float(share))
"""


def seen(*steps: str) -> str:
    """What a terminal gets."""
    ours, theirs = pty.openpty()
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *steps], stderr=theirs, stdout=subprocess.PIPE, check=True)
    said = os.read(ours, 1_000_000).decode()
    os.close(theirs)
    os.close(ours)
    assert ran.stdout == b""
    return said


@pytest.mark.parametrize(
    ("steps", "has_rate"),
    [
        (["day1=0", "clock=5", "day1=0.5"], True),
        (["day1=1", "day1: cycle=0", "clock=5", "day1: cycle=0.2"], False),
    ],
)
def test_a_terminal_sees_the_time_left_and_where_events_are_counted_the_rate(steps: list[str], has_rate: bool) -> None:
    said = seen(*steps)
    assert steps[-1].partition("=")[0] in said
    assert "s left" in said
    assert ("events/s" in said) == has_rate


def test_a_step_after_one_that_was_never_told_of_again_has_a_clock_of_its_own() -> None:
    said = seen("day1: cycle without a schema=0", "clock=600", "schema=0", "clock=610", "schema=0.5")
    assert "10 s left" in said
    assert "610 s left" not in said


def test_a_file_sees_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, "day1=0.5"], capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")
