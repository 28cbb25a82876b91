"""Time as an argument."""

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]
"""The present moment, aware, in UTC."""


def millis(moment: datetime) -> int:
    """Epoch milliseconds."""
    return int(moment.timestamp() * 1000)
