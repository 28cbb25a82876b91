"""Scratch folders, one for each process: what a killed process left is removed by the next."""

import shutil
from pathlib import Path

from leanops.ports.processes import Processes


def fresh_scratch(folder: Path, processes: Processes) -> Path:
    """The folder of this process, named by its mark; those of ended processes are removed, what has no mark is kept."""
    own = folder / processes.mark
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.iterdir():
        if processes.has_ended(left.name):
            shutil.rmtree(left, ignore_errors=True)
    return own
