"""Back-pressure: nothing more is taken in while the disk that holds what waits is nearly full."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """The free space that intake leaves alone, for those who bring on what is here already."""

    free_bytes: Callable[[], int] = lambda: 1 << 62
    least_bytes: int = 0

    def shortage(self) -> str | None:
        """Why nothing more is taken in, or None; asked again and again, so that it ends by itself."""
        if not self.least_bytes:
            return None
        free = self.free_bytes()
        if free >= self.least_bytes:
            return None
        return (
            f"the disk has {free / 1e6:,.0f} MB free and min_free_mb is {self.least_bytes / 1e6:,.0f}; "
            "free some space, and it goes on by itself"
        )
