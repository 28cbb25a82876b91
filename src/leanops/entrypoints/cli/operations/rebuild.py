"""Tables rebuilt from RAW, and tables rolled back."""

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.domain.words import counted
from leanops.entrypoints.cli.home import note_wait, opened
from leanops.entrypoints.cli.input import confirm
from leanops.entrypoints.cli.options import AcceptMissing, Json, Topic, Yes, accepted
from leanops.entrypoints.cli.output import note, print_json, say
from leanops.entrypoints.cli.progress import rebuilding

if TYPE_CHECKING:
    from leanops.domain.table.comparison import Comparison
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.operations.plan_rollback import Rollback

Curated = Annotated[bool, typer.Option("--curated", help="Rebuild only Curated, from Standardized.")]
NewKey = Annotated[
    bool,
    typer.Option("--new-key", help="Seal all rows again with the current key, even if another key sealed the tables."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an unfinished operation.")]
Cancel = Annotated[
    bool, typer.Option("--cancel", help="Undo an unfinished operation, as long as no table has been replaced.")
]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="SNAPSHOT|TIME", help="A snapshot of Standardized (see topics show) or a time in UTC."
    ),
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
    """Rebuild a topic's tables from RAW while readers use the live ones, then swap them. Asks first."""
    accept = None if accept_missing is None else accepted(accept_missing)
    _check_options(curated=curated, new_key=new_key, accepts=accept is not None, resume=resume, cancel=cancel)
    with opened(topic) as runtime:
        from leanops.domain.table.operation import Scope
        from leanops.usecases.operations import execute
        from leanops.usecases.operations.start import rebuild_topic

        platform = runtime.platform
        if cancel:
            _cancel(runtime, topic, as_json)
            return
        if not resume and not yes:
            note(_preview(runtime, topic, curated=curated))
            confirm(f"Rebuild {topic}?", "a rebuild replaces tables", yes=yes)
        note_wait(runtime, topic)
        started = time.monotonic()
        with rebuilding(topic) as progress:
            if resume:
                comparison = execute.resume(platform, topic, accept=accept, progress=progress)
            else:
                scope = Scope.CURATED if curated else Scope.BOTH
                comparison = rebuild_topic(
                    platform, topic, scope=scope, accept=accept or 0, new_key=new_key, progress=progress
                )
    if as_json:
        print_json({"topic": topic, "done": True, "comparison": comparison})
        return
    say(f"{topic}: {_comparison_line(comparison)} in {time.monotonic() - started:.1f} s")


def _comparison_line(new: "Comparison | None") -> str:
    """What the new Curated changed for readers."""
    if new is None:
        return "resumed and finished"
    is_same = new.checksum_before == new.checksum_after
    same = "every key at the same version" if is_same else "keys or versions differ"
    left = f"; {counted(new.missing, 'key')} left it" if new.missing else ""
    return f"Curated rebuilt, {counted(new.rows_before, 'row')} before and {new.rows_after:,} after, {same}{left}"


def _check_options(*, curated: bool, new_key: bool, accepts: bool, resume: bool, cancel: bool) -> None:
    if resume and cancel:
        raise UsageError("--resume finishes an operation and --cancel undoes it; choose one")
    if curated and (resume or cancel):
        raise UsageError("--curated is for a new rebuild; an unfinished one keeps its tables, so leave it out")
    if new_key and (resume or cancel):
        raise UsageError("--new-key is for a new rebuild; an unfinished one keeps its key, so leave it out")
    if accepts and cancel:
        raise UsageError("--accept-missing is for finishing an operation and --cancel undoes it; choose one")


def _preview(runtime: "Runtime", topic: str, *, curated: bool) -> str:
    from leanops.views.status import status

    (now,) = status(runtime.sources(), [topic])
    raw, standardized = counted(now.raw_rows, "row"), counted(now.standardized_rows, "row")
    source = "Standardized into" if curated else f"RAW into a new Standardized (now {standardized}) and"
    target = f"a new Curated (now {counted(now.curated_rows, 'row')})"
    rows = standardized if curated else raw
    return f"{topic}: {rows} of {source} {target}; readers use the live tables until then"


def _cancel(runtime: "Runtime", topic: str, as_json: bool) -> None:
    from leanops.usecases.operations.execute import cancel

    note_wait(runtime, topic)
    operation = cancel(runtime.platform, topic)
    if as_json:
        print_json({"topic": topic, "undone": operation.work.value})
        return
    say(f"{topic}: its {operation.work.value} was undone; the tables are as they were before")


def rollback(
    topic: Topic, to: To, accept_missing: AcceptMissing = None, yes: Yes = False, as_json: Json = False
) -> None:
    """Roll a topic's tables back to a snapshot or a time. Shows what changes and asks; the topic stays paused."""
    target, accept = _target(to), accepted(accept_missing)
    with opened() as runtime:
        from leanops.usecases.operations.plan_rollback import check_agreed, plan_rollback, roll_back_topic

        plan = plan_rollback(runtime.platform, topic, **target)
        if as_json and (plan.changes_nothing or not (yes or sys.stdin.isatty())):
            print_json({**plan.as_json(), "done": False})
        elif plan.changes_nothing:
            say(f"{topic} is already there; nothing changed")
        elif not as_json:
            _show(plan)
        if plan.changes_nothing:
            return
        check_agreed(plan, accept)
        confirm(f"Roll {topic} back?", "a rollback changes the tables", yes=yes)
        note_wait(runtime, topic)
        with rebuilding(topic) as progress:
            done = roll_back_topic(runtime.platform, plan, progress, accept=accept)
    if as_json:
        print_json({**done.as_json(), "done": True})
        return
    say(f"{topic}: rolled back to snapshot {done.snapshot}, {counted(done.rows_then, 'row')} in Standardized")
    say(f"the topic stays paused; to process the later events again, run: leanops topics resume {topic}")


def _show(plan: "Rollback") -> None:
    has_snapshot = plan.curated_snapshot is not None
    curated = f"goes back to snapshot {plan.curated_snapshot}" if has_snapshot else "is rebuilt from it"
    left = f", without {counted(plan.leaving, 'key')} it has now" if plan.leaving else ""
    undone = "a rebuild and all batches since" if plan.by_replace else counted(len(plan.batches), "batch")
    rows = f"{counted(plan.rows_then, 'row')} instead of {plan.rows_now:,}"
    note(f"  Standardized goes back to snapshot {plan.snapshot}: {rows}")
    note(f"  Curated {curated}{left}")
    note(f"  undone: {undone}; RAW rows to read again once the topic is resumed: {plan.read_again:,}")


def _target(to: str) -> dict[str, int]:
    if to.isascii() and to.isdigit():
        return {"snapshot": int(to)}
    try:
        moment = datetime.fromisoformat(to)
    except ValueError:
        raise UsageError(f"{to!r} is neither a snapshot id nor a time like 2026-11-15T08:00:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {"at_ms": int(moment.timestamp() * 1000)}
