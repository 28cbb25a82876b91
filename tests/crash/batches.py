"""The batches the killed workers publish; every process makes the same ones."""

import random

from tests.oracle.rows import RawRow
from tests.oracle.streams import make_stream
from tests.world import FIRST


def planned_batches() -> list[list[RawRow]]:
    """Thirty small batches of one stream."""
    rows = make_stream(random.Random(99), 180)
    return [[FIRST, *rows[:6]], *(rows[at : at + 6] for at in range(6, len(rows), 6))]
