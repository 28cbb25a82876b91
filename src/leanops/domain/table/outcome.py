"""How a topic's cycle ends, and how topics are packed into bins."""

from collections.abc import Iterable, Sequence
from enum import StrEnum


class Outcome(StrEnum):
    """Every topic of every cycle ends with one of these."""

    DONE = "done"
    STANDARDIZED_ONLY = "standardized_only"
    NO_NEW_DATA = "no_new_data"
    NO_SCHEMA = "no_schema"
    DISABLED = "disabled"
    PAUSED = "paused"
    LOCKED = "locked"
    GAP = "gap"
    PRIOR_FAILED = "prior_failed"
    FAILED = "failed"


ROWS_PER_BIN = 2_000_000
TOPICS_PER_BIN = 50


def packed(expected: Iterable[tuple[str, int]]) -> list[Sequence[str]]:
    """Topics in bins that are worked on together: bounded in rows and in number, largest first."""
    bins: list[tuple[int, list[str]]] = []
    for topic, rows in sorted(expected, key=lambda pair: (-pair[1], pair[0])):
        for at, (load, topics) in enumerate(bins):
            if load + rows <= ROWS_PER_BIN and len(topics) < TOPICS_PER_BIN:
                topics.append(topic)
                bins[at] = (load + rows, topics)
                break
        else:
            bins.append((rows, [topic]))
    return [topics for _, topics in bins]
