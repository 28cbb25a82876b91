"""Back-pressure: nothing is received while the disk that holds the queues is nearly full."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge


@dataclass(frozen=True)
class IngestRules:
    """When events are taken in, and which of them are dropped as repeats."""

    min_free_mb: Annotated[int, Ge(0), "Intake stops below this many free megabytes on the disk; 0 is off."] = 1_000
    idempotency_hours: Annotated[
        int, Ge(0), "Hours for which repeats are dropped before RAW; with 0 Standardized removes them."
    ] = 0


@dataclass(frozen=True)
class Room:
    """The free space that intake leaves for the work on events that are here already."""

    free_bytes: Callable[[], int] = lambda: 1 << 62
    rules: IngestRules = field(default_factory=IngestRules)

    def shortage(self) -> str | None:
        """Why nothing is received, or None; it is asked again every turn, so a shortage ends by itself."""
        least = self.rules.min_free_mb
        if not least or (free := self.free_bytes()) >= least * 1_000_000:
            return None
        has = f"the disk has {free / 1e6:,.0f} MB free and min_free_mb is {least:,}"
        return f"{has}; it resumes once there is more space"
