"""Schema files of topics."""

from typing import Protocol

from leanops.domain.schema import Schema


class Schemas(Protocol):
    """Where `schemas/{topic}/…` is kept; a version, once activated, stays readable."""

    def active(self, topic: str) -> Schema | None:
        """The active schema, or None."""

    def version(self, topic: str, version: int) -> Schema | None:
        """The schema that was activated under this version, or None."""

    def activate(self, topic: str, schema: Schema, text: str) -> None:
        """Make this the active schema; the one before goes to the archive. Twice is the same as once."""

    def topics(self) -> dict[str, str]:
        """Topic → table_name of every active schema."""
