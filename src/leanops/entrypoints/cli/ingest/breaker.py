"""Circuit breakers: show, open, close."""

from typing import Annotated

import typer

from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json, Topic
from leanops.entrypoints.cli.output import NO_TOPICS, print_json_array, print_table, say, to_second

app = typer.Typer(no_args_is_help=True)
Reason = Annotated[str | None, typer.Option("--reason", help="Why; shown to other operators.")]


@app.command()
def show(as_json: Json = False) -> None:
    """Show the circuit breaker of every topic, open ones first."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import list_topics
        from leanops.views.background import breakers

        statuses = breakers(runtime.platform.state, [topic.name for topic in list_topics(runtime.platform)])
    if as_json:
        print_json_array(statuses)
    elif statuses:
        rows = [[b.topic, b.state, to_second(b.since), b.failed, b.succeeded, b.reason] for b in statuses]
        print_table(("topic", "state", "since", "failed", "succeeded", "reason"), rows, grouped=True)
    else:
        say(NO_TOPICS)


@app.command("open")
def open_(topic: Topic, reason: Reason = None) -> None:
    """Stop reading a topic's queue until the breaker is closed by hand. Its events wait in the queue."""
    with opened() as runtime:
        from leanops.runtimes.background import breakers_of
        from leanops.usecases.ingest.breakers import open_breaker

        open_breaker(runtime.platform, breakers_of(runtime), topic, reason)
    say(f"{topic}: its queue is no longer read; read it again with: leanops breaker close {topic}")


@app.command()
def close(topic: Topic) -> None:
    """Read a topic's queue again, and forget its failures."""
    with opened() as runtime:
        from leanops.runtimes.background import breakers_of
        from leanops.usecases.ingest.breakers import close_breaker

        close_breaker(runtime.platform, breakers_of(runtime), topic)
    say(f"{topic}: its queue is read again")
