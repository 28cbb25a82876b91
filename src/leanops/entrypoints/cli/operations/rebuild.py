"""Tables made anew, and tables brought back to an earlier moment."""

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.confirm import confirm
from leanops.entrypoints.cli.home import opened, tell_wait
from leanops.entrypoints.cli.options import AcceptMissing, Json, Topic, Yes, accepted
from leanops.entrypoints.cli.output import counted, note, print_json, say
from leanops.entrypoints.cli.progress import rebuilding

if TYPE_CHECKING:
    from leanops.domain.table.operation import Accepted
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.operations.compare import Comparison
    from leanops.usecases.operations.plan_rollback import Rollback

Curated = Annotated[bool, typer.Option("--curated", help="Only Curated, from Standardized as it is.")]
NewKey = Annotated[
    bool, typer.Option("--new-key", help="Seal everything with the key in use now, though another one was used before.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what was begun and not finished.")]
Cancel = Annotated[bool, typer.Option("--cancel", help="Undo what was begun, as long as no table was replaced.")]
To = Annotated[
    str,
    typer.Option("--to", metavar="SNAPSHOT|TIME", help="A snapshot of Standardized (see topics show), or a UTC time."),
]


def rebuild(
    topic: Topic,
    curated: Curated = False,
    new_key: NewKey = False,
    accept_missing: AcceptMissing = None,
    resume: Resume = False,
    cancel: Cancel = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make a topic's tables anew from RAW while readers keep the live ones; then swap them. Asks first."""
    accept = None if accept_missing is None else accepted(accept_missing)
    _check_words(curated=curated, new_key=new_key, accepts=accept is not None, resume=resume, cancel=cancel)
    with opened() as runtime:
        from leanops.usecases.topics.registry import find_topic

        find_topic(runtime.platform, topic)
        if cancel:
            _cancel(runtime, topic, as_json)
            return
        if not resume and not yes:
            note(_preview(runtime, topic, curated=curated))
            confirm(f"Rebuild {topic}?", "a rebuild replaces tables", yes=yes)
        tell_wait(runtime, topic)
        started = time.monotonic()
        found = _rebuilt(runtime, topic, curated=curated, new_key=new_key, accept=accept, resume=resume)
    if as_json:
        print_json({"topic": topic, "done": True, "comparison": found})
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
    left = f"; {counted(found.missing, 'key')} left it" if found.missing else ""
    return f"Curated rebuilt, {found.rows_before:,} rows before and {found.rows_after:,} after, {same}{left}"


def _check_words(*, curated: bool, new_key: bool, accepts: bool, resume: bool, cancel: bool) -> None:
    if resume and cancel:
        raise UsageError("--resume goes on and --cancel undoes; choose one")
    if curated and (resume or cancel):
        raise UsageError("--curated is for a new rebuild; what was begun knows its tables, so leave it out")
    if new_key and (resume or cancel):
        raise UsageError("--new-key is for a new rebuild; an unfinished one keeps its key, so leave it out")
    if accepts and cancel:
        raise UsageError("--accept-missing goes on and --cancel undoes; choose one")


def _preview(runtime: "Runtime", topic: str, *, curated: bool) -> str:
    from leanops.views.status import status

    (now,) = status(runtime.sources(), [topic])
    standardized, live = f"{now.standardized_rows:,} rows of Standardized", f"Curated ({now.curated_rows:,} rows)"
    made = f"{standardized} into a new {live}"
    if not curated:
        made = f"{now.raw_rows:,} rows of RAW into a new Standardized ({now.standardized_rows:,} rows) and a new {live}"
    return f"{topic}: {made}; readers keep what is live until then"


def _rebuilt(
    runtime: "Runtime", topic: str, *, curated: bool, new_key: bool, accept: "Accepted | None", resume: bool
) -> "Comparison | None":
    from leanops.domain.table.operation import Scope
    from leanops.usecases.operations import execute
    from leanops.usecases.operations.start import rebuild_topic

    with rebuilding(topic) as progress:
        if resume:
            return execute.resume(runtime.platform, topic, accept=accept, progress=progress)
        return rebuild_topic(
            runtime.platform,
            topic,
            scope=Scope.CURATED if curated else Scope.BOTH,
            accept=accept or 0,
            new_key=new_key,
            progress=progress,
        )


def _cancel(runtime: "Runtime", topic: str, as_json: bool) -> None:
    from leanops.usecases.operations.execute import cancel

    tell_wait(runtime, topic)
    operation = cancel(runtime.platform, topic)
    if as_json:
        print_json({"topic": topic, "undone": operation.work.value})
        return
    say(f"{topic}: its {operation.work.value} is undone; the tables are as they were")


def rollback(
    topic: Topic, to: To, accept_missing: AcceptMissing = None, yes: Yes = False, as_json: Json = False
) -> None:
    """Bring a topic's tables back to a snapshot or a time. Shows what changes and asks; the topic stays paused."""
    target, accept = _target(to), accepted(accept_missing)
    with opened() as runtime:
        from leanops.usecases.operations.plan_rollback import check_agreed, plan_rollback, roll_back_topic

        plan = plan_rollback(runtime.platform, topic, **target)
        if not as_json:
            _show(plan)
        if plan.changes_nothing:
            _tell_undone(plan, as_json)
            return
        if as_json and not (yes or sys.stdin.isatty()):
            _tell_undone(plan, as_json)
        check_agreed(plan, accept)
        confirm(f"Roll {topic} back?", "a rollback changes tables", yes=yes)
        tell_wait(runtime, topic)
        with rebuilding(topic) as progress:
            done = roll_back_topic(runtime.platform, plan, progress, accept=accept)
    if as_json:
        print_json({**done.as_json(), "done": True})
        return
    say(f"{topic}: rolled back to snapshot {done.snapshot}, {counted(done.rows_then, 'row')} in Standardized")
    say(f"it stays paused; to redo what came after: leanops topics resume {topic}")


def _tell_undone(plan: "Rollback", as_json: bool) -> None:
    """What would change, where nothing does."""
    if as_json:
        print_json({**plan.as_json(), "done": False})
    else:
        say(f"{plan.topic}: is there already; nothing changed")


def _show(plan: "Rollback") -> None:
    if plan.changes_nothing:
        return
    curated = (
        f"goes to its snapshot {plan.curated_snapshot}" if plan.curated_snapshot is not None else "is made anew from it"
    )
    left = f", without {counted(plan.leaving, 'key')} it has now" if plan.leaving else ""
    count = len(plan.batches)
    batches = "one batch is undone" if count == 1 else f"{count:,} batches are undone"
    undone = "a rebuild and what came after it are undone" if plan.by_replace else batches
    for line in (
        f"Standardized goes to snapshot {plan.snapshot}: {plan.rows_now:,} rows become {plan.rows_then:,}",
        f"Curated {curated}{left}",
        f"{undone}; RAW rows to be read again once it is resumed: {plan.read_again:,}",
    ):
        note(f"  {line}")


def _target(to: str) -> dict[str, int]:
    if to.isascii() and to.isdigit():
        return {"snapshot": int(to)}
    try:
        moment = datetime.fromisoformat(to)
    except ValueError:
        raise UsageError(f"{to!r} is no snapshot id and no time; write it like 2026-11-15T08:00:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {"at_ms": int(moment.timestamp() * 1000)}
