"""Messages of Pub/Sub into the queues of this home, or of AWS, until stopped."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.domain.event.shards import Shard, parse_shard
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Project, required

if TYPE_CHECKING:
    from leanops.runtimes.bridge import FarSide

Subscriptions = Annotated[
    list[str] | None,
    typer.Option(
        "--subscription",
        metavar="ID[=TOPIC]",
        help="Id of a subscription, and its topic if that has another name; repeatable. If left out: those of all "
        "topics, looked up every minute.",
    ),
]
ShardOf = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Read only the share of bridge I of N, counting from 0; host/N takes I from the host name.",
    ),
]
Host = Annotated[str, typer.Option("--host", help="Address for /healthz, /readyz and /metrics.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port for them; 0 picks a free one.")]


def bridge(
    project: Project = None,
    subscriptions: Subscriptions = None,
    shard: ShardOf = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
) -> None:
    """Bring messages from Pub/Sub subscriptions into the queues, and acknowledge those that are safe there.

    The queues are those of this home; if LEANOPS_AWS_BUCKET is set, they are in SQS and no home is needed.
    """
    part = parse_shard(shard, socket.gethostname()) if shard else Shard()
    project = required(project)
    with _far_side() as side:
        from leanops.entrypoints.bridge.serve import serve
        from leanops.runtimes.bridge import subscriptions_of
        from leanops.usecases.ingest.known_topics import topic_names

        def subscribed() -> dict[str, str]:
            topics = subscriptions_of(side, project, subscriptions or [])
            return {subscription: topics[subscription] for subscription in part.of(topics)}

        if not subscriptions and not side.settings.aws.bucket and not topic_names(side.state):
            raise UsageError("no subscriptions; add a topic with: leanops topics add TOPIC")
        serve(side, subscribed(), host, port, look=None if subscriptions else subscribed)


@contextmanager
def _far_side() -> Iterator["FarSide"]:
    """AWS if the environment names its bucket, else the home."""
    from leanops.runtimes.bridge import at_home, on_aws
    from leanops.settings import load_settings

    settings = load_settings(None)
    if settings.aws.bucket:
        yield on_aws(settings)
        return
    with opened() as runtime:
        yield at_home(runtime)
