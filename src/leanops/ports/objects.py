"""Objects that others wrote, under names they chose."""

from typing import Protocol


class Objects(Protocol):
    """A bucket. Raises FilesUnavailableError where it does not answer."""

    def part(self, key: str, start: int, size: int) -> bytes | None:
        """So many bytes from here, fewer at the end; None where there is no such object."""
