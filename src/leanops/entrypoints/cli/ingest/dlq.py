"""Dead letters: listed, shown, drained, replayed and discarded."""

import sys
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanops.domain.errors import UnknownTopicError
from leanops.entrypoints.cli.confirm import confirm
from leanops.entrypoints.cli.exits import PROBLEMS
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json, Yes
from leanops.entrypoints.cli.output import counted, note, print_json, print_json_array, print_table, say
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
_SHOWN = ("topic_name", "status", "attempts", "message_id")


class StatusName(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


StatusFilter = Annotated[StatusName | None, typer.Option("--status", help="Only with this status.")]
Id = Annotated[
    str | None, typer.Option("--id", metavar="ERROR_ID", help="Only this dead letter, or those that begin so.")
]
Most = Annotated[int | None, typer.Option("--limit", min=1, help="At most this many, oldest first.")]
Newest = Annotated[bool, typer.Option("--newest", help="Newest first.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.01, help="At most this many events a second.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@app.command("list")
def list_(
    topic: TopicFilter = None,
    rule: RuleFilter = None,
    status: StatusFilter = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List dead letters, newest first: events that never came to RAW, and why."""
    with opened() as runtime:
        from leanops.domain.failures import DEAD_LETTERS
        from leanops.ports.state import ERROR_TRACKER
        from leanops.views.errors import Wanted, list_errors, summary

        _check_topic(runtime, topic)
        wanted = Wanted(topic, known_rule(rule), DEAD_LETTERS, [status.name] if status else None)
        found = list_errors(runtime.sources(), wanted, limit).rows
        undrained = sum(1 for _ in runtime.platform.state.rows(ERROR_TRACKER))
    if as_json:
        print_json_array(found)
        return
    rows = [[*_beginning(row), summary(row["failures"])] for row in found]
    if rows:
        print_table(("dead letter", "detected", "topic", "status", "attempts", "message", "reason"), rows)
    say(f"the newest {limit:,}; more with --limit" if len(found) == limit else counted(len(found), "dead letter"))
    if undrained:
        say(f"{undrained:,} more wait to be drained; serve does it, or: leanops dlq drain")


def _beginning(row: dict[str, Any]) -> list[Any]:
    return [row["error_id"][:SHORT_ID], row["detected_ts"].replace(microsecond=0), *(row[name] for name in _SHOWN)]


@app.command()
def show(error_id: ErrorId, as_json: Json = False) -> None:
    """Show one dead letter and the bytes that were archived."""
    with opened() as runtime:
        from leanops.domain.failures import DEAD_LETTERS
        from leanops.views.errors import find_error

        show_dead_letter(runtime, find_error(runtime.sources(), error_id, DEAD_LETTERS), as_json)


def show_dead_letter(runtime: "Runtime", error: dict[str, Any], as_json: bool) -> None:
    """Print the row and the archived bytes."""
    from leanops.views.dead_letters import archived

    dead_letter = archived(runtime.files, error)
    note("the event is shown as it was received; it may hold personal data", style="yellow")
    if as_json:
        print_json(
            {
                **error,
                "archived": dead_letter.text if dead_letter else None,
                "bytes": dead_letter.bytes if dead_letter else None,
            }
        )
        return
    print_error(error)
    if dead_letter is None:
        say(f"the file {error['source']} is gone")
    else:
        say(f"archived, {dead_letter.bytes:,} bytes:")
        say(_for_people(dead_letter.text, error["error_id"]))


def _for_people(text: str, error_id: str) -> str:
    """The text; on a screen only its beginning where it is long."""
    if len(text) <= SHOWN_CHARACTERS or not sys.stdout.isatty():
        return text
    hint = f"see them with: leanops dlq show {error_id[:SHORT_ID]} | less"
    return f"{text[:SHOWN_CHARACTERS]}\n… and {len(text) - SHOWN_CHARACTERS:,} characters more; {hint}"


@app.command()
def drain() -> None:
    """Empty the dead-letter queues into the archive, and what is noted of them into dlq_errors."""
    with opened() as runtime:
        from leanops.usecases.dlq.drain import archive_and_drain

        archived, drained = archive_and_drain(runtime.platform, runtime.queue, runtime.files)
    say(f"{counted(archived, 'event')} taken out of the dead-letter queues")
    again = f", {drained.again:,} of them open again" if drained.again else ""
    say(f"{counted(drained.dead_letters, 'dead letter')} drained{again}; see them with: leanops dlq list")


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
    """Send open dead letters into their topics' queues again; each is sent once, however often this is run."""
    from leanops.usecases.dlq.replay import Pace, Selection
    from leanops.usecases.dlq.replay import replay as send

    chosen = Selection(topic, known_rule(rule), error_id, limit, newest)
    with opened() as runtime:

        def run(trying: bool) -> "list[Done]":
            return send(runtime.platform, runtime.queue, runtime.files, chosen, dry_run=trying, pace=Pace(rate))

        _run(runtime, "replay", chosen, run, dry_run, yes, as_json)


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
    """Mark open dead letters as put away for good. Their rows and files stay."""
    from leanops.usecases.dlq.replay import Selection
    from leanops.usecases.dlq.replay import discard as put_away

    chosen = Selection(topic, known_rule(rule), error_id, limit, newest)
    with opened() as runtime:

        def run(trying: bool) -> "list[Done]":
            return put_away(runtime.platform, chosen, dry_run=trying)

        _run(runtime, "discard", chosen, run, dry_run, yes, as_json)


def _run(
    runtime: "Runtime",
    verb: str,
    chosen: "Selection",
    run: "Callable[[bool], list[Done]]",
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Try it out, ask, do it, write it down."""
    from leanops.usecases.dlq.replay import Outcome

    _check_topic(runtime, chosen.topic)
    tried = run(True)
    waiting = [one for one in tried if one.outcome is Outcome.WAITING]
    if dry_run or not waiting:
        _print(tried, as_json)
        return
    if not yes:
        _print(tried, as_json=False, to_people=True)
    dead_letters = counted(len(waiting), "dead letter")
    confirm(f"{verb.capitalize()} {dead_letters}?", f"this would {verb} {dead_letters}", yes=yes)
    done = run(False)
    _print(done, as_json)
    if {one.outcome for one in done} - {Outcome.REPLAYED, Outcome.DISCARDED, Outcome.CLOSED}:
        raise typer.Exit(PROBLEMS)


def _print(done: "list[Done]", as_json: bool, *, to_people: bool = False) -> None:
    """Every dead letter for programs; for people the first ones, and how many there were of each outcome."""
    if as_json:
        print_json_array(done)
        return
    outcomes = Counter(one.outcome.value for one in done)
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items()) or "no dead letter fits"
    if to_people:
        note(said)
        return
    if done:
        rows = [
            [one.error_id[:SHORT_ID], one.topic, one.message_id, one.outcome.value] for one in done[:DEAD_LETTERS_SHOWN]
        ]
        print_table(("dead letter", "topic", "message", "outcome"), rows)
    more = f"; the first {DEAD_LETTERS_SHOWN} are shown, all with --json" if len(done) > DEAD_LETTERS_SHOWN else ""
    say(f"{said}{more}")


def _check_topic(runtime: "Runtime", topic: str | None) -> None:
    """Refuse a topic that is not registered, unless dead letters of it are there."""
    from leanops.usecases.topics.registry import list_topics
    from leanops.views.dead_letters import has_dead_letters

    if topic is None or topic in {one.name for one in list_topics(runtime.platform)}:
        return
    if not has_dead_letters(runtime.sources(), topic):
        raise UnknownTopicError(topic)
