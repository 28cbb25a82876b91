"""One row of the benchmark's table."""

from typing import Any

Row = dict[str, Any]


def row(work: str, ours: float, theirs: float, bar: float, digits: int = 2) -> Row:
    """A row that passes while ours ÷ theirs is at most the bar."""
    ratio = ours / theirs
    return {
        "work": work,
        "ours_s": round(ours, digits),
        "theirs_s": round(theirs, digits),
        "ratio": round(ratio, 3),
        "bar": round(bar, 3),
        "passed": ratio <= bar,
    }


def say(text: str) -> None:
    """What the benchmark is doing."""
    print(f"bench: {text}", flush=True)
