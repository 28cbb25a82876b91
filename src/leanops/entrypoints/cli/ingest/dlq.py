"""Dead letters: list, show, drain, replay, discard."""

import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leanops.domain.errors import UnknownTopicError
from leanops.entrypoints.cli.confirm import confirm
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import PROBLEMS, DryRun, Json, Yes
from leanops.entrypoints.cli.output import (
    counted,
    limited,
    note,
    print_json,
    print_json_array,
    print_table,
    say,
    to_second,
)
from leanops.entrypoints.cli.views.errors import (
    SHORT_ID,
    ErrorId,
    Limit,
    RuleFilter,
    TopicFilter,
    known_rule,
    print_error,
)

if TYPE_CHECKING:
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.dlq.replay import Done, Selection

app = typer.Typer(no_args_is_help=True)
DEAD_LETTERS_SHOWN = 50
SHOWN_CHARACTERS = 4_000
StatusFilter = Annotated[
    Literal["open", "replayed", "discarded"] | None, typer.Option("--status", help="Only with this status.")
]
Id = Annotated[
    str | None, typer.Option("--id", metavar="ERROR_ID", help="Only the dead letters whose id begins with this.")
]
Most = Annotated[int | None, typer.Option("--limit", min=1, help="At most this many, oldest first.")]
Newest = Annotated[bool, typer.Option("--newest", help="Newest first.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.01, help="At most this many events per second.")]


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
        wanted = Wanted(topic, known_rule(rule), DEAD_LETTERS, [status.upper()] if status else None)
        letters = list_errors(runtime.sources(), wanted, limit).rows
        undrained = sum(1 for _ in runtime.platform.state.rows(ERROR_TRACKER))
    if as_json:
        print_json_array(letters)
        return
    columns = ("topic_name", "status", "attempts", "message_id")
    rows = [
        [row["error_id"][:SHORT_ID], to_second(row["detected_ts"]), *map(row.get, columns), summary(row["failures"])]
        for row in letters
    ]
    if rows:
        print_table(("dead letter", "detected", "topic", "status", "attempts", "message", "reason"), rows)
    say(limited(len(letters), "dead letter", limit))
    if undrained:
        say(f"{counted(undrained, 'dead letter')} not drained yet; serve drains them, or: leanops dlq drain")


@app.command()
def show(error_id: ErrorId, as_json: Json = False) -> None:
    """Show one dead letter and the archived event."""
    with opened() as runtime:
        from leanops.domain.failures import DEAD_LETTERS
        from leanops.views.errors import find_error

        show_dead_letter(runtime, find_error(runtime.sources(), error_id, DEAD_LETTERS), as_json)


def show_dead_letter(runtime: "Runtime", error: dict[str, Any], as_json: bool) -> None:
    """Print the row and the archived bytes; those that are not UTF-8 as escapes."""
    body = runtime.files.get(str(error["source"]))
    text = None if body is None else body.decode("utf-8", "backslashreplace")
    note("the event is shown as it was received; it may hold personal data", style="yellow")
    if as_json:
        print_json({**error, "archived": text, "bytes": None if body is None else len(body)})
        return
    print_error(error)
    if body is None or text is None:
        say(f"the archived file {error['source']} no longer exists")
    else:
        say(f"archived, {counted(len(body), 'byte')}:")
        say(_for_people(text, error["error_id"]))


def _for_people(text: str, error_id: str) -> str:
    """The text; on a terminal only the beginning of a long one."""
    if len(text) <= SHOWN_CHARACTERS or not sys.stdout.isatty():
        return text
    hint = f"see all of it with: leanops dlq show {error_id[:SHORT_ID]} | less"
    return f"{text[:SHOWN_CHARACTERS]}\n… and {counted(len(text) - SHOWN_CHARACTERS, 'more character')}; {hint}"


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
def replay(
    topic: TopicFilter = None,
    rule: RuleFilter = None,
    error_id: Id = None,
    limit: Most = None,
    newest: Newest = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Send open dead letters into their topics' queues again. Each is sent once, however often this is run."""
    from leanops.usecases.dlq.replay import Pace, Selection
    from leanops.usecases.dlq.replay import replay as send

    selection = Selection(topic, known_rule(rule), error_id, limit, newest)
    with opened() as runtime:

        def run(is_trial: bool) -> "list[Done]":
            return send(runtime.platform, runtime.queue, runtime.files, selection, dry_run=is_trial, pace=Pace(rate))

        _run(runtime, "replay", selection, run, dry_run, yes, as_json)


@app.command()
def discard(
    topic: TopicFilter = None,
    rule: RuleFilter = None,
    error_id: Id = None,
    limit: Most = None,
    newest: Newest = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Mark open dead letters as discarded. Their rows and files are kept."""
    from leanops.usecases.dlq import replay as letters

    selection = letters.Selection(topic, known_rule(rule), error_id, limit, newest)
    with opened() as runtime:

        def run(is_trial: bool) -> "list[Done]":
            return letters.discard(runtime.platform, selection, dry_run=is_trial)

        _run(runtime, "discard", selection, run, dry_run, yes, as_json)


def _run(
    runtime: "Runtime",
    verb: str,
    selection: "Selection",
    run: "Callable[[bool], list[Done]]",
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Try it, ask, do it; what could not be done makes the exit code 3."""
    from leanops.usecases.dlq.replay import Outcome

    _check_topic(runtime, selection.topic)
    trial = run(True)
    waiting = sum(letter.outcome is Outcome.WAITING for letter in trial)
    if dry_run or not waiting:
        _print(trial, as_json)
        return
    if not yes:
        note(_outcomes(trial))
    letters = counted(waiting, "dead letter")
    confirm(f"{verb.capitalize()} {letters}?", f"this would {verb} {letters}", yes=yes)
    done = run(False)
    _print(done, as_json)
    if {letter.outcome for letter in done} - {Outcome.REPLAYED, Outcome.DISCARDED, Outcome.CLOSED}:
        raise typer.Exit(PROBLEMS)


def _print(done: "list[Done]", as_json: bool) -> None:
    """All dead letters for programs; the first ones and a count of each outcome for people."""
    if as_json:
        print_json_array(done)
        return
    if done:
        rows = [[letter.error_id[:SHORT_ID], letter.topic, letter.message_id, letter.outcome] for letter in done]
        print_table(("dead letter", "topic", "message", "outcome"), rows[:DEAD_LETTERS_SHOWN])
    more = f"; the first {DEAD_LETTERS_SHOWN} are shown, all with --json" if len(done) > DEAD_LETTERS_SHOWN else ""
    say(f"{_outcomes(done)}{more}")


def _outcomes(done: "list[Done]") -> str:
    outcomes = Counter(letter.outcome.value for letter in done)
    return ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items()) or "no matching dead letter"


def _check_topic(runtime: "Runtime", topic: str | None) -> None:
    """Refuse a topic that is neither registered nor has dead letters."""
    from leanops.domain.event.names import check_topic
    from leanops.usecases.topics.registry import list_topics

    if topic is None or topic in {registered.name for registered in list_topics(runtime.platform)}:
        return
    sources = runtime.sources()
    if not sources.catalog.select(sources.databases.dlq_errors, ["error_id"], {"topic_name": check_topic(topic)}):
        raise UnknownTopicError(topic)
