"""A soak: events for a while, workers that are killed, and the tables compared with the ledger at the end."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.words import counted
from leanops.entrypoints.cli.emulation.emulate import HOME, Home, Seed, Topics, opened
from leanops.entrypoints.cli.emulation.verdicts import judge, print_steps
from leanops.entrypoints.cli.output import say

if TYPE_CHECKING:
    from leanops.emulation.play.soak import Soaked, Wishes

For = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long to publish: 90s, 30m or 1h30m.")]
Rate = Annotated[int, typer.Option("--rate", min=1, help="Events per second, over all topics.")]
KillsOption = Annotated[
    str | None, typer.Option("--kills", help="Kill a worker about this often: 20s; never if left out.")
]
Rates = Annotated[str, typer.Option("--rates", help="How often things go wrong, as in cde=0.03,late=0.1.")]
SAME_SIGNAL_S = 1.0


def soak(
    home: Home = HOME,
    lasts: For = "10m",
    rate: Rate = 2_000,
    kills: KillsOption = None,
    topics: Topics = 4,
    seed: Seed = 1,
    rates: Rates = "",
) -> None:
    """Publish while workers in their own processes run cycles, kill some of them, and verify at the end.

    Ctrl-C stops publishing and continues with verification; a second one, or one after publishing, ends at once.
    """
    from leanops.emulation.play.pace import seconds_of
    from leanops.emulation.play.soak import SETTINGS, Soak, Wishes
    from leanops.emulation.scenario import SOAK, Scenario

    seconds, every_s = seconds_of(lasts), seconds_of(kills) if kills else math.inf
    scenario = Scenario(seed=seed, topics=topics, rates=rates, events={SOAK: seconds * rate}, rate=rate)
    # Rates that add up to more than 1 are refused before anything is removed.
    scenario.phase(SOAK)
    scenario.check_size(SOAK, scenario.events[SOAK])
    started, wishes = time.monotonic(), Wishes()
    with _handling_signals(wishes), opened(home, scenario, SETTINGS) as emulation:
        soaked = Soak(emulation, every_s, wishes).run()
    print_steps(emulation.scenario.steps)
    _summarise(soaked)
    judge(home, emulation.scenario, soaked.verdict, time.monotonic() - started)


@contextmanager
def _handling_signals(wishes: "Wishes") -> Iterator[None]:
    """Turn signals into wishes, so that no worker stays behind."""
    last = 0.0

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal last
        # The terminal and the parent process may both pass on the same Ctrl-C.
        if time.monotonic() > last + SAME_SIGNAL_S:
            last = time.monotonic()
            wishes.interrupt()

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, interrupt),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda _number, _frame: wishes.end()),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summarise(soaked: "Soaked") -> None:
    """Print what the steps do not show."""
    say(f"{counted(soaked.events, 'event')} in {soaked.seconds:.0f} s, {soaked.rate:,.0f} per second")
    killed = ", ".join(f"{name} {times}" for name, times in sorted(soaked.kills.items()))
    say(f"{counted(sum(soaked.kills.values()), 'kill')}{f': {killed}' if killed else ''}")
    say(f"{counted(soaked.batches, 'batch')} of Standardized and Curated")
    say(f"{counted(soaked.extra, 'row')} of RAW beyond what was sent")
