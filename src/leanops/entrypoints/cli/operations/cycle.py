"""One pass over the topics."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import NO_TOPICS, note, print_json, print_table, say, tally
from leanops.entrypoints.cli.progress import cycling

if TYPE_CHECKING:
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.cycle.job import TopicResult

STANDARDIZED = ("read", "inserted", "updated", "duplicates", "superseded", "parse_errors")
CURATED = ("read", "inserted", "updated", "unchanged", "errors", "behind")
FAILED = ("failed", "prior_failed")
REASONS_SHOWN = 10
Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; repeatable.")]
Force = Annotated[bool, typer.Option("--force", help="Retry topics now that failed before or are parked.")]
Accept = Annotated[
    bool,
    typer.Option("--accept-errors", help="Accept a batch with more critical values missing than the schema allows."),
]


def cycle(topic: Topics = None, force: Force = False, accept_errors: Accept = False, as_json: Json = False) -> None:
    """Bring every topic up to date: queues to RAW to Standardized to Curated."""
    started = time.monotonic()
    with opened() as runtime:
        results = _run(runtime, topic, force, accept_errors)
    if as_json:
        for result in results:
            print_json(result)
    else:
        show(results, time.monotonic() - started)
    if any(result.outcome in FAILED for result in results):
        raise typer.Exit(1)


def _run(runtime: "Runtime", topics: list[str] | None, force: bool, accept_errors: bool) -> "list[TopicResult]":
    from leanops.runtimes.background import landing_of
    from leanops.usecases.cycle.plan import plan_cycle
    from leanops.usecases.ingest.publish import land_waiting

    # A cycle reads only RAW, so events that wait in queues are brought there first.
    for line in land_waiting(landing_of(runtime), topics):
        note(line)
    plans = plan_cycle(runtime.platform, topics, force=force)
    with cycling({plan.topic: plan.rows for plan in plans if plan.outcome is None}) as progress:
        from leanops.usecases.cycle.run import run_cycle

        return run_cycle(runtime.platform, plans=plans, force=force, accept_errors=accept_errors, progress=progress)


def show(results: "Sequence[TopicResult]", seconds: float) -> None:
    """Print the counts of every batch, and the outcome of every topic."""
    from leanops.domain.table.outcome import Outcome

    for layer, names in (("standardized", STANDARDIZED), ("curated", CURATED)):
        rows = [
            [result.topic, *(batch.counts[name] for name in names), batch.seconds and round(batch.seconds, 1)]
            for result in results
            if (batch := result.layers.get(layer))
        ]
        if rows:
            print_table([layer, *names, "seconds"], rows, grouped=True)
            say("")
    for result in results:
        if result.outcome in FAILED:
            note(f"{result.topic}: {result.outcome.value}: {result.reason}", style="red")
    for result in [result for result in results if result.reason and result.outcome not in FAILED][:REASONS_SHOWN]:
        say(f"{result.topic}: {result.outcome.value}: {result.reason}")
    for result in results:
        for warning in result.warnings:
            say(f"{result.topic}: warning: {warning}", style="yellow")
    if not results:
        say(NO_TOPICS)
        return
    outcomes = tally(outcome for outcome in Outcome for result in results if result.outcome is outcome)
    say(f"{counted(len(results), 'topic')} in {seconds:.1f} s: {outcomes}")
