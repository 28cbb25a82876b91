"""A lease that somebody holds, ended by hand."""

from typing import TYPE_CHECKING, Annotated

import typer

from leanops.entrypoints.cli.confirm import confirm
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Yes
from leanops.entrypoints.cli.output import say

if TYPE_CHECKING:
    from leanops.usecases.platform import Platform

Name = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic, or of another lease: dlq/drain, topics/discover.")
]


def unlock(name: Name, yes: Yes = False) -> None:
    """End the lease of a topic whose worker hangs. Whatever that worker has not committed, it no longer can."""
    with opened() as runtime:
        from leanops.usecases.leases import holder_of
        from leanops.usecases.leases import unlock as end

        platform = runtime.platform
        resource = _resource(platform, name)
        found = holder_of(platform, resource)
        if found is None:
            say(f"{name} is not locked; nothing changed")
            return
        held = f"{name}: {found.sentence()}"
        confirm(f"{held}. Unlock it?", held, yes=yes)
        ended = end(platform, resource)
    say(f"{name} is unlocked: {ended.sentence()}" if ended else f"{name} was released meanwhile")


def _resource(platform: "Platform", name: str) -> str:
    """The lease of this name: a topic's, or one that is named as it is stored; no topic has a slash in its name."""
    from leanops.usecases.dlq import drain
    from leanops.usecases.topics import discover
    from leanops.usecases.topics.registry import find_topic

    if name in (drain.LEASE, discover.LEASE):
        return name
    return f"topic/{find_topic(platform, name).name}"
