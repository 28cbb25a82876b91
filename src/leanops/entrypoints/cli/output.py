"""What a command prints: tables and messages for people, JSON for programs."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leanops.domain.words import counted

if TYPE_CHECKING:
    from rich.console import Console

WIDEST = 10_000
NO_TOPICS = "no topics yet; add one with: leanops topics add TOPIC"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def console(*, to_stderr: bool = False) -> "Console":
    """The terminal; a pipe gets whole lines, however wide."""
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else WIDEST
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(text: str, style: str | None = None) -> None:
    """Print a message on standard output."""
    console().print(printable(text), style=style)


def note(text: str, style: str | None = None) -> None:
    """Print a message on standard error, where programs that read the output do not see it."""
    console(to_stderr=True).print(printable(text), style=style)


def printable(text: str) -> str:
    """The text with control characters made visible, so that data cannot steer a terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def print_json(value: Any) -> None:
    """Print one JSON value on its own line."""
    typer.echo(_encoded(value) + b"\n", nl=False)


def print_json_array(values: Iterable[Any]) -> None:
    """Print a JSON array, each member as soon as it is there."""
    typer.echo("[", nl=False)
    for number, value in enumerate(values):
        typer.echo((b",\n" if number else b"") + _encoded(value), nl=False)
    typer.echo("]")


def _encoded(value: Any) -> bytes:
    import msgspec

    # A DECIMAL is a JSON number with all its digits; what JSON has no form for is a string.
    return msgspec.json.Encoder(enc_hook=str, decimal_format="number").encode(_formed(value))


def _formed(value: Any) -> Any:
    """The value with every dataclass as a dictionary of its fields, or as what its `as_json` returns."""
    if hasattr(value, "as_json"):
        return _formed(value.as_json())
    if is_dataclass(value):
        return {field.name: _formed(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _formed(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_formed(member) for member in value]
    return value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, grouped: bool = False) -> None:
    """Print a table, with thousands separators if `grouped`; if it is wider than the terminal, one value per line."""
    from rich import box
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for at, name in enumerate(columns):
        first = next((row[at] for row in rows if row[at] is not None), None)
        is_number = isinstance(first, int | float | Decimal) and not isinstance(first, bool)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    cells = [[v if isinstance(v, Text) else Text(shown(v, grouped=grouped)) for v in row] for row in rows]
    for row in cells:
        table.add_row(*row)
    screen = console()
    unsqueezed = screen.options.update(max_width=WIDEST)
    if Measurement.get(screen, unsqueezed, table).maximum <= screen.width:
        screen.print(table)
        return
    width = max(len(column) for column in columns)
    for number, row in enumerate(cells):
        if number:
            screen.print()
        for column, cell in zip(columns, row, strict=True):
            screen.print(f"{column:<{width}}  ", cell, sep="")


def tally(values: Iterable[str]) -> str:
    """How many there are of each value: `2 replayed, 1 missing file`."""
    return ", ".join(f"{count:,} {value}" for value, count in Counter(values).items())


def limited(number: int, noun: str, limit: int) -> str:
    """How many are listed, and whether there may be more."""
    return f"the newest {limit:,}; more with --limit" if number == limit else counted(number, noun)


def shown(value: Any, *, grouped: bool = False) -> str:
    """A value as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}" if grouped else str(value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat(" ")
    return printable(str(value))


def to_second(at: datetime | None) -> datetime | None:
    """A time without its microseconds."""
    return at and at.replace(microsecond=0)


def near(path: Path) -> str:
    """The path as it would be typed in the current folder."""
    relative = Path(os.path.relpath(path))
    return str(path if os.pardir in relative.parts else relative)


def colored(text: str, style: str) -> Any:
    """A cell in a color."""
    from rich.text import Text

    return Text(text, style=style)
