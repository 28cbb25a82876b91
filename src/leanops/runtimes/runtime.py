"""The runtimes, and what an entry point may use of one."""

import os
from pkgutil import resolve_name
from typing import Protocol

from leanops.domain.errors import UsageError
from leanops.ports.delivery import Buffer
from leanops.ports.files import Files
from leanops.ports.queue import Queue
from leanops.settings import RUNTIME, Settings
from leanops.usecases.ingest.room import Room
from leanops.usecases.platform import SYSTEM, Actor, Platform
from leanops.views.background import Background
from leanops.views.sources import Sources

RUNTIMES = {"embedded": "leanops.runtimes.embedded:open_embedded"}
"""Name → module:function that opens it for an actor; a runtime is imported when it is chosen."""


class Runtime(Protocol):
    """Adapters and use cases put together; whoever opens one closes it."""

    @property
    def settings(self) -> Settings:
        """The settings of its owner."""

    @property
    def platform(self) -> Platform:
        """What use cases work with."""

    @property
    def queue(self) -> Queue:
        """One queue for each topic."""

    @property
    def buffer(self) -> Buffer:
        """What waits to be delivered to RAW."""

    @property
    def files(self) -> Files:
        """Claim checks and dead letters."""

    @property
    def room(self) -> Room:
        """Whether there is room for more."""

    @property
    def name(self) -> str:
        """Its name for people: the folder of a home, the account of a cloud."""

    def sources(self) -> Sources:
        """What the views read from."""

    def background(self) -> Background:
        """What is on its way to RAW, and who brings it there."""

    def engine_ended(self, failure: Exception) -> str | None:
        """If a failure is the end of the engine: what may have ended it, and what to do."""

    def close(self) -> None:
        """Release everything it holds."""


def open_runtime(actor: Actor = SYSTEM) -> Runtime:
    """The runtime that LEANOPS_RUNTIME names; embedded if it names none."""
    name = os.environ.get(RUNTIME) or "embedded"
    if name not in RUNTIMES:
        raise UsageError(f"{RUNTIME}={name} is not a runtime; choose one of: {', '.join(RUNTIMES)}")
    runtime: Runtime = resolve_name(RUNTIMES[name])(actor)
    return runtime
