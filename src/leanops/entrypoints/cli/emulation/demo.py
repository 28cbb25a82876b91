"""The demo: a small emulation, verified, with the balance at the end."""

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.entrypoints.cli.emulation.emulate import TOPICS, opened, planned
from leanops.entrypoints.cli.emulation.verdicts import judge, print_balance, print_steps, summarise
from leanops.entrypoints.cli.output import near, say

if TYPE_CHECKING:
    from leanops.emulation.report.numbers import Report

Home = Annotated[Path, typer.Argument(metavar="PATH", help="Home of the demo, re-created each time.")]
# With fewer, no row may move to another month on day 4.
Events = Annotated[int, typer.Option("--events", min=400, max=1_000_000, help="Number of events to generate.")]
Seed = Annotated[int, typer.Option("--seed", help="Another seed gives other events.")]
# Cycles last seconds: they end before more compilation would pay off.
SETTINGS = 'spark.java_options = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"\n'


def demo(path: Home = Path(".leanops-demo"), events: Events = 20_000, seed: Seed = 7) -> None:
    """Run a small emulation end to end, verify it and show the balance. The exit code is 3 if verification fails."""
    started = time.monotonic()
    with opened(path, planned(TOPICS, seed), SETTINGS) as emulation:
        home = near(path.expanduser().resolve())
        say(f"Lean-Ops demo in {home}: four days of orders and payments, {events:,} events")
        print_steps(emulation.play(_days(events)))
        verdict = emulation.verify()
        print_steps(emulation.scenario.steps[-1:])

    def show(report: "Report") -> None:
        print_balance(report)
        summarise(report)
        print_next(path.expanduser().resolve())

    judge(path, emulation.scenario, verdict, time.monotonic() - started, show=show)


def _days(events: int) -> dict[str, int]:
    second, fourth = max(TOPICS, events * 20 // 100), max(TOPICS, events * 5 // 100)
    return {"day1": events - second - fourth, "day2": second, "day4": fourth}


def print_next(home: Path) -> None:
    """Print commands to try next, as a shell takes them."""
    leanops = "leanops" if shutil.which("leanops") else shlex.quote(near(Path(sys.argv[0]).resolve()))
    say("\nLook at it:")
    say(f"  export LEANOPS_HOME={shlex.quote(near(home))}")
    for command in (
        "status",
        'sql "select order_status, count(*) as orders, sum(order_amount) as total from iceberg_curated_db.orders '
        'group by all"',
        "drift orders",
        "errors list --rule cde_missing --limit 5",
    ):
        say(f"  {leanops} {command}")
