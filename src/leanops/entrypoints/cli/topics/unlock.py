"""A lease that somebody holds, ended by hand."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.home import actor, opened
from leanops.entrypoints.cli.options import Yes
from leanops.entrypoints.cli.output import say

if TYPE_CHECKING:
    from leanops.domain.leases import Held
    from leanops.usecases.platform import Platform

Name = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic, or of another lease: dlq/drain, topics/discover.")
]


def unlock(name: Name, yes: Yes = False) -> None:
    """End the lease of a topic whose worker hangs. Whatever that worker has not committed, it no longer can."""
    with opened() as runtime:
        from leanops.usecases.audit import record_action
        from leanops.usecases.leases import holder_of
        from leanops.usecases.leases import unlock as end

        platform = runtime.platform
        resource = _resource(platform, name)
        found = holder_of(platform, resource)
        if found is None:
            say(f"{name} is not locked; nothing changed")
            return
        if not yes:
            _confirm(f"{name}: {_held(found)}")
        ended = end(platform, resource)
        if ended:
            record_action(platform, actor(), "topics unlock", [name], {"held": _held(ended)})
    say(f"{name} is unlocked: {_held(ended)}" if ended else f"{name} was released meanwhile")


def _resource(platform: "Platform", name: str) -> str:
    """The lease of this name: a topic's, or one that is named as it is stored; no topic has a slash in its name."""
    from leanops.usecases.dlq import drain
    from leanops.usecases.topics import discover
    from leanops.usecases.topics.registry import find_topic

    if name in (drain.LEASE, discover.LEASE):
        return name
    return f"topic/{find_topic(platform, name).name}"


def _held(found: "Held") -> str:
    from leanops.ports.clock import moment

    since, until = moment(found.renewed_ms), moment(found.until_ms)
    return (
        f"held by {found.owner}, taken or renewed at {since:%Y-%m-%d %H:%M:%S} UTC, until {until:%Y-%m-%d %H:%M:%S} UTC"
    )


def _confirm(held: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{held}; confirm with --yes")
    typer.confirm(f"{held}. Unlock it?", err=True, abort=True)
