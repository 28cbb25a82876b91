"""Who has a lease: the one rule for those who take leases and those who show them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_SHOWN = "%Y-%m-%d %H:%M:%S"
MARK = "@"
"""Between an owner's name and the mark of its process."""


@dataclass(frozen=True)
class Held:
    """Who has a lease, when it was taken or last renewed, and when it ends by itself; epoch milliseconds."""

    owner: str
    renewed_ms: int
    until_ms: int

    def sentence(self) -> str:
        """Who holds the lease, since when and until when."""
        since, until = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (self.renewed_ms, self.until_ms))
        return f"held by {self.owner}, acquired or renewed at {since:{_SHOWN}} UTC, expires at {until:{_SHOWN}} UTC"


def lasts(row: Mapping[str, Any], now_ms: int, lease_ms: int) -> bool:
    """Whether a lease has not run out."""
    # One that lasts longer than any was taken while a clock was ahead. Twice the lease leaves room for clocks
    # that differ a little: a lease must not be lost to a clock that was set back by a second.
    return bool(0 < int(row["lease_until"] or 0) - now_ms <= 2 * lease_ms)


def holder(row: Mapping[str, Any], now_ms: int, lease_ms: int, has_ended: Callable[[str], bool]) -> Held | None:
    """Who has the lease of a stored row; None where it has run out or its process has ended."""
    owner, _, mark = str(row["owner"]).partition(MARK)
    if not lasts(row, now_ms, lease_ms) or has_ended(mark):
        return None
    until = int(row["lease_until"])
    return Held(owner, until - lease_ms, until)
