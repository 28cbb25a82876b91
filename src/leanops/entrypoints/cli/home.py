"""Homes: created by `init`, opened by every other command."""

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import EngineUnavailableError, LeanOpsError, UsageError
from leanops.entrypoints.cli.output import note, say

if TYPE_CHECKING:
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.platform import Actor

Folder = Annotated[
    Path | None, typer.Argument(metavar="PATH", help="Folder that gets the home; the current one if left out.")
]


def init(path: Folder = None) -> None:
    """Create a home: .leanops in the current folder or PATH, or LEANOPS_HOME. An existing home is left unchanged."""
    from leanops.runtimes.embedded import HOME, create_home
    from leanops.settings import FILE

    chosen = os.environ.get("LEANOPS_HOME")
    home = Path(chosen).expanduser() if chosen and path is None else (path or Path()) / HOME
    existed = (home / FILE).exists()
    try:
        create_home(home.resolve())
    except OSError as failure:
        raise UsageError(f"{home} cannot be created ({failure.strerror}); choose another folder") from None
    if existed:
        say(f"{home.resolve()} already exists; nothing changed")
    else:
        say(f"Created {home.resolve()}\nnext: leanops topics add TOPIC")


@contextmanager
def opened(topic: str | None = None) -> Iterator["Runtime"]:
    """The chosen runtime, open for one command; raises UnknownTopicError if it has no such topic."""
    from leanops.runtimes.runtime import open_runtime
    from leanops.usecases.topics.registry import find_topic

    runtime = open_runtime(_actor())
    try:
        if topic is not None:
            find_topic(runtime.platform, topic)
        yield runtime
    except Exception as failure:
        explanation = None if isinstance(failure, LeanOpsError) else runtime.engine_ended(failure)
        if explanation:
            raise EngineUnavailableError(explanation) from failure
        raise
    finally:
        runtime.close()


def note_wait(runtime: "Runtime", topic: str) -> None:
    """Note that this command waits, if another worker holds the topic."""
    from leanops.views.operations import worker_of

    worker = worker_of(runtime.sources(), topic)
    if worker:
        note(f"{topic}: {worker} is working on it; waiting up to {runtime.settings.operations.wait_s} s")


def _actor() -> "Actor":
    from leanops.usecases.platform import Actor

    try:
        return Actor(getpass.getuser())
    except (KeyError, OSError):  # a container may run under a user id that has no name
        return Actor(f"uid {os.getuid()}")
