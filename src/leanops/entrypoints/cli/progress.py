"""Live progress on standard error, only where a person looks."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from leanops.entrypoints.cli.output import console


def is_watched() -> bool:
    """Whether a person would see it."""
    return sys.stderr.isatty()


def _bar(*columns: Any, left: Any = None) -> Any:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        *columns,
        TimeElapsedColumn(),
        left or TimeRemainingColumn(),
        console=console(to_stderr=True),
        disable=not is_watched(),
        transient=True,
        # What is printed meanwhile goes above the bar, unless it goes into a file.
        redirect_stdout=sys.stdout.isatty(),
    )


@contextmanager
def counting(description: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar that is told how many are done; shows the rate."""
    from rich.progress import TextColumn

    with _bar(TextColumn("{task.completed:,.0f} " + unit), _rate(unit)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def waiting(description: str) -> Iterator[Callable[[str], None]]:
    """A spinner for work whose end nobody knows; can be told what goes on."""
    with _bar() as bar:
        task = bar.add_task(description, total=None)
        yield lambda text: bar.update(task, description=text)


@contextmanager
def rows_of(total: int) -> Iterator[Callable[[float, str], None]]:
    """A bar over rows that is told how far it is, and what goes on."""
    from rich.progress import TextColumn

    with _bar(TextColumn("{task.completed:,.0f} rows"), _rate("rows")) as bar:
        task = bar.add_task("planning", total=total or None)
        yield lambda done, text: bar.update(task, completed=done, description=text)


@contextmanager
def shares(rows: Callable[[str], int] = lambda _what: 0) -> Iterator[Callable[[str, float], None]]:
    """A bar that is told what goes on and which share of it is done; `rows` says of how many, where that is known."""
    with _bar(_of_share(_events_a_second), left=_of_share(_time_left)) as bar:
        task = bar.add_task("starting", total=1.0, rows=0)
        reached = 0.0

        def tell(what: str, share: float) -> None:
            nonlocal reached
            if share < reached or not share:
                # Another step begins, with a time and a rate of its own.
                bar.reset(task, total=1.0)
            reached = share
            bar.update(task, description=what, completed=share, rows=rows(what))

        yield tell


@contextmanager
def cycling(rows: Mapping[str, int]) -> Iterator[Callable[[str, str], None]]:
    """A bar over the rows a cycle expects per topic; topics that wait for nothing count as one row."""
    from leanops.usecases.cycle.run import share_done

    weights = {topic: max(1, expected) for topic, expected in rows.items()}
    reached: dict[str, float] = {}
    with rows_of(sum(weights.values())) as bar:

        def step(topic: str, name: str) -> None:
            reached[topic] = share_done(name) * weights.get(topic, 1)
            bar(sum(reached.values()), f"{topic}: {name}")

        yield step


@contextmanager
def rebuilding(topic: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar over the rows of each table that is made anew."""
    from rich.progress import TextColumn

    with _bar(TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows"), _rate("rows")) as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, rows: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(f"{topic}: {what}", total=max(1, rows))
            bar.update(tasks[what], completed=done, total=max(1, rows))

        yield tell


def _rate(unit: str) -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:,.0f} {unit}/s" if speed else "")

    return Rate()


def _of_share(said: Callable[[float, float, int], str]) -> Any:
    """What can be said of seconds, share and rows; shares come in leaps, which no speed of the last moments fits."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class OfShare(ProgressColumn):
        def render(self, task: Task) -> Text:
            known = task.elapsed and task.completed
            return Text(said(task.elapsed or 0.0, task.completed, task.fields["rows"]) if known else "", style="cyan")

    return OfShare()


def _events_a_second(seconds: float, share: float, rows: int) -> str:
    return f"{share * rows / seconds:,.0f} events/s" if rows else ""


def _time_left(seconds: float, share: float, _rows: int) -> str:
    return f"{seconds * (1 - share) / share:,.0f} s left"
