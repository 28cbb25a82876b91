"""The demo: everything once, on generated events, with the balance at the end."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.entrypoints.cli.cycle import CURATED, STANDARDIZED
from leanops.entrypoints.cli.output import colored, console, print_table, say
from leanops.entrypoints.cli.progress import rows_of, share_done, waiting

if TYPE_CHECKING:
    from leanops.emulation.demo import Step
    from leanops.emulation.orders import Emulation
    from leanops.runtimes.embedded import Embedded
    from leanops.views.balance import Balance

Home = Annotated[Path, typer.Argument(metavar="PATH", help="Home of the demo, made fresh each time.")]
Events = Annotated[int, typer.Option("--events", min=10, max=1_000_000, help="How many events to generate.")]
Seed = Annotated[int, typer.Option("--seed", help="Another seed, other events.")]


def demo(path: Home = Path(".leanops-demo"), events: Events = 20_000, seed: Seed = 7) -> None:
    """Run a small emulation end to end and show the balance."""
    from leanops.domain.errors import LeanOpsError
    from leanops.emulation.demo import fresh_home
    from leanops.emulation.orders import emulate
    from leanops.runtimes.embedded import Embedded

    started = time.monotonic()
    home = fresh_home(path.expanduser().resolve())
    say(f"Lean-Ops demo in {_near(home)}: {events:,} order events with duplicates, corrections, broken JSON and drift")
    runtime = Embedded(home)
    try:
        balanced = _run(runtime, emulate(events, seed))
    finally:
        runtime.close()
    say(f"\n{'balanced' if balanced else 'OUT OF BALANCE'}, in {time.monotonic() - started:.0f} s")
    if not balanced:
        raise LeanOpsError("the demo does not balance; run it again as leanops --debug demo and report it")
    _print_next(home)


def _run(runtime: "Embedded", emulation: "Emulation") -> bool:
    from leanops.emulation.demo import judged, play

    steps: list[Step] = []

    def tell(step: "Step") -> None:
        steps.append(step)
        say(f"  {step.action:<8} {_detail(step):<66} {step.seconds:>5.1f} s")

    with rows_of(emulation.facts.published) as bar:

        def progress(topic: str, name: str) -> None:
            published = [step.events for step in steps if step.action == "publish"]
            bar(sum(published[:-1]) + share_done(name) * published[-1], f"{topic}: {name}")

        play(runtime, emulation, tell, progress)
    _print_counts(steps, "RAW → Standardized", "standardized", STANDARDIZED)
    _print_counts(steps, "Standardized → Curated", "curated", CURATED)
    with waiting("checking the balance"):
        balance = judged(runtime, emulation)
    _print_balance(balance)
    return balance.balanced


def _detail(step: "Step") -> str:
    if step.action == "publish":
        return f"{step.events:,} events: {step.name}"
    if step.result is None:
        return step.name
    if not step.result.layers:
        return f"{step.result.outcome.value}: {step.result.reason}"
    return f"{step.result.outcome.value}: {step.name}"


def _print_counts(steps: "Sequence[Step]", title: str, layer: str, names: tuple[str, ...]) -> None:
    """What every cycle did with the rows it read; the columns after `read` add up to it."""
    counts = [(step.name, step.result.layers[layer].counts) for step in steps if step.result and step.result.layers]
    rows = [[name, *(found[column] for column in names)] for name, found in counts]
    total = ["together", *(sum(found[column] for _, found in counts) for column in names)]
    say("")
    print_table([title, *names], [*rows, total], grouped=True)


def _print_balance(balance: "Balance") -> None:
    screen = console()
    rows = [
        [colored("✓", "green") if check.balanced else colored("✗", "bold red"), check.name, check.expected, check.found]
        for check in balance.checks
    ]
    screen.print()
    print_table(("", "must be equal", "expected", "found"), rows, grouped=True)
    for problem in balance.problems:
        screen.print(problem, style="bold red")


def _print_next(home: Path) -> None:
    leanops = "leanops" if shutil.which("leanops") else _near(Path(sys.argv[0]).resolve())
    say("\nLook at it:")
    say(f"  export LEANOPS_HOME={_near(home)}")
    for command in (
        "status",
        'sql "select status, count(*) as orders, sum(amount) as total from iceberg_curated_db.orders group by all"',
        'sql "select column_name, action, new_value from ops_db.drift_log order by 1"',
        "errors list --rule cde_missing --limit 5",
    ):
        say(f"  {leanops} {command}")


def _near(path: Path) -> str:
    """The path as it would be typed from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
