"""Topics: added, listed, paused, resumed, retried."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json, Topic
from leanops.entrypoints.cli.output import counted, print_json, print_json_array, print_table, say
from leanops.entrypoints.cli.topics import discover, unlock

if TYPE_CHECKING:
    from leanops.usecases.platform import Platform
    from leanops.usecases.topics.registry import Topic as Registered
    from leanops.views.operations import Unfinished
    from leanops.views.topics import TableState

app = typer.Typer(no_args_is_help=True)
SNAPSHOTS_SHOWN = 10
app.command("discover")(discover.discover)
app.command("unlock")(unlock.unlock)
SomeTopic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Name of the topic; or use --all.")]
All = Annotated[bool, typer.Option("--all", help="Every topic: maintenance mode.")]
AcceptCounts = Annotated[
    bool, typer.Option("--accept-counts", help="Take a batch as it is that has other rows than were counted.")
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; shown by status and to the next operator.")]
NewTopics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of the topics.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List every topic with its status and schema version."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import list_topics
        from leanops.views.operations import unfinished

        found, operations = list_topics(runtime.platform), unfinished(runtime.sources())
    if as_json:
        print_json_array(_as_json(topic, operations.get(topic.name)) for topic in found)
    elif found:
        rows = [_listed(topic, operations.get(topic.name)) for topic in found]
        print_table(("topic", "status", "schema", "reason"), rows)
    else:
        say("no topics yet; add one with: leanops topics add TOPIC")


@app.command()
def show(topic: Topic, as_json: Json = False) -> None:
    """Show one topic: its status, its tables, its balance, and the snapshots a rollback can bring back."""
    with opened() as runtime:
        from leanops.entrypoints.cli.views import status
        from leanops.views.status import status as status_of
        from leanops.views.topics import states_of, tables_of

        sources = runtime.sources()
        found = status_of(sources, [topic])
        tables, states = tables_of(sources, topic), states_of(sources, topic, SNAPSHOTS_SHOWN)
    if as_json:
        print_json({**found[0].as_json(), "tables": tables, "snapshots": states})
        return
    status.show(found)
    say("")
    rows = [
        [one.layer, one.name, one.payload_columns, one.snapshots]
        if one.exists
        else [one.layer, one.name, "", "not yet"]
        for one in tables
    ]
    print_table(("layer", "table", "payload columns", "snapshots"), rows)
    if states:
        _show_states(topic, states)


def _show_states(topic: str, states: "Sequence[TableState]") -> None:
    say("")
    rows = [
        [one.snapshot, one.at.replace(microsecond=0) if one.at else None, one.kind, one.batch, one.rows, one.place]
        for one in states
    ]
    print_table(("snapshot of Standardized", "since", "kind", "batch", "rows", "place"), rows, grouped=True)
    if len(states) > 1:
        say(f"back to one of them: leanops rollback {topic} --to SNAPSHOT")


@app.command()
def add(topics: NewTopics) -> None:
    """Register topics and make their RAW tables. Adding one again changes nothing."""
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
    say(f"{_these(names)} paused; events keep landing in RAW")


@app.command()
def resume(topic: SomeTopic = None, every: All = False, reason: Reason = None) -> None:
    """Process a topic again, or all, from where it stopped."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import resume_topics

        names = _chosen(runtime.platform, topic, every)
        resume_topics(runtime.platform, names, reason)
    say(f"{_these(names)} resumed; the next cycle goes on where it stopped")


@app.command()
def retry(topic: Topic, accept_counts: AcceptCounts = False) -> None:
    """Let the next cycle try a failed or parked topic again."""
    with opened() as runtime:
        from leanops.usecases.cycle.retry import retry_topic

        retry_topic(runtime.platform, topic, accept_counts=accept_counts)
    say(f"{topic} will be tried again by the next cycle")


def _chosen(platform: "Platform", topic: str | None, every: bool) -> list[str]:
    from leanops.usecases.topics.registry import find_topic, list_topics

    if (topic is None) != every:
        raise UsageError("name one topic, or say --all")
    return [find_topic(platform, topic).name] if topic else [one.name for one in list_topics(platform)]


def _these(names: list[str]) -> str:
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
