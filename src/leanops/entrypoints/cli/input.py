"""What a command takes from people: the files they name and their answers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.options import FAILED
from leanops.entrypoints.cli.output import note


@contextmanager
def readable(file: Path | str) -> Iterator[None]:
    """Turn a failure to read a file into a message that says why."""
    try:
        yield
    except OSError as failure:
        raise UsageError(f"{file} cannot be read: {(failure.strerror or 'no such file').lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8; convert it first") from None


def read_schema(path: Path) -> str:
    """The text of a schema file."""
    with readable(path):
        return path.read_text(encoding="utf-8")


def confirm(question: str, consequence: str, *, yes: bool) -> None:
    """Ask a person, unless --yes was given; "no" ends the command with exit code 1."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{consequence}; confirm with --yes")
    if not typer.confirm(question, err=True):
        note("nothing was changed")
        raise typer.Exit(FAILED)
