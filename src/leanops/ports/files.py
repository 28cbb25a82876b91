"""Files: bytes under a name like `dlq/orders/2026-11-15/1f3a.json`."""

import re
from collections.abc import Iterator
from typing import Protocol

from leanops.domain.errors import PermanentError

CLAIMS = "claims/"
"""Where bytes too large for a queue are kept."""
ARCHIVE = "dlq/"
"""Where dead letters are kept."""
LONGEST_NAME = 900
LONGEST_PART = 255
_REFUSED = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def checked_name(name: str) -> str:
    """The name itself if every file store can hold it, and inside itself; raises PermanentError otherwise."""
    parts = name.split("/")
    if not _REFUSED.search(name) and not {"", ".", ".."} & set(parts):
        sizes = [len(part.encode()) for part in parts]
        if max(sizes) <= LONGEST_PART and sum(sizes) + len(parts) <= LONGEST_NAME:
            return name
    raise PermanentError(f"{name[:80]!r} is not a valid file name; write it like dlq/orders/1f3a.json")


class Files(Protocol):
    """A folder or a bucket.

    Raises FilesUnavailableError where it does not answer, FileRefusedError where only this one name cannot be used.
    """

    def put(self, name: str, data: bytes) -> None:
        """Write a file whole, or not at all; one of that name is replaced."""

    def replace(self, name: str, before: bytes | None, data: bytes) -> bool:
        """Write a file whole where it still holds what it did (None: where there is none); whether it was written."""

    def get(self, name: str) -> bytes | None:
        """The file's bytes, or None."""

    def delete(self, name: str) -> None:
        """Remove a file; a missing one is not an error."""

    def delete_same(self, name: str, data: bytes) -> None:
        """Remove a file that holds these bytes; one that was put there meanwhile stays."""

    def make_folder(self, name: str) -> None:
        """Let a folder be there before any file is in it; nothing to do where names have no folders."""

    def names(self, prefix: str) -> Iterator[str]:
        """Every name with this prefix, in order."""

    def place(self, name: str) -> str:
        """Where a person finds the file."""


class Objects(Protocol):
    """A bucket. Raises FilesUnavailableError where it does not answer."""

    def part(self, key: str, start: int, size: int) -> bytes | None:
        """Up to `size` bytes from `start` on; None where there is no such object."""
