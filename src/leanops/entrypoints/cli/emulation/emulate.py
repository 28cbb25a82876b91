"""The emulation: days of production in minutes, verified message by message."""

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from leanops.entrypoints.cli.emulation.verdicts import judge, print_steps
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import say
from leanops.entrypoints.cli.progress import shares

if TYPE_CHECKING:
    from leanops.emulation.play.phases import Emulation
    from leanops.emulation.scenario import Scenario

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Home = Annotated[
    Path,
    typer.Option("--home", envvar="LEANOPS_HOME", help="Home of the emulation; `clean`, `full` and `soak` create it."),
]
Seed = Annotated[int, typer.Option("--seed", help="Another seed gives other events.")]
Topics = Annotated[int, typer.Option("--topics", min=1, max=1_000, help="Number of topics; four profiles in turn.")]
Rates = Annotated[str, typer.Option("--rates", help="How often things go wrong on day 2, as in cde=0.03,late=0.1.")]
Through = Annotated[
    Literal["queue", "pubsub"],
    typer.Option(
        "--through",
        help="Where events enter: the queue, or topics of GOOGLE_CLOUD_PROJECT in Pub/Sub (or of PUBSUB_EMULATOR_HOST) "
        "and a bridge; Pub/Sub assigns the ids, so duplicate, redelivery and envelope are left out.",
    ),
]
Events = Annotated[int | None, typer.Option("--events", min=1, help="Number of events.")]
HOME = Path(".leanops-emulation")
# Every topic costs some seconds in every cycle; two show everything.
TOPICS = 2


@app.command()
def clean(
    home: Home = HOME, topics: Topics = TOPICS, seed: Seed = 1, rates: Rates = "", through: Through = "queue"
) -> None:
    """Create an empty home for an emulation. Removes an earlier emulation there; refuses any other folder."""
    from leanops.emulation.play.homes import held

    with held(home.expanduser().resolve(), planned(topics, seed, rates, through)):
        pass
    say(f"Created {home}; next: leanops emulate day1{_at(home)}")


@app.command()
def day1(home: Home = HOME, events: Events = None) -> None:
    """Publish clean events while there is no schema: they wait in RAW."""
    with opened(home) as emulation:
        print_steps(emulation.day1(_size("day1", events)))


@app.command()
def schema(home: Home = HOME) -> None:
    """Refuse wrong schema files, deploy the right ones, and process what waits."""
    with opened(home) as emulation:
        print_steps(emulation.schema())


@app.command()
def day2(home: Home = HOME, events: Events = None) -> None:
    """Publish corrections, drift and errors, and process them."""
    with opened(home) as emulation:
        print_steps(emulation.day("day2", _size("day2", events)))


@app.command()
def day4(home: Home = HOME, events: Events = None) -> None:
    """Publish corrections that move events to other months, and process them."""
    with opened(home) as emulation:
        print_steps(emulation.day("day4", _size("day4", events)))


@app.command()
def verify(home: Home = HOME, as_json: Json = False) -> None:
    """Compare every table with the ledger of what was published, and write report.html. Exit code 3 if they differ."""
    with opened(home) as emulation:
        verdict = emulation.verify()
    judge(home, emulation.scenario, verdict, as_json=as_json)


@app.command()
def full(
    home: Home = HOME,
    events: Events = None,
    topics: Topics = TOPICS,
    seed: Seed = 1,
    rates: Rates = "",
    through: Through = "queue",
) -> None:
    """Run all phases from clean to verify. Days 2 and 4 have a 20th and a 200th of the events of day 1."""
    first = _size("day1", events)
    sizes = {"day1": first, "day2": max(topics, first // 20), "day4": max(topics, first // 200)}
    started, scenario = time.monotonic(), planned(topics, seed, rates, through)
    scenario.check_size("day1", first)
    with opened(home, scenario) as emulation:
        print_steps(emulation.play(sizes))
        verdict = emulation.verify()
        print_steps(emulation.scenario.steps[-1:])
    judge(home, emulation.scenario, verdict, time.monotonic() - started)


def planned(topics: int, seed: int, rates: str = "", through: str = "queue") -> "Scenario":
    """A valid emulation; raises UsageError if it is not."""
    from leanops.emulation.scenario import Scenario

    scenario = Scenario(seed=seed, topics=topics, rates=rates, through=through)
    scenario.check()
    if through == "pubsub":
        from leanops.emulation.play.pubsub import check

        check(scenario.names())
    return scenario


def _at(home: Path) -> str:
    """The option by which the next command finds this home; empty if it needs none."""
    is_default = home == Path(os.environ.get("LEANOPS_HOME") or HOME)
    return "" if is_default else f" --home {shlex.quote(str(home))}"


def _size(phase: str, events: int | None) -> int:
    from leanops.emulation.scenario import DAYS

    return events or DAYS[phase]


@contextmanager
def opened(home: Path, new: "Scenario | None" = None, settings: str = "") -> "Iterator[Emulation]":
    """The emulation of a home, open for some phases; `new` replaces it first."""
    from leanops.emulation.play.homes import held
    from leanops.emulation.play.phases import Emulation

    place = home.expanduser().resolve()
    # A step that publishes has the name of its phase.
    with held(place, new, settings), shares(lambda step: emulation.scenario.events.get(step, 0)) as progress:
        emulation = Emulation(place, progress)
        try:
            yield emulation
        finally:
            emulation.close()
