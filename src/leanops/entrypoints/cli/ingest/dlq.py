"""Dead letters: list, show, drain, replay, discard."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from leanops.domain.errors import UnknownTopicError
from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.input import confirm
from leanops.entrypoints.cli.options import PROBLEMS, DryRun, Json, Yes, with_options
from leanops.entrypoints.cli.output import limited, note, print_json_array, print_table, say, tally, to_second
from leanops.entrypoints.cli.views.errors import SHORT_ID, ErrorId, Limit, RuleFilter, TopicFilter, show_error

if TYPE_CHECKING:
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.dlq.replay import Done, Selection

app = typer.Typer(no_args_is_help=True)
DEAD_LETTERS_SHOWN = 50
StatusFilter = Annotated[
    Literal["open", "replayed", "discarded"] | None, typer.Option("--status", help="Only with this status.")
]
Id = Annotated[
    str | None, typer.Option("--id", metavar="ERROR_ID", help="Only the dead letters whose id starts with this.")
]
Most = Annotated[int | None, typer.Option("--limit", min=1, help="At most this many, oldest first.")]
Newest = Annotated[bool, typer.Option("--newest", help="Newest first.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.01, help="At most this many events per second.")]


@dataclass(frozen=True)
class Choice:
    """Which dead letters to replay or discard, and whether to ask first."""

    topic: TopicFilter = None
    rule: RuleFilter = None
    error_id: Id = None
    limit: Most = None
    newest: Newest = False
    dry_run: DryRun = False
    yes: Yes = False
    as_json: Json = False


@app.command("list")
def list_(
    topic: TopicFilter = None,
    rule: RuleFilter = None,
    status: StatusFilter = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List dead letters, newest first: events that did not reach RAW, and why."""
    with opened() as runtime:
        from leanops.domain.failures import DEAD_LETTERS
        from leanops.ports.state import ERROR_TRACKER
        from leanops.views.errors import Wanted, list_errors, summary

        _check_topic(runtime, topic)
        wanted = Wanted(topic, rule, DEAD_LETTERS, [status.upper()] if status else None)
        errors = list_errors(runtime.sources(), wanted, limit).rows
        undrained = sum(1 for _ in runtime.platform.state.rows(ERROR_TRACKER))
    if as_json:
        print_json_array(errors)
        return
    columns = ("topic_name", "status", "attempts", "message_id")
    rows = [
        [row["error_id"][:SHORT_ID], to_second(row["detected_ts"]), *map(row.get, columns), summary(row["failures"])]
        for row in errors
    ]
    if rows:
        print_table(("dead letter", "detected", "topic", "status", "attempts", "message", "reason"), rows)
    say(limited(len(errors), "dead letter", limit))
    if undrained:
        say(f"{counted(undrained, 'dead letter')} not drained yet; serve drains them, or: leanops dlq drain")


@app.command()
def show(error_id: ErrorId, as_json: Json = False) -> None:
    """Show one dead letter and the archived event."""
    from leanops.domain.failures import DEAD_LETTERS

    show_error(error_id, DEAD_LETTERS, as_json)


@app.command()
def drain() -> None:
    """Archive the events of the dead-letter queues, and write a row for each dead letter into dlq_errors."""
    with opened() as runtime:
        from leanops.usecases.dlq.drain import archive_and_drain

        archived, drained = archive_and_drain(runtime.platform, runtime.queue, runtime.files)
    say(f"{counted(archived, 'event')} archived from the dead-letter queues")
    again = f", {drained.again:,} of them open again" if drained.again else ""
    say(f"{counted(drained.dead_letters, 'dead letter')} drained{again}; list them with: leanops dlq list")


@app.command()
@with_options
def replay(options: Choice, rate: Rate = None) -> None:
    """Send open dead letters into their topics' queues again. Each is sent once, however often this is run."""
    from leanops.usecases.dlq.replay import Pace
    from leanops.usecases.dlq.replay import replay as send

    def run(runtime: "Runtime", selection: "Selection", dry_run: bool) -> "list[Done]":
        return send(runtime.platform, runtime.queue, runtime.files, selection, dry_run=dry_run, pace=Pace(rate))

    _run("replay", options, run)


@app.command()
@with_options
def discard(options: Choice) -> None:
    """Mark open dead letters as discarded. Their rows and files are kept."""
    from leanops.usecases.dlq import replay as dead_letters

    def run(runtime: "Runtime", selection: "Selection", dry_run: bool) -> "list[Done]":
        return dead_letters.discard(runtime.platform, selection, dry_run=dry_run)

    _run("discard", options, run)


def _run(verb: str, options: Choice, run: "Callable[[Runtime, Selection, bool], list[Done]]") -> None:
    """Try it, ask, do it; the exit code is 3 if some of it could not be done."""
    from leanops.usecases.dlq.replay import Outcome, Selection

    selection = Selection(options.topic, options.rule, options.error_id, options.limit, options.newest)
    with opened() as runtime:
        _check_topic(runtime, options.topic)
        trial = run(runtime, selection, True)
        waiting = sum(dead_letter.outcome is Outcome.WAITING for dead_letter in trial)
        if options.dry_run or not waiting:
            _print(trial, options.as_json)
            return
        if not options.yes:
            note(_outcomes(trial))
        dead_letters = counted(waiting, "dead letter")
        confirm(f"{verb.capitalize()} {dead_letters}?", f"this would {verb} {dead_letters}", yes=options.yes)
        done = run(runtime, selection, False)
    _print(done, options.as_json)
    if {dead_letter.outcome for dead_letter in done} - {Outcome.REPLAYED, Outcome.DISCARDED, Outcome.CLOSED}:
        raise typer.Exit(PROBLEMS)


def _print(done: "list[Done]", as_json: bool) -> None:
    """All dead letters for programs; the first ones and a count of each outcome for people."""
    if as_json:
        print_json_array(done)
        return
    if done:
        rows = [[row.error_id[:SHORT_ID], row.topic, row.message_id, row.outcome] for row in done]
        print_table(("dead letter", "topic", "message", "outcome"), rows[:DEAD_LETTERS_SHOWN])
    more = f"; the first {DEAD_LETTERS_SHOWN} are shown, all with --json" if len(done) > DEAD_LETTERS_SHOWN else ""
    say(f"{_outcomes(done)}{more}")


def _outcomes(done: "list[Done]") -> str:
    return tally(dead_letter.outcome for dead_letter in done) or "no matching dead letter"


def _check_topic(runtime: "Runtime", topic: str | None) -> None:
    """Refuse a topic that is neither registered nor has dead letters."""
    from leanops.domain.event.names import check_topic
    from leanops.usecases.topics.registry import list_topics

    if topic is None or topic in {registered.name for registered in list_topics(runtime.platform)}:
        return
    sources = runtime.sources()
    if not sources.catalog.select(sources.databases.dlq_errors, ["error_id"], {"topic_name": check_topic(topic)}):
        raise UnknownTopicError(topic)
