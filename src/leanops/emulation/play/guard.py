"""A process that outlives the one that started it for as long as it takes to kill what that one leaves behind.

It is told on its standard input which process groups there are, `+123`, and which have ended, `-123`. When nobody can
tell it anything any more it kills those that are left.
"""

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress


def left(lines: Iterable[str]) -> set[int]:
    """The groups that were begun and have not ended."""
    groups: set[int] = set()
    for line in lines:
        number = int(line[1:])
        if line.startswith("+"):
            groups.add(number)
        else:
            groups.discard(number)
    return groups


def kill_group(number: int) -> None:
    """Kill a process group, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(number, signal.SIGKILL)


if __name__ == "__main__":
    for group in left(sys.stdin):
        kill_group(group)
