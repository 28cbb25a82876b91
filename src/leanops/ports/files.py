"""Files: bytes under a name like `dlq/orders/2026-11-15/1f3a.json`."""

from collections.abc import Iterator
from typing import Protocol


class Files(Protocol):
    """A folder or a bucket. Raises FilesUnavailableError where it does not answer."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file whole, or not at all; one of that name is replaced."""

    def get(self, name: str) -> bytes | None:
        """The file's bytes, or None."""

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""

    def names(self, prefix: str) -> Iterator[str]:
        """Every name that begins so, in order."""
