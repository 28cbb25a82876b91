"""Topics: add, list, show, pause, resume, retry, unlock."""

from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.input import confirm
from leanops.entrypoints.cli.options import Json, Topic, Yes
from leanops.entrypoints.cli.output import (
    NO_TOPICS,
    print_json,
    print_json_array,
    print_table,
    say,
    to_second,
)
from leanops.entrypoints.cli.topics import discover

if TYPE_CHECKING:
    from leanops.usecases.platform import Platform
    from leanops.usecases.topics.registry import Topic as Registered
    from leanops.views.operations import Unfinished

app = typer.Typer(no_args_is_help=True)
SNAPSHOTS_SHOWN = 10
app.command("discover")(discover.discover)
SomeTopic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Name of the topic; or use --all.")]
All = Annotated[bool, typer.Option("--all", help="Every topic: maintenance mode.")]
AcceptCounts = Annotated[
    bool, typer.Option("--accept-counts", help="Accept a batch whose rows differ from what was counted.")
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; shown by status and to other operators.")]
NewTopics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of the topics.")]
Lease = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic, or of another lease: dlq/drain, topics/discover.")
]


@app.command()
def unlock(name: Lease, yes: Yes = False) -> None:
    """End the lease of a topic whose worker hangs. That worker can no longer commit anything."""
    with opened() as runtime:
        from leanops.usecases import leases

        platform = runtime.platform
        resource = _resource(platform, name)
        holder = leases.holder_of(platform, resource)
        if holder is None:
            say(f"{name} is not locked; nothing changed")
            return
        lease = f"{name}: {holder.sentence()}"
        confirm(f"{lease}. Unlock it?", lease, yes=yes)
        ended = leases.unlock(platform, resource)
    say(f"{name} is unlocked: {ended.sentence()}" if ended else f"{name} has been released meanwhile")


def _resource(platform: "Platform", name: str) -> str:
    """The lease of this name: a topic's, or one named as it is stored; no topic has a slash in its name."""
    from leanops.usecases.dlq import drain
    from leanops.usecases.topics import discover
    from leanops.usecases.topics.registry import find_topic

    return name if name in (drain.LEASE, discover.LEASE) else f"topic/{find_topic(platform, name).name}"


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List every topic with its status and schema version."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import list_topics
        from leanops.views.operations import unfinished

        topics, operations = list_topics(runtime.platform), unfinished(runtime.sources())
    if as_json:
        print_json_array(_as_json(topic, operations.get(topic.name)) for topic in topics)
    elif topics:
        rows = [_listed(topic, operations.get(topic.name)) for topic in topics]
        print_table(("topic", "status", "schema", "reason"), rows)
    else:
        say(NO_TOPICS)


@app.command()
def show(topic: Topic, as_json: Json = False) -> None:
    """Show one topic: its status, its tables, its balance, and the snapshots a rollback can restore."""
    with opened() as runtime:
        from leanops.entrypoints.cli.views import status
        from leanops.views.status import status as status_of
        from leanops.views.topics import states_of, tables_of

        sources = runtime.sources()
        statuses = status_of(sources, [topic])
        tables, states = tables_of(sources, topic), states_of(sources, topic, SNAPSHOTS_SHOWN)
    if as_json:
        print_json({**statuses[0].as_json(), "tables": tables, "snapshots": states})
        return
    status.show(statuses)
    say("")
    rows = [
        [table.layer, table.name, *((table.payload_columns, table.snapshots) if table.exists else ("", "not yet"))]
        for table in tables
    ]
    print_table(("layer", "table", "payload columns", "snapshots"), rows)
    if states:
        say("")
        rows = [[s.snapshot, to_second(s.at), s.kind, s.batch, s.rows, s.place] for s in states]
        print_table(("snapshot of Standardized", "since", "kind", "batch", "rows", "place"), rows, grouped=True)
    if len(states) > 1:
        say(f"restore one of them with: leanops rollback {topic} --to SNAPSHOT")


@app.command()
def add(topics: NewTopics) -> None:
    """Register topics and create their RAW tables. Topics that are registered already are left unchanged."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import register_topics

        new, databases = register_topics(runtime.platform, topics), runtime.platform.rules.databases
    for topic in dict.fromkeys(topics):
        added = f"{topic} added; its events land in {databases.raw_table(topic)}"
        say(added if topic in new else f"{topic} is already registered")


@app.command()
def pause(topic: SomeTopic = None, every: All = False, reason: Reason = None) -> None:
    """Stop processing a topic, or all: no cycle, no rebuild, no rollback. Events keep landing in RAW."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import pause_topics

        names = _chosen(runtime.platform, topic, every)
        pause_topics(runtime.platform, names, reason)
    say(f"{_named(names)} paused; events keep landing in RAW")


@app.command()
def resume(topic: SomeTopic = None, every: All = False, reason: Reason = None) -> None:
    """Process a topic again, or all, from where it stopped."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import resume_topics

        names = _chosen(runtime.platform, topic, every)
        resume_topics(runtime.platform, names, reason)
    say(f"{_named(names)} resumed; the next cycle continues where processing stopped")


@app.command()
def retry(topic: Topic, accept_counts: AcceptCounts = False) -> None:
    """Let the next cycle retry a failed or parked topic."""
    with opened() as runtime:
        from leanops.usecases.cycle.retry import retry_topic

        retry_topic(runtime.platform, topic, accept_counts=accept_counts)
    say(f"the next cycle retries {topic}")


def _chosen(platform: "Platform", topic: str | None, every: bool) -> list[str]:
    from leanops.usecases.topics.registry import find_topic, list_topics

    if (topic is None) != every:
        raise UsageError("name one topic, or use --all")
    return [find_topic(platform, topic).name] if topic else [registered.name for registered in list_topics(platform)]


def _named(names: list[str]) -> str:
    return names[0] if len(names) == 1 else counted(len(names), "topic")


def _listed(topic: "Registered", operation: "Unfinished | None") -> list[object]:
    state, reason = (operation.state, operation.sentence) if operation else (topic.status, topic.reason)
    return [topic.name, state, topic.schema_version or "none", reason]


def _as_json(topic: "Registered", operation: "Unfinished | None") -> dict[str, object]:
    return {
        "topic": topic.name,
        "status": topic.status,
        "processing_enabled": topic.processing_enabled,
        "schema_version": topic.schema_version,
        "reason": topic.reason,
        "operation": operation,
    }
