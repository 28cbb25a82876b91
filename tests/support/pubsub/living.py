"""Which processes of a home are alive, and a wait for that to change."""

import time
from collections.abc import Callable
from pathlib import Path


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def living(home: Path) -> list[int]:
    """The processes that were started for a home, whoever their parents are now."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"LEANOPS_HOME={home}\0".encode() in (place / "environ").read_bytes()
            is_gone = "State:\tZ" in (place / "status").read_text()
        except OSError:
            continue
        if is_ours and not is_gone:
            found.append(int(place.name))
    return found
