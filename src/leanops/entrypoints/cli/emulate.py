"""The emulation: days of production in minutes, verified message by message."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from leanops.entrypoints.cli.output import say
from leanops.entrypoints.cli.progress import shares

if TYPE_CHECKING:
    from leanops.emulation.phases import Emulation
    from leanops.emulation.scenario import Step
    from leanops.emulation.verify import Verdict

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Home = Annotated[
    Path, typer.Option("--home", envvar="LEANOPS_HOME", help="Home of the emulation; made by `clean` and `full`.")
]
Seed = Annotated[int, typer.Option("--seed", help="Another seed, other events.")]
Topics = Annotated[int, typer.Option("--topics", min=1, max=1_000, help="How many topics; four profiles in turn.")]
Rates = Annotated[str, typer.Option("--rates", help="How often things go wrong on day 2, as in cde=0.03,late=0.1.")]
Through = Annotated[
    Literal["queue", "pubsub"],
    typer.Option(
        "--through",
        help="Where events enter: the queue, or the topics of GOOGLE_CLOUD_PROJECT in Pub/Sub (PUBSUB_EMULATOR_HOST "
        "names its emulator) with a bridge; Pub/Sub gives out the ids, so duplicate and redelivery are left out.",
    ),
]
Events = Annotated[int | None, typer.Option("--events", min=1, help="How many events.")]
HOME = Path(".leanops-emulation")


@app.command()
def clean(home: Home = HOME, topics: Topics = 4, seed: Seed = 1, rates: Rates = "", through: Through = "queue") -> None:
    """Make an empty home for an emulation; an earlier emulation in it is removed, anything else is left alone."""
    _made(home, topics, seed, rates, through)
    say(f"made {home}; next: leanops emulate day1")


@app.command()
def day1(home: Home = HOME, events: Events = None) -> None:
    """Publish clean events while there is no schema: they wait in RAW."""
    with _opened(home) as emulation:
        _tell(emulation.day1(_size("day1", events)))


@app.command()
def schema(home: Home = HOME) -> None:
    """Refuse wrong schema files, deploy the right ones, and process what waits."""
    with _opened(home) as emulation:
        _tell(emulation.schema())


@app.command()
def day2(home: Home = HOME, events: Events = None) -> None:
    """Publish corrections, drift and errors, and process them."""
    with _opened(home) as emulation:
        _tell(emulation.day2(_size("day2", events)))


@app.command()
def day4(home: Home = HOME, events: Events = None) -> None:
    """Publish corrections that move events to other months, and process them."""
    with _opened(home) as emulation:
        _tell(emulation.day4(_size("day4", events)))


@app.command()
def verify(home: Home = HOME) -> None:
    """Hold every table against the ledger of what was published; exit 3 where they differ."""
    with _opened(home) as emulation:
        _judge(emulation.verify())


@app.command()
def full(
    home: Home = HOME,
    events: Events = None,
    topics: Topics = 4,
    seed: Seed = 1,
    rates: Rates = "",
    through: Through = "queue",
) -> None:
    """All phases from clean to verify; days 2 and 4 have a 20th and a 200th of the events of day 1."""
    first = _size("day1", events)
    sizes = {"day1": first, "day2": max(1, first // 20), "day4": max(1, first // 200)}
    started = time.monotonic()
    _made(home, topics, seed, rates, through)
    with _opened(home) as emulation:
        _tell(emulation.play(sizes))
        verdict = emulation.verify()
    say(f"in {time.monotonic() - started:.0f} s")
    _judge(verdict)


def _made(home: Path, topics: int, seed: int, rates: str, through: str = "queue", settings: str = "") -> None:
    from leanops.emulation.phases import fresh_home
    from leanops.emulation.scenario import Scenario

    scenario = Scenario(seed=seed, topics=topics, rates=rates, through=through)
    scenario.check()
    fresh_home(home.expanduser().resolve(), scenario, settings)


def _size(phase: str, events: int | None) -> int:
    from leanops.emulation.scenario import DAYS

    return events or DAYS[phase]


@contextmanager
def _opened(home: Path) -> "Iterator[Emulation]":
    from leanops.emulation.phases import Emulation

    with shares() as progress:
        emulation = Emulation(home.expanduser().resolve(), progress)
        try:
            yield emulation
        finally:
            emulation.close()


def _tell(steps: "Iterable[Step]") -> None:
    for step in steps:
        rate = f"{step.rows / step.seconds:>9,.0f}/s" if step.rows else ""
        say(
            f"  {step.phase:<7} {step.what:<28} {f'{step.rows:,}' if step.rows else '':>10} {step.seconds:>7.1f} s {rate}".rstrip()
        )


def _judge(verdict: "Verdict") -> None:
    failed = [(topic.topic, check) for topic in verdict.topics for check in topic.checks if not check.passed]
    for topic, check in failed:
        say(f"✗ {topic}: {check.name}: {check.expected:,} expected, {check.found:,} found, {check.wrong:,} wrong")
        for wrong in check.examples:
            say(f"    {wrong.message_id} {wrong.what}")
    if failed:
        raise typer.Exit(3)
    say("verified")
