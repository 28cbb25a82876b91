"""Jobs: work that is too long for the process that finds it."""

from collections.abc import Mapping
from typing import Protocol


class Jobs(Protocol):
    """Where jobs run. Raises JobsUnavailableError where none can be started right now."""

    def start(self, name: str, arguments: Mapping[str, str]) -> str:
        """Start a job and do not wait for it; the id of its run."""
