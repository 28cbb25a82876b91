"""What a document and a table may hold; a batch writes down the limits it was begun with."""

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True)
class Limits:
    """Beyond these a document is a parse error."""

    payload_bytes: int = 1_000_000
    depth: int = 64
    keys: int = 5_000
    duplicate_keys: str = "last_wins"


class ColumnLimits(msgspec.Struct, frozen=True):
    """Beyond these a value is rescued instead of getting a column."""

    columns: int = 1_000
    new_columns: int = 200
