"""Circuit breakers: shown, opened and closed by hand."""

from typing import Annotated

import typer

from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json, Topic
from leanops.entrypoints.cli.output import print_json_array, print_table, say

app = typer.Typer(no_args_is_help=True)
Reason = Annotated[str | None, typer.Option("--reason", help="Why; shown to the next operator.")]


@app.command()
def show(as_json: Json = False) -> None:
    """Show every topic's breaker, stopped ones first."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import list_topics
        from leanops.views.breakers import breakers

        found = breakers(runtime.platform.state, [topic.name for topic in list_topics(runtime.platform)])
    if as_json:
        print_json_array(found)
    elif found:
        columns = ("topic", "state", "since", "failed", "succeeded", "reason")
        rows = [
            [
                one.topic,
                one.state.value,
                one.since and one.since.replace(microsecond=0),
                one.failed,
                one.succeeded,
                one.reason,
            ]
            for one in found
        ]
        print_table(columns, rows, grouped=True)
    else:
        say("no topics yet; add one with: leanops topics add TOPIC")


@app.command("open")
def open_(topic: Topic, reason: Reason = None) -> None:
    """Stop consuming a topic's queue until it is closed by hand. Its events wait in the queue."""
    with opened() as runtime:
        from leanops.runtimes.background import breakers_of
        from leanops.usecases.ingest.breakers import open_breaker

        open_breaker(runtime.platform, breakers_of(runtime), topic, reason)
    say(f"{topic} is stopped; its events wait in its queue until: leanops breaker close {topic}")


@app.command()
def close(topic: Topic) -> None:
    """Consume a topic's queue again, and forget its failures."""
    with opened() as runtime:
        from leanops.runtimes.background import breakers_of
        from leanops.usecases.ingest.breakers import close_breaker

        close_breaker(runtime.platform, breakers_of(runtime), topic)
    say(f"{topic} is consumed again")
