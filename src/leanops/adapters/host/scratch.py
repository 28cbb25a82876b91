"""Scratch folders, one a process: what a killed one left is removed by the next."""

import shutil
from pathlib import Path

from leanops.ports.processes import Processes


def own_scratch(folder: Path, processes: Processes) -> Path:
    """This process's scratch: a folder of its own, named by its mark; the shared one where there are no marks."""
    return folder / processes.mark


def fresh_scratch(folder: Path, processes: Processes) -> Path:
    """This process's scratch, once what ended processes left in theirs is removed. What has no mark is left alone."""
    own = own_scratch(folder, processes)
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.iterdir():
        if processes.has_ended(left.name):
            shutil.rmtree(left, ignore_errors=True)
    return own
