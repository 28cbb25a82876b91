"""Live progress on standard error, shown only on a terminal."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from leanops.entrypoints.cli.output import console


def _bar(*columns: Callable[[Any], str], left: Callable[[Any], str] | None = None) -> Any:
    """A bar with the time and these columns, each the text for a task; `left` replaces the time that remains."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        *map(_column, columns),
        TimeElapsedColumn(),
        _column(left) if left else TimeRemainingColumn(),
        console=console(to_stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
        # What is printed meanwhile goes above the bar, unless it goes into a file.
        redirect_stdout=sys.stdout.isatty(),
    )


@contextmanager
def counting(description: str, total: int | None, unit: str) -> Iterator[Callable[..., None]]:
    """A bar with a rate; call it with the number done and, if it changes, a new description."""
    with _bar(lambda task: f"{task.completed:,.0f} {unit}", _rate(unit)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done, text=None: bar.update(task, completed=done, description=text)


@contextmanager
def waiting(description: str) -> Iterator[Callable[[str], None]]:
    """A spinner for work of unknown length; call it with a new description."""
    with _bar() as bar:
        task = bar.add_task(description, total=None)
        yield lambda text: bar.update(task, description=text)


@contextmanager
def shares(rows: Callable[[str], int] = lambda _step: 0) -> Iterator[Callable[[str, float], None]]:
    """A bar to call with a step and the share of it that is done; `rows` gives the rows of a step, 0 if unknown."""
    with _bar(_events_per_second, left=_time_left) as bar:
        task = bar.add_task("starting", total=1.0, rows=0)
        reached = 0.0

        def update(step: str, share: float) -> None:
            nonlocal reached
            if share < reached or not share:
                # Another step begins, with its own time and rate.
                bar.reset(task, total=1.0)
            reached = share
            bar.update(task, description=step, completed=share, rows=rows(step))

        yield update


@contextmanager
def cycling(rows: Mapping[str, int]) -> Iterator[Callable[[str, str], None]]:
    """A bar over the rows a cycle expects per topic; topics that wait for nothing count as one row."""
    from leanops.usecases.cycle.run import share_done

    weights = {topic: max(1, expected) for topic, expected in rows.items()}
    reached: dict[str, float] = {}
    with counting("planning", sum(weights.values()) or None, "rows") as update:

        def step(topic: str, name: str) -> None:
            reached[topic] = share_done(name) * weights.get(topic, 1)
            update(sum(reached.values()), f"{topic}: {name}")

        yield step


@contextmanager
def rebuilding(topic: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar over the rows of each table that is rebuilt."""
    with _bar(lambda task: f"{task.completed:,.0f} of {task.total:,.0f} rows", _rate("rows")) as bar:
        tasks: dict[str, Any] = {}

        def update(table: str, done: int, rows: int) -> None:
            if table not in tasks:
                tasks[table] = bar.add_task(f"{topic}: {table}", total=max(1, rows))
            bar.update(tasks[table], completed=done, total=max(1, rows))

        yield update


def _column(rendered: Callable[[Any], str]) -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Column(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(rendered(task), style="cyan")

    return Column()


def _rate(unit: str) -> Callable[[Any], str]:
    def rendered(task: Any) -> str:
        speed = task.finished_speed or task.speed
        return f"{speed:,.0f} {unit}/s" if speed else ""

    return rendered


# Shares come in leaps, so rate and time left follow from the whole step, not from its last moments.
def _events_per_second(task: Any) -> str:
    rows = task.fields["rows"] * task.completed
    return f"{rows / task.elapsed:,.0f} events/s" if rows and task.elapsed else ""


def _time_left(task: Any) -> str:
    share = task.completed
    return f"{task.elapsed * (1 - share) / share:,.0f} s left" if share and task.elapsed else ""
