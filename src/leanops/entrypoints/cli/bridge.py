"""Pub/Sub into the queues of this home, for as long as it runs."""

import socket
from typing import Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.domain.shards import Shard, parse_shard
from leanops.entrypoints.cli.homes import opened

Project = Annotated[
    str | None,
    typer.Option("--project", envvar="GOOGLE_CLOUD_PROJECT", help="Google project; or set GOOGLE_CLOUD_PROJECT."),
]
Subscriptions = Annotated[
    list[str] | None,
    typer.Option(
        "--subscription",
        metavar="ID[=TOPIC]",
        help="Id of a subscription, and its topic where they differ; repeatable. Those of all topics if left out.",
    ),
]
ShardOf = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Read only the share of bridge I of N, counted from 0; host/N takes I from the host's name.",
    ),
]
Host = Annotated[str, typer.Option("--host", help="Address for /healthz, /readyz and /metrics.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port for them; 0 takes a free one.")]


def bridge(
    project: Project = None,
    subscriptions: Subscriptions = None,
    shard: ShardOf = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
) -> None:
    """Bring the messages of Pub/Sub subscriptions into the queues, and acknowledge what is safe there."""
    part = parse_shard(shard, socket.gethostname()) if shard else Shard()
    if not project:
        raise UsageError("no Google project; say --project PROJECT, or set GOOGLE_CLOUD_PROJECT")
    with opened() as runtime:
        from leanops.runtimes.bridge import subscriptions_of

        found = subscriptions_of(runtime, project, subscriptions or [])
        mine = {name: found[name] for name in part.of(found)}
        from leanops.entrypoints.bridge.serve import serve

        serve(runtime, mine, host, port)
