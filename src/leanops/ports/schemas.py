"""Schema files of topics: the active one, every earlier one, those that wait, and the last that was refused."""

import re
from dataclasses import dataclass
from typing import Protocol

from leanops.domain.schema.model import Schema

_PENDING = re.compile(r"([^/]+)/pending/([^./][^/]*\.json)")


@dataclass(frozen=True)
class Pending:
    """A file somebody put there to become a topic's schema."""

    topic: str
    name: str


def pending_at(place: str) -> Pending | None:
    """The file at a place below `schemas/` if it waits to become active; drafts do not."""
    match = _PENDING.fullmatch(place)
    return Pending(match[1], match[2]) if match and not match[2].endswith(".draft.json") else None


class Schemas(Protocol):
    """Where `schemas/{topic}/active|archive|pending|failed/` is kept; a version, once kept, stays readable."""

    def active(self, topic: str) -> Schema | None:
        """The active schema, or None."""

    def version(self, topic: str, version: int) -> Schema | None:
        """The schema that was kept under this version, or None."""

    def text(self, topic: str, version: int) -> str | None:
        """The file of a version as it was kept, or None."""

    def versions(self, topic: str) -> list[int]:
        """Every version that can be read, in order."""

    def keep(self, topic: str, version: int, text: str) -> None:
        """Put a version into the archive, where a batch that was started under it can always find it.

        A version is never replaced: raises CommitRefusedError where the archive has another text of that number.
        """

    def activate(self, topic: str, version: int) -> None:
        """Make a version of the archive the active one, in one write; twice is once. The archive keeps the other.

        Raises CommitRefusedError where a newer one is active, or becomes so meanwhile.
        """

    def topics(self) -> dict[str, str]:
        """Topic → table_name of every active schema."""

    def make_place(self, topic: str) -> None:
        """Make the place where a topic's files wait, so that people find it."""

    def pending(self) -> list[Pending]:
        """The files that wait to become active; drafts do not."""

    def read_pending(self, topic: str, name: str) -> bytes | None:
        """A file that waits, or None."""

    def withdraw(self, topic: str, name: str, data: bytes) -> None:
        """Remove a file that waits, unless it is no longer the one that was read."""

    def fail(self, topic: str, name: str, data: bytes, report: str) -> None:
        """Put a file that waits into failed/ with its report; a crash on the way is repeated to the same end."""

    def failed(self, topic: str) -> str | None:
        """The report of the last file that was refused, or None."""

    def clear_failed(self, topic: str) -> None:
        """Remove the refused files and their reports."""

    def draft(self, topic: str, text: str, *, replace: bool = False) -> str:
        """Write a file that waits for a person, not for us; its name. UsageError where there is another draft."""

    def place(self, topic: str, name: str) -> str:
        """Where a person finds a file that waits."""
