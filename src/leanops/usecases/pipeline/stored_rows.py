"""Finding the stored rows of a batch's keys: one read of a few columns of the table."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.ports.tables import Lake
from leanops.transforms.frames.versions import completed

BROADCAST_KEYS = 500_000
"""Up to this many keys of a batch are sent to every task that reads the table for them."""
Bounds = tuple[str | None, str | None]
"""The least and the greatest key of a batch, where it has any."""


def stored_rows(
    lake: Lake,
    table: str,
    snapshot: int,
    rows: int,
    keys: DataFrame,
    bounds: Bounds,
    columns: Sequence[str],
) -> DataFrame:
    """Rows of `table` with the keys of a batch of `rows` rows; `keys` is a frame of one column within `bounds`.

    Where keys grow with time, the bounds spare all files but the newest; where they are random, they cost nothing.
    """
    (key,) = keys.columns
    there = completed(lake.at(table, snapshot)).where(F.col(key).between(*(F.lit(bound) for bound in bounds)))
    few = F.broadcast(keys) if rows <= BROADCAST_KEYS else keys
    return there.select(key, *columns).join(few, key, "left_semi")
