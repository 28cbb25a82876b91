"""What a document and a table may hold; a batch writes down the limits it was started with."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le


@dataclass(frozen=True)
class Limits:
    """Beyond these a document is a parse error."""

    payload_bytes: Annotated[int, Ge(1), "A larger payload is a parse error."] = 1_000_000
    depth: Annotated[int, Ge(1), Le(500), "A payload nested more deeply is a parse error."] = 64
    keys: Annotated[int, Ge(1), "A payload with more keys (outside arrays) is a parse error."] = 5_000
    duplicate_keys: Annotated[Literal["last_wins", "error"], "A key twice: `last_wins` or `error`."] = "last_wins"


@dataclass(frozen=True)
class ColumnLimits:
    """Beyond these a value is rescued instead of getting a column."""

    columns: Annotated[int, Ge(1), "Beyond this many payload columns, values are rescued."] = 1_000
    new_columns: Annotated[int, Ge(0), "Beyond this many new columns in a batch, values are rescued."] = 200
