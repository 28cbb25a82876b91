"""Tables made anew, and tables brought back to an earlier moment."""

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.homes import actor, opened
from leanops.entrypoints.cli.options import Json, Topic, Yes
from leanops.entrypoints.cli.output import counted, note, print_json, say
from leanops.entrypoints.cli.progress import rebuilding

if TYPE_CHECKING:
    from leanops.runtimes.embedded import Embedded
    from leanops.usecases.comparison import Comparison
    from leanops.usecases.rollback import Rollback

Curated = Annotated[bool, typer.Option("--curated", help="Only Curated, from Standardized as it is.")]
Missing = Annotated[bool, typer.Option("--accept-missing", help="Go on though keys of the live Curated are missing.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what was begun and not finished.")]
Cancel = Annotated[bool, typer.Option("--cancel", help="Undo what was begun, as long as no table was replaced.")]
To = Annotated[str, typer.Option("--to", metavar="SNAPSHOT|TIME", help="A snapshot of Standardized, or a UTC time.")]


def rebuild(
    topic: Topic,
    curated: Curated = False,
    accept_missing: Missing = False,
    resume: Resume = False,
    cancel: Cancel = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make a topic's tables anew from RAW while readers keep the live ones; then swap them. Asks first."""
    if resume and cancel:
        raise UsageError("--resume goes on and --cancel undoes; choose one")
    with opened() as runtime:
        if cancel:
            _cancel(runtime, topic)
            return
        if not resume:
            _confirm(f"Rebuild {topic} from {'Standardized' if curated else 'RAW'}?", "rebuilding replaces tables", yes)
        started = time.monotonic()
        found = _rebuilt(runtime, topic, curated=curated, accept_missing=accept_missing, resume=resume)
        _audit(runtime, "rebuild", topic, found.as_json() if found else {})
    if as_json:
        print_json({"topic": topic, **(found.as_json() if found else {})})
        return
    say(f"{topic}: {comparison_line(found)} in {time.monotonic() - started:.1f} s")


def comparison_line(found: "Comparison | None") -> str:
    """What the new Curated changed for readers."""
    if found is None:
        return "what was begun is finished"
    same = (
        "every key at the version it had"
        if found.checksum_before == found.checksum_after
        else "keys or versions differ"
    )
    left = f"; {counted(found.failing + found.lost, 'key')} left it" if found.failing + found.lost else ""
    return f"Curated rebuilt, {found.rows_before:,} rows before and {found.rows_after:,} after, {same}{left}"


def _rebuilt(
    runtime: "Embedded", topic: str, *, curated: bool, accept_missing: bool, resume: bool
) -> "Comparison | None":
    from leanops.domain.operations import Accept, Scope
    from leanops.usecases import carry_out
    from leanops.usecases.rebuild import rebuild_topic

    with rebuilding(topic) as progress:
        if resume:
            return carry_out.resume(runtime.platform, topic, accept_missing=accept_missing, progress=progress)
        return rebuild_topic(
            runtime.platform,
            topic,
            actor().name,
            scope=Scope.CURATED if curated else Scope.BOTH,
            accept=Accept.ALL if accept_missing else Accept.NONE,
            progress=progress,
        )


def _cancel(runtime: "Embedded", topic: str) -> None:
    from leanops.usecases.carry_out import cancel

    operation = cancel(runtime.platform, topic)
    _audit(runtime, "cancel", topic, {"work": operation.work.value})
    say(f"{topic}: its {operation.work.value} is undone; the tables are as they were")


def rollback(topic: Topic, to: To, yes: Yes = False, as_json: Json = False) -> None:
    """Bring a topic's tables back to a snapshot or a time. Shows what changes and asks; the topic stays paused."""
    with opened() as runtime:
        from leanops.usecases.rollback import plan_rollback, roll_back_topic

        plan = plan_rollback(runtime.platform, topic, **_target(to))
        if not as_json:
            for line in _lines(plan):
                note(f"  {line}")
        if plan.changes_nothing:
            say(f"{topic}: is there already; nothing changed")
            return
        if not yes and not sys.stdin.isatty():
            if as_json:
                print_json({**plan.as_json(), "done": False})
            else:
                say(f"nothing is done yet; do it with: leanops rollback {topic} --to {to} --yes")
            return
        _confirm(f"Roll {topic} back?", "rolling back changes tables", yes)
        with rebuilding(topic) as progress:
            done = roll_back_topic(runtime.platform, plan, actor().name, progress)
        _audit(runtime, "rollback", topic, done.as_json())
    if as_json:
        print_json({**done.as_json(), "done": True})
        return
    say(f"{topic}: rolled back to snapshot {done.snapshot}, {done.rows_then:,} rows in Standardized; it stays paused")
    say(f"to redo what came after: leanops topics resume {topic}")


def _lines(plan: "Rollback") -> list[str]:
    curated = (
        f"goes to its snapshot {plan.curated_snapshot}"
        if plan.curated_snapshot is not None
        else "is made anew from Standardized"
    )
    undone = f"undoes {len(plan.batches)} batches" if plan.batches else "undoes a rebuild"
    return [
        f"Standardized goes to snapshot {plan.snapshot}: {plan.rows_now:,} rows become {plan.rows_then:,}",
        f"Curated {curated}",
        f"{undone}; once resumed, {plan.read_again:,} RAW rows are read again",
    ]


def _target(to: str) -> dict[str, int]:
    if to.isdigit():
        return {"snapshot": int(to)}
    try:
        moment = datetime.fromisoformat(to)
    except ValueError:
        raise UsageError(f"{to!r} is no snapshot id and no time; write it like 2026-11-15T08:00:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {"at_ms": int(moment.timestamp() * 1000)}


def _confirm(question: str, what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what}; confirm with --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def _audit(runtime: "Embedded", action: str, topic: str, details: dict[str, object]) -> None:
    from leanops.usecases.audit import record_action

    record_action(runtime.platform, actor(), action, [topic], details)
