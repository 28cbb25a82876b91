"""Processes: whether another one still runs, so that what it held need not be waited for."""

from dataclasses import dataclass
from typing import Protocol


class Processes(Protocol):
    """The processes of this host, each known by a mark that no other process has, here or elsewhere."""

    @property
    def mark(self) -> str:
        """The mark of this process; empty where the host offers none."""

    def has_ended(self, mark: str) -> bool:
        """Whether the process of this mark has certainly ended. In doubt, and on another host, it has not."""


@dataclass(frozen=True)
class UnknownProcesses:
    """Where nothing is known of processes, none is ever known to have ended."""

    mark: str = ""

    def has_ended(self, mark: str) -> bool:
        """Never certain."""
        return False
