"""Time as an argument."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""The present moment, aware, in UTC."""


def millis(at: datetime) -> int:
    """Epoch milliseconds."""
    return int(at.timestamp() * 1000)


def moment(epoch_ms: int) -> datetime:
    """The moment of epoch milliseconds, in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
